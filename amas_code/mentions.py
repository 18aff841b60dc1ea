"""Files named with @ in a prompt: finding them while one types, putting them into the message."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple

# --- the files of the project -----------------------------------------------------------------


def project_files(root: Path, ignore: Sequence[str] = ()) -> list[str]:
    """The files below a directory that git tracks or would not ignore, as posix relative paths.

    Without git: all but hidden directories and SKIPPED ones. `ignore` holds patterns as in a
    .gitignore, simplified: one without a slash matches any part of a path, one with a slash the
    path from root on; either hides all below; `*` matches slashes too; there is no `!`.
    A submodule is one path, what lies in another untracked repository is left out, and a name
    that is not UTF-8 is shown with replacement characters. No more than LIMIT paths.
    """
    paths = _git_files(root)
    if paths is None:
        paths = _walked_files(root)
    if ignore:
        ignored = _ignored_by(ignore)
        paths = (path for path in paths if not ignored(path))
    return list(islice(paths, LIMIT))


def _git_files(root: Path) -> Iterator[str] | None:
    """What git lists, less what is not there: deleted or not checked out; None: no git here."""
    # fsmonitor is a program that the repository could name; a session of its own keeps Ctrl-C off.
    command = "git -c core.fsmonitor=false ls-files -z -t --cached --deleted --others"
    try:
        done = subprocess.run(
            [*command.split(), "--exclude-standard"],
            cwd=root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            start_new_session=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    entries = done.stdout.decode(errors="replace").split("\0")
    deleted = {entry[2:] for entry in entries if entry[:1] == "R"}
    skipped = {entry[2:] for entry in entries if entry[:1] == "S"}  # most of them are not there
    absent = deleted | {path for path in skipped if not os.path.lexists(root / path)}
    listed = dict.fromkeys(entry[2:] for entry in entries if entry and not entry.endswith("/"))
    return (path for path in listed if path not in absent)


def _walked_files(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name[0] != "." and name not in SKIPPED)
        for name in sorted(names):
            yield _shown(Path(folder, name).relative_to(root).as_posix())


def _ignored_by(patterns: Sequence[str]) -> Callable[[str], bool]:
    anywhere = [each.strip("/") for each in patterns if "/" not in each.rstrip("/")]
    from_root = [each.strip("/") for each in patterns if "/" in each.rstrip("/")]

    @cache
    def ignored(path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return (
            any(fnmatchcase(name, pattern) for pattern in anywhere)
            or any(fnmatchcase(path, pattern) for pattern in from_root)
            or bool(folder and ignored(folder))
        )

    return ignored


def _shown(name: str) -> str:
    """A file name as text that can be sent and stored, whatever bytes it has."""
    return os.fsencode(name).decode(errors="replace")


# --- finding one while typing -----------------------------------------------------------------


def index(files: Sequence[str]) -> str:
    """The files and their directories as one text for `best`, shortest first: make it once."""
    folders = set()
    for file in files:
        folder = file.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    paths = [path for path in (*files, *(f"{each}/" for each in folders)) if "\n" not in path]
    return "".join(f"\n/{path}" for path in sorted(sorted(paths), key=len)) + "\n"


def best(files: Sequence[str] | str, typed: str, limit: int = 20) -> list[str]:
    """The paths, directories with a final slash, that fit what was typed, best first.

    `files` is what `index` made, or a list to index now. Best are names that begin with it, then
    names that have it in them, then paths, then paths with its letters in this order; shorter
    first in each. Upper and lower case are one, unless an upper case letter was typed.
    """
    text = files if isinstance(files, str) else index(files)
    # Of all letters this one alone is longer in lower case, which would shift all after it.
    searched = text.replace("İ", "i").lower() if typed == typed.lower() else text
    found: dict[int, str] = {}
    for start in _places(searched, typed.lstrip('"')):
        if len(found) >= limit:
            break
        found[start] = text[start : text.index("\n", start)]
    return list(found.values())


def _places(text: str, typed: str) -> Iterator[int]:
    """Where in the index the fitting paths begin, best first, some more than once."""
    plain = re.escape(typed)
    in_order = "".join(f"[^{letter}\n]*{letter}" for letter in map(re.escape, typed[1:]))
    # Each pattern begins with plain text, which re finds as fast as str.find does.
    begins, has = f"/{plain}[^/\n]*/?$", f"{plain}[^/\n]*/?$"
    looser = (has, f"{plain}[^\n]*", re.escape(typed[:1]) + in_order)
    for pattern in (begins, *looser) if typed else (begins,):
        for match in re.finditer(pattern, text, re.MULTILINE):
            yield text.rfind("\n", 0, match.start() + 1) + 2


def typed_mention(before_cursor: str) -> str | None:
    """What stands between an @ and the cursor, an opening quote included; None: no mention.

    An @ begins a mention at the start of the text or after a blank, so user@host is none.
    """
    match = re.search(r'(?<!\S)@("[^"\n]*|[^\s"]*)\Z', before_cursor)
    return match[1] if match else None


def mention(path: str) -> str:
    """The path as one writes it behind an @."""
    return f'"{path}"' if re.search(r"\s", path) else path


# --- putting them into the message ------------------------------------------------------------


class Mention(NamedTuple):
    """What one @ in a prompt names."""

    name: str
    lines: str  # "", "10" or "10-40"
    sure: bool  # nothing but a file can be meant: the user wants to know if there is none


def expand(prompt: str, cwd: Path, budget: int = 50_000) -> tuple[str, list[str]]:
    """The prompt as typed, followed by the files it mentions; and notices for the user.

    Forms: @file, @file:10, @file:10-40, @directory, @"name with blanks":10-40. Lines come
    numbered as `read_file` does it, so no line of a file can pass for a heading. All files
    together bring `budget` characters. Any path will do, in the project or not: the user typed it.
    """
    parts, notices = [prompt], []
    for each in dict.fromkeys(_mentions(prompt, cwd)):
        try:
            block, notice = _block(each, _path(cwd, each.name), budget)
        except OSError as error:
            block, notice = "", f"left out: {error.strerror}"
        if block:
            parts.append(block)
            budget -= len(block)
        if notice:
            notices.append(f"@{each.name}: {notice}")
    return "\n\n".join(parts), notices


def _path(cwd: Path, name: str) -> Path:
    return Path(cwd, os.path.expanduser(name))


def _mentions(prompt: str, cwd: Path) -> Iterator[Mention]:
    for match in re.finditer(MENTION, prompt):
        quoted, lines, bare = match.groups("")
        name = quoted or bare
        if bare and not os.path.exists(_path(cwd, bare)):
            name, lines = re.findall(BARE, bare)[0]
        if name:
            yield Mention(name, lines, bool(quoted or re.fullmatch(PLAINLY_A_PATH, name)))


def _block(mention: Mention, path: Path, budget: int) -> tuple[str, str]:
    """What the model reads of it, and what the user should know of it; either may be empty."""
    if os.path.isdir(path):
        lines = sorted(f"  {_shown(each.name)}{'/' * each.is_dir()}" for each in os.scandir(path))
        return _fenced(f"{mention.name} (directory, {len(lines)} entries)", lines, budget)
    if not os.path.isfile(path):
        return "", "no such file, left as it is" if mention.sure else ""
    if os.path.getsize(path) > LARGEST:
        return "", f"left out: larger than {LARGEST // 1_000_000} MB"
    data = path.read_bytes()
    if b"\0" in data[:8192]:
        return "", "left out: a binary file"
    return _excerpt(mention, data.decode("utf-8-sig", errors="replace"), budget)


def _excerpt(mention: Mention, text: str, budget: int) -> tuple[str, str]:
    lines = text.removesuffix("\n").split("\n") if text else []
    start, _, end = mention.lines.partition("-")
    first, last = max(1, int(start or 1)), min(len(lines), int(end or start or len(lines)))
    if mention.lines and first > last:
        return "", f"left out: it has {len(lines)} lines, none of them {mention.lines}"
    numbered = [f"{n:>6}\t{lines[n - 1].removesuffix(chr(13))}" for n in range(first, last + 1)]
    return _fenced(f"{mention.name} (lines {first}-{last} of {len(lines)})", numbered, budget)


def _fenced(heading: str, lines: list[str], budget: int) -> tuple[str, str]:
    """A block of as many whole lines as the budget holds, and a notice if those are not all."""
    if budget <= 0:
        return "", "left out: the files before it are as much as one message takes"
    whole = sum(end <= budget for end in accumulate(len(line) + 1 for line in lines))
    shown = [f"--- {heading} ---", *lines[:whole]]
    if whole == len(lines):
        return "\n".join(shown), ""
    if not whole:
        shown.append(lines[0][:budget])
    shown.append(f"… cut after {whole} of {len(lines)} lines; read_file shows the rest …")
    return "\n".join(shown), f"cut after {whole} of {len(lines)} lines"


LIMIT = 200_000  # paths
LARGEST = 10_000_000  # bytes of a file that we open to take lines from
SKIPPED = ("node_modules", "__pycache__")
MENTION = r'(?<!\S)@(?:"([^"\n]+)"(?::(\d{1,9}(?:-\d{1,9})?))?|([^\s"]{1,4096}))'
BARE = r"^(.*?)(?::(\d{1,9}(?:-\d{1,9})?))?[.,;:!?)\]}>']*$"  # name, lines, punctuation after it
PLAINLY_A_PATH = r"(~|\.\.?)?/[^()<>{}=,@]*|[^()<>{}=,@]*(/|\.\w{1,4})"
