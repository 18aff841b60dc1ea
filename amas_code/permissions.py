"""Decides what may happen unasked. One pure function, and the wrapper that keeps to it."""

import os
from pathlib import Path
from typing import NamedTuple

from amas_code.events import Action

HARMLESS_RUNS = ("shell_output", "shell_stop")  # they touch only what a question allowed to start
ASK_ALWAYS = (
    ".amas",
    ".envrc",
    ".vscode",
    ".idea",
    ".github",
    ".gitlab-ci.yml",
    "AGENTS.md",
    "CLAUDE.md",
)


class Rules(NamedTuple):
    """What `decide` goes by."""

    mode: str  # "ask", "auto-edit" or "plan"
    allow: tuple[str, ...]  # commands that may run as they stand here
    root: Path | None  # the project; None: there is none, so everything asks


def decide(action: Action, rules: Rules) -> str:
    """ "allow", "ask", or the reason why not.

    Not covered yet: what a command does. Each asks, unless it stands in `allow` to the letter.
    """
    if action.kind == "edit":
        return decide_edit(action, rules)
    if action.kind == "run":
        if action.name in HARMLESS_RUNS:
            return "allow"
        if rules.mode == "plan":
            return "plan mode only reads; describe what you would run"
        return "allow" if action.args.get("command") in rules.allow else "ask"
    path = action.args.get("path")
    return "allow" if path is None or within(Path(os.path.expanduser(path)), rules.root) else "ask"


def decide_edit(action: Action, rules: Rules) -> str:
    if any(".git" in real(edit.path).parts for edit in action.edits):
        return "files under .git are never edited"
    if rules.mode == "plan":
        return "plan mode only reads; describe the change instead"
    plain = all(ordinary(edit.path, rules.root) and edit.after is not None for edit in action.edits)
    return "allow" if rules.mode == "auto-edit" and plain else "ask"


def ordinary(path: Path, root: Path | None) -> bool:
    """A file of the project that nothing else obeys (settings, rules, tasks), not through a link."""
    if root is None or not within(path, root) or real(path) != path:
        return False
    return not any(part in ASK_ALWAYS for part in path.relative_to(root).parts)


def within(path: Path, root: Path | None) -> bool:
    return root is not None and real(path).is_relative_to(root)


def real(path: Path) -> Path:
    return Path(os.path.realpath(path))
