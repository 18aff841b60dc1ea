"""Decides what may happen unasked: one pure function, and all that it goes by."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from amas_code.events import Action

OURS = ("todo_read", "todo_write", "shell_output", "shell_stop")  # no file, nothing new to run

# What other programs obey or run unasked, in lower case, be it a file or a directory.
AGENTS = {".amas", "agents.md", "claude.md", "gemini.md", ".claude", ".cursor", ".cursorrules"}
EDITORS = {".vscode", ".idea", ".zed", ".devcontainer", ".vimrc", ".exrc", ".nvim.lua"}
SHELLS = {".envrc", ".mise.toml", "mise.toml", ".npmrc", ".dir-locals.el"}
HOOKS = {".githooks", ".husky", "lefthook.yml", ".pre-commit-config.yaml", ".gitattributes"}
CI = {".github", ".gitlab-ci.yml", ".circleci", ".travis.yml", ".drone.yml", ".woodpecker.yml"}
MORE_CI = {".woodpecker", ".forgejo", ".gitea", "jenkinsfile", "azure-pipelines.yml"}
ASK_ALWAYS = AGENTS | EDITORS | SHELLS | HOOKS | CI | MORE_CI


# Whatever their options, these only look.
LOOKS = {"ls", "pwd", "cat", "head", "tail", "wc", "grep", "stat", "du", "df", "id", "uname"}
LOOKS |= {"echo", "true", "false", "which", "whoami", "date"}
PLAIN = re.compile(r"[A-Za-z0-9_ ./:,=@%+*?\"'^-]*")  # nothing that runs, expands or redirects


class Rules(NamedTuple):
    """What `decide` goes by."""

    mode: str  # "ask", "auto-edit" or "plan"
    allow: tuple[str, ...]  # commands that may run as they stand here
    root: Path | None  # the project; None: there is none, so everything asks


def decide(action: Action, rules: Rules) -> str:
    """ "allow", "ask", or the reason why not.

    Not covered yet: what a command does. Each asks, unless it stands in `allow` to the letter.
    Nor does a read ask about secrets that lie in the project itself.
    """
    if action.kind == "edit":
        return decide_edit(action, rules)
    if action.name in OURS:
        return "allow"
    if action.kind == "run":
        if rules.mode == "plan":
            return "plan mode only reads; describe what you would run"
        return "allow" if action.args.get("command") in rules.allow else "ask"
    return "allow" if within(meant(action.args.get("path") or "."), rules.root) else "ask"


def harmless(command: str) -> bool:
    """Whether it is certain that a command changes no file."""
    return (
        bool(PLAIN.fullmatch(command))
        and command.split()[:1] != []
        and (command.split()[0] in LOOKS)
    )


def decide_edit(action: Action, rules: Rules) -> str:
    paths = [edit.path for edit in action.edits]
    if any(".git" in lower(path) | lower(real(path)) for path in paths):
        return "files under .git are never edited"
    if rules.mode == "plan":
        return "plan mode only reads; describe the change instead"
    plain = all(ordinary(path, rules.root) for path in paths)
    deletes = any(edit.after is None for edit in action.edits)
    return "allow" if rules.mode == "auto-edit" and plain and not deletes else "ask"


def ordinary(path: Path, root: Path | None) -> bool:
    """A file of the project that no other program obeys unasked, not through a link."""
    if root is None or not within(path, root) or real(path) != path:
        return False
    return not lower(path.relative_to(root)) & ASK_ALWAYS and path.suffix != ".code-workspace"


def lower(path: Path) -> set[str]:
    """The parts of a path as a file system that takes a for A compares them."""
    return {part.lower() for part in path.parts}


def within(path: Path, root: Path | None) -> bool:
    return root is not None and real(path).is_relative_to(root)


def meant(path: str) -> Path:
    """Where the tools look: `..` is taken off the name before any link is followed."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def real(path: Path) -> Path:
    return Path(os.path.realpath(path))
