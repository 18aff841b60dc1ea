"""Finds files by name and lines by pattern, leaving out what git ignores."""

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from amas_code.events import ToolError
from amas_code.mentions import project_files

MOST_FILES, MOST_HITS, MOST_CHARS = 300, 200, 300


def under(directory: Path, root: Path, files: list[str]) -> list[str]:
    """The project's files in a directory, relative to it; outside the project what is on disk."""
    if directory == root:
        return files
    if directory.is_relative_to(root):
        head = directory.relative_to(root).as_posix() + "/"
        inside = [name[len(head) :] for name in files if name.startswith(head)]
        if inside:
            return inside
    return project_files(directory)


def tree(directory: Path, root: Path, files: list[str], depth: int) -> str:
    """The directory's files down to a depth; deeper directories as a count."""
    shown: Counter[str] = Counter()
    for name in under(directory, root, files):
        parts = name.split("/")
        shown["/".join(parts[:depth]) + ("/" if len(parts) > depth else "")] += 1
    lines = [f"{n} ({count} files)" if n.endswith("/") else n for n, count in sorted(shown.items())]
    return cut(lines, MOST_FILES, "entries") or "(no files)"


def globbed(root: Path, files: list[str], pattern: str) -> str:
    """Files whose path matches, newest first."""
    wanted = re.compile(glob_regex(pattern.removeprefix("./")))
    found = [name for name in files if wanted.fullmatch(name)]
    return (
        cut(sorted(found, key=lambda name: age(root / name)), MOST_FILES, "files")
        or "(no file matches)"
    )


def age(path: Path) -> float:
    try:
        return -path.lstat().st_mtime
    except OSError:
        return 0.0


def glob_regex(pattern: str) -> str:
    """A shell pattern as a regular expression: `**` crosses directories, `{a,b}` chooses."""
    if not pattern:
        return ""
    out = ""
    for part in re.findall(r"\*\*/|\*\*|\[[^\]]+\]|\{[^{}]*\}|.", pattern, re.DOTALL):
        if part == "**/":
            out += "(?:.*/)?"
        elif part in ("**", "*", "?"):
            out += {"**": ".*", "*": "[^/]*", "?": "[^/]"}[part]
        elif part[0] == "[" and len(part) > 2:
            out += "[" + part[1:-1].replace("\\", "\\\\").replace("!", "^", part[1] == "!") + "]"
        elif part[0] == "{" and len(part) > 1:
            out += "(?:" + "|".join(glob_regex(choice) for choice in part[1:-1].split(",")) + ")"
        else:
            out += re.escape(part)
    return out


def searched(root: Path, files: list[str], pattern: str, path: Path, include: str) -> str:
    """Lines that match, as path:line:text."""
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ToolError(
            f"Not a regular expression: {error}. Escape what is meant literally."
        ) from None
    if not path.exists():
        raise ToolError(f"There is no {path}.")
    names = (
        re.compile(glob_regex(include if "/" in include else f"**/{include}")) if include else None
    )
    inside = [path.name] if path.is_file() else under(path, root, files)
    base = path.parent if path.is_file() else path
    chosen = [
        name
        for name in inside
        if (names is None or names.fullmatch(name))
        and (base / name).is_file()
        and stays(base / name, base)
    ]
    program = shutil.which("rg")
    lines = ripgrep(program, base, chosen, pattern) if program else None
    if lines is None:
        lines = scan(base, chosen, wanted)
    prefix = "" if base == Path.cwd() else os.path.relpath(base) + "/"
    return cut([prefix + line for line in lines], MOST_HITS, "lines") or "(nothing found)"


def stays(path: Path, base: Path) -> bool:
    """No link leads out of where the search was allowed."""
    return os.path.realpath(path).startswith(f"{os.path.realpath(base)}/")


def ripgrep(program: str, base: Path, names: list[str], pattern: str) -> list[str] | None:
    """The same by ripgrep; None where it does not understand the pattern or cannot run."""
    out: list[str] = []
    for start in range(0, len(names), 2000):  # a command line holds only so much
        command = [program, "--no-config", "-nH0", "--no-heading", "--color=never", "--sort=path"]
        command += [f"-m{MOST_HITS + 1}", f"-M{MOST_CHARS}", "--max-columns-preview"]
        command += ["--no-ignore", "--hidden", "-e", pattern, "--", *names[start : start + 2000]]
        done = subprocess.run(command, cwd=base, stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode > 1:
            return None
        for line in done.stdout.decode(errors="replace").split("\n")[:-1]:
            if "\0" in line:  # else a remark of ripgrep's own
                out.append(line.replace("\0", ":", 1)[: MOST_CHARS + 200])
        if len(out) > MOST_HITS:
            break
    return out


def scan(base: Path, names: list[str], wanted: re.Pattern) -> list[str]:
    out: list[str] = []
    for name in names:
        try:
            data = (base / name).read_bytes()
        except OSError:
            continue
        if b"\0" in data[:8192]:
            continue
        for number, line in enumerate(data.decode(errors="replace").split("\n"), 1):
            if wanted.search(line):
                out.append(f"{name}:{number}:{line[:MOST_CHARS].rstrip()}")
        if len(out) > MOST_HITS:
            break
    return out


def cut(lines: list[str], most: int, what: str) -> str:
    if len(lines) > most:
        lines = [*lines[:most], f"(more than {most} {what}; narrow it down)"]
    return "\n".join(lines)
