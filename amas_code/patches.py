"""Reads a patch, a unified diff or what OpenAI's models write, and says what files come of it."""

import os
import re
from collections.abc import Iterator
from itertools import dropwhile, pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

from amas_code.edits import Signed, encode_like
from amas_code.events import Edit, ToolError
from amas_code.hunks import Hunk, apply
from amas_code.workspace import Workspace, absolute, shown

Line = tuple[int, str]  # its number in the patch, from 1, and the text

NAMED = re.compile(r"\*\*\* (Add|Update|Delete) File: *(.*\S)")
MOVED = re.compile(r"\*\*\* Move to: *(.*\S)")
COUNTS = re.compile(r"@@+ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
HEADER = re.compile(
    r"(diff --git|index|(?:dis)?similarity index|(?:old|new|new file|deleted file) mode"
    r"|rename from|rename to|---|\+\+\+) (.*)"
)
FENCE = re.compile(r"(\s*```\w*\s*)?$")
HEREDOC = re.compile(r".*<<-? *['\"]?(\w+)['\"]?\s*$")


class Section(NamedTuple):
    """What a patch does to one file."""

    old: str | None  # None: the file is new
    new: str | None  # None: the file goes away
    hunks: list[Hunk]
    note: str = ""


def proposed(work: Workspace, patch: str) -> list[Edit]:
    """The edits that a patch comes to, one a file. Raises ToolError if any part of it fails."""
    draft = Draft(work)
    for section in parse(patch):
        draft.carry_out(section)
    return draft.edits()


class Draft:
    """The files as the patch leaves them so far."""

    def __init__(self, work: Workspace):
        self.work = work
        self.before: dict[Path, bytes | None] = {}
        self.now: dict[Path, bytes | None] = {}
        self.known: dict[Path, str] = {}  # as for `edits.replace`
        self.notes: dict[Path, list[str]] = {}

    def carry_out(self, section: Section) -> None:
        if section.old is None:
            file = self.free(section.new or "")
            self.put(file, content(section), "read", section.note)
            return
        file = absolute(section.old)
        data, note = self.content(file), section.note
        if section.hunks:
            done = apply(data, section.hunks, shown(file), self.known[file], ordered=True)
            data, note = done.after, "; ".join(filter(None, [done.note, note]))
        if section.new is None:
            if section.hunks and data:
                raise ToolError(f"{shown(file)} holds more than the patch deletes; read it again.")
            self.put(file, None, "read")
        elif absolute(section.new) != file:
            self.move(file, self.free(section.new), data, note)
        elif section.hunks:
            self.put(file, data, self.known[file], note)
        else:
            raise ToolError(f"The patch gives no lines of {shown(file)} to change.")

    def content(self, file: Path) -> bytes:
        if file not in self.now:
            data = self.work.content(file)
            self.before[file] = self.now[file] = data
            self.known[file] = self.work.familiar(file, data)
        if (now := self.now[file]) is None:
            raise ToolError(f"{shown(file)} is gone, by an earlier part of this patch.")
        return now

    def free(self, path: str) -> Path:
        """Where there is no file yet. Raises ToolError if there is one."""
        file = absolute(path)
        if self.now[file] is not None if file in self.now else os.path.lexists(file):
            raise ToolError(f"{shown(file)} exists; update it, or move or delete it before.")
        return file

    def move(self, file: Path, target: Path, data: bytes, note: str) -> None:
        self.put(target, data, self.known[file], f"moved from {shown(file)}", note)
        if os.access(file, os.X_OK):
            self.notes[target].append("was executable; chmod +x it again")
        self.put(file, None, "read", f"moved to {shown(target)}")

    def put(self, file: Path, data: bytes | None, known: str, *notes: str) -> None:
        self.before.setdefault(file, None)
        self.now[file], self.known[file] = data, known
        self.notes.setdefault(file, []).extend(filter(None, notes))

    def edits(self) -> list[Edit]:
        changed = [file for file, before in self.before.items() if before != self.now[file]]
        if not changed:
            raise ToolError("The patch would change nothing.")
        return [Edit(f, self.before[f], self.now[f], "; ".join(self.notes[f])) for f in changed]


def content(section: Section) -> bytes:
    """The text of a new file."""
    rows = [row for hunk in section.hunks for row in hunk.rows]
    if any(sign != "+" for sign, _ in rows):
        raise ToolError(f"{section.new} is to be new; begin each of its lines with +.")
    text = "".join(f"{line}\n" for _, line in rows)
    ended = not any(hunk.unended for hunk in section.hunks)
    return encode_like(text if ended else text.removesuffix("\n"), None)


def parse(patch: str) -> list[Section]:
    """What a patch says, file by file. Raises ToolError, with the line, for what is no patch."""
    lines = unwrapped(patch)
    read = envelope if any(NAMED.match(line) for _, line in lines) else unified
    if not (sections := list(read(lines))):
        raise ToolError(
            "The patch names no file. Begin with *** Begin Patch and *** Update File: path, or "
            "with --- a/path and +++ b/path; then @@ and the lines."
        )
    return sections


def unwrapped(patch: str) -> list[Line]:
    """The lines without a fence or here-document around them."""
    lines = list(enumerate(patch.replace("\r\n", "\n").split("\n"), 1))
    word = "EOF"
    while lines and (FENCE.match(lines[0][1]) or HEREDOC.match(lines[0][1])):
        if match := HEREDOC.match(lines.pop(0)[1]):
            word = match[1]
    while lines and (FENCE.match(lines[-1][1]) or lines[-1][1].strip() == word):
        lines.pop()
    return lines


def strange(line: Line, wanted: str) -> ToolError:
    return ToolError(f"Line {line[0]} of the patch is {line[1][:80]!r}; {wanted} should be there.")


def envelope(lines: list[Line]) -> Iterator[Section]:
    """The files of a *** Begin Patch."""
    starts = [i for i, (_, line) in enumerate(lines) if NAMED.match(line)]
    for line in lines[: starts[0]]:
        if line[1].strip() not in ("", "*** Begin Patch"):
            raise strange(line, "*** Begin Patch")
    for start, end in pairwise([*starts, len(lines)]):
        verb, path = NAMED.findall(lines[start][1])[0]
        body = until_end(lines[start + 1 : end])
        moved = MOVED.match(body[0][1]) if body and verb == "Update" else None
        if verb == "Delete" and body:
            raise strange(body[0], "nothing of a deleted file")
        old, new = None if verb == "Add" else path, None if verb == "Delete" else path
        hunks = hunks_of(body[1:] if moved else body, " +"[verb == "Add"])
        yield Section(old, moved[1] if moved else new, list(hunks))


def until_end(lines: list[Line]) -> list[Line]:
    """The lines before *** End Patch, without empty ones around them."""
    body = list(takewhile(lambda line: line[1].rstrip() != "*** End Patch", lines))
    for line in lines[len(body) + 1 :]:
        if line[1].strip() not in ("", "*** End Patch", "*** Begin Patch"):
            raise strange(line, "nothing after *** End Patch")
    return trimmed(list(dropwhile(lambda line: not line[1], body)))


def trimmed(lines: list[Line]) -> list[Line]:
    """Without the empty lines at the end, which only set off what follows."""
    full = [i for i, (_, line) in enumerate(lines, 1) if line]
    return lines[: full[-1] if full else 0]


def unified(lines: list[Line]) -> Iterator[Section]:
    """The files of a unified diff."""
    starts = list(file_starts([line for _, line in lines]))
    for line in lines[: starts[0]] if starts else lines:
        if line[1].strip():
            raise strange(line, "*** Begin Patch, or --- a/path and +++ b/path and @@")
    for start, end in pairwise([*starts, len(lines)]):
        head = list(takewhile(lambda line: not line[1].startswith("@@"), lines[start:end]))
        hunks = hunks_of(lines[start + len(head) : end], " ")
        yield headed(head)._replace(hunks=list(hunks))


def file_starts(lines: list[str]) -> Iterator[int]:
    """Where the files of a unified diff begin.

    "--- x" and "+++ y" before an @@ begin one, unless the counts of the @@ before say that just
    these two lines of its hunk are still to come.
    """
    left, in_head = [0, 0], False
    for i, line in enumerate(lines):
        first = [text[:4] for text in lines[i : i + 3]]
        names = first[:2] == ["--- ", "+++ "] and first[2:] and first[2].startswith("@@")
        if line.startswith("@@"):
            counts = COUNTS.match(line)
            left = [int(counts[2] or 1), int(counts[4] or 1)] if counts else [0, 0]
            in_head = False
        elif line.startswith("diff --git ") or (names and not in_head and left != [1, 1]):
            in_head = True
            yield i
        else:
            left = [left[0] - (line[:1] in " -"), left[1] - (line[:1] in " +")]


def headed(lines: list[Line]) -> Section:
    """A file by its head in a unified diff, without its hunks."""
    said: dict[str, str] = {}
    for line in lines:
        header = HEADER.match(line[1])
        if not header and line[1].strip():
            raise strange(line, "@@, or a header as git writes them,")
        said |= {header[1]: header[2].split("\t")[0].rstrip()} if header else {}
    both = re.fullmatch(r"(a/(.+)) (b/\2)", said.get("diff --git", ""))
    names = [said.get("---", both[1] if both else ""), said.get("+++", both[3] if both else "")]
    sides = zip(names, ("a/", "b/"), strict=True)
    if all(name.startswith((side, os.devnull)) for name, side in sides):
        names = [name if name == os.devnull else name[2:] for name in names]
    old, new = said.get("rename from", names[0]), said.get("rename to", names[1])
    if not old or not new or old == new == os.devnull:
        raise strange(lines[0], "the name of a file, as --- a/path and +++ b/path,")
    mode = said.get("new file mode", "") + said.get("new mode", "")
    return Section(
        None if old == os.devnull or "new file mode" in said else old,
        None if new == os.devnull or "deleted file mode" in said else new,
        [],
        "not made executable; chmod +x it" if mode.endswith("755") else "",
    )


def hunks_of(lines: list[Line], empty: str) -> Iterator[Hunk]:
    """The hunks of one file. empty: the sign that a line without any stands for."""
    heads = {i for i, (_, line) in enumerate(lines) if line.startswith("@@")}
    starts = sorted(({0} if lines else set()) | heads - {i + 1 for i in heads})
    for n, (start, end) in enumerate(pairwise([*starts, len(lines)]), 1):
        what = f"Hunk {n} (line {lines[start][0]} of the patch)"
        body = [line for line in lines[start:end] if line[1] != "*** End of File"]
        yield hunk(what, body, empty)._replace(at_end=len(body) < end - start)


def hunk(what: str, lines: list[Line], empty: str) -> Hunk:
    heads = [line for _, line in takewhile(lambda line: line[1].startswith("@@"), lines)]
    counts = [match for head in heads if (match := COUNTS.match(head))]
    stated = (int(counts[0][1]), int(counts[0][2] or 1)) if counts else (0, -1)
    anchors = [head[2:].removeprefix(" ").removesuffix("@@").rstrip() for head in heads]
    anchors = [text for text in anchors if text.strip(" .…") and not counts]
    rows: list[Signed] = []
    unended = ""
    for line in trimmed(lines[len(heads) :]):
        sign, text = line[1][:1] or empty, line[1][1:]
        if sign == "\\" and rows:
            unended += rows[-1][0].replace(" ", "-+")
        elif sign in " -+":
            rows.append((sign, text))
        else:
            raise strange(line, 'a line that begins with " ", "-" or "+"')
    return Hunk(what, rows, stated, anchors, unended=unended)
