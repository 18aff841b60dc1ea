"""Finds the one place an edit belongs to, and changes only that: bytes in, bytes out."""

import codecs
import contextlib
import difflib
import os
import re
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from amas_code import matching
from amas_code.events import Edit, ToolError
from amas_code.matching import Lines, Sought

Span = tuple[int, int, str]  # from, to in the view, and what is to stand there
Cut = tuple[int, int, bytes]  # the same of the file's bytes
Signed = tuple[str, str]  # " ", "-" or "+", and a line without its end

DOUBTS = {
    "unread": "you have not read it; read it first",
    "stale": "it changed since you read it; read it again",
}


class Found(NamedTuple):
    """Where a passage is, and what changes there."""

    spans: list[Span]
    level: str  # "exact", or in plain words what had to be allowed for
    first: int  # line of the file, from 1
    last: int
    places: int = 1


class Applied(NamedTuple):
    """The file after its replacements, and how their places were found."""

    after: bytes
    found: Sequence[Found]
    known: str

    @property
    def level(self) -> str:
        return ", ".join({f.level: 1 for f in self.found if f.level != "exact"}) or "exact"

    @property
    def lines(self) -> tuple[int, int]:
        """First and last line of the first place in the old file, from 1."""
        return self.found[0].first, self.found[0].last

    @property
    def note(self) -> str:
        """What the model should know of it."""
        ranges = [str(f.first) if f.first == f.last else f"{f.first}-{f.last}" for f in self.found]
        note = f"line{'s' * (ranges != [str(self.lines[0])])} {', '.join(ranges)}"
        if self.found[0].places > 1:
            note = f"{self.found[0].places} places, the first at {note}"
        if self.level != "exact":
            note += f"; not an exact match, allowed for: {self.level}"
        return note + "; the file had changed since you read it" * (self.known == "stale")


class Decoded(NamedTuple):
    """A text file's text, line ends as they are, and what it takes to write it back."""

    text: str
    encoding: str
    bom: bytes


class Row(NamedTuple):
    """One line of a diff as it is shown."""

    sign: str  # " ", "-", "+" or "@"
    old: int | None
    new: int | None
    text: str  # without its line end


BOMS = (  # UTF-32 first: its mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)


class Source:
    """A text file under edit: its view with "\\n" line ends, and the way back to its bytes."""

    def __init__(self, data: bytes, name: str):
        self.text, self.encoding, self.bom = decode(data, name)
        self.view = self.text.replace("\r\n", "\n")
        self.crlf = len(self.view) < len(self.text)

    @cached_property
    def lines(self) -> Lines:
        return Lines(self.view)

    @property
    def total(self) -> int:
        """How many lines there are; a last line end opens no further one."""
        return len(self.lines) - (self.view[-1:] in ("", "\n"))

    def cuts(self, spans: Sequence[Span]) -> list[Cut]:
        """The spans as cuts of the bytes; new lines end as those around them do."""
        ends = array("q", crlf_ends(self.text) if self.crlf else ())
        cuts, done, byte = [], 0, len(self.bom)
        for start, end, new in spans:
            a, b = (at + bisect_left(ends, at) for at in (start, end))
            if self.crlf and "\n" in new:
                new = ended_like(self.text[a:b], new, self.text, a)
            first = byte + self.size(done, a)
            done, byte = b, first + self.size(a, b)
            cuts.append((first, byte, new.encode(self.encoding)))
        return cuts

    def size(self, start: int, end: int) -> int:
        """Bytes that a part of the text takes; counted piecemeal, since it may be all of it."""
        if self.encoding == "utf-8" and self.text.isascii():
            return end - start
        pieces = (self.text[at : min(at + 65536, end)] for at in range(start, end, 65536))
        return sum(len(piece.encode(self.encoding)) for piece in pieces)


def replace(
    data: bytes,
    old: str,
    new: str,
    replace_all: bool = False,
    name: str = "the file",
    known: str = "read",
) -> Applied:
    """Put `new` where `old` is. Raises ToolError where that is not one certain place.

    The match is made on a view with "\\n" line ends; only the bytes of the matched span change.
    known: "read" as it is now, or "unread" or "stale": then nothing is allowed for.
    """
    advice = "quote enough lines to make it occur once, or set replace_all"
    sought = Sought("old_str", name, advice, DOUBTS.get(known, ""))
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if not old.strip():
        raise ToolError("old_str is blank; quote the lines to replace.")
    if old == new:
        raise ToolError("old_str and new_str are the same; nothing to change.")
    source = Source(data, name)
    found = exact(source.view, old, new, replace_all, sought)
    if found is None and not sought.doubt:
        found = tolerant(source, old, new, sought)
    if found is None:
        raise missing(source, split(old), sought)
    cuts = source.cuts(found.spans)
    del source  # its texts are as large as the file, and so is what is made now
    return Applied(spliced(data, cuts, name), [found], known)


def spliced(data: bytes, cuts: Sequence[Cut], name: str) -> bytes:
    """The file with the cuts made, and every other byte as it was."""
    pieces: list[bytes | memoryview] = []
    kept, whole = 0, memoryview(data)
    for start, end, new in cuts:
        pieces += [whole[kept:start], new]
        kept = end
    after = b"".join([*pieces, whole[kept:]])
    if after == data:
        raise ToolError(f"This would change nothing in {name}.")
    return after


def exact(view: str, old: str, new: str, replace_all: bool, sought: Sought) -> Found | None:
    """The places of `old` to the letter. Raises ToolError for several where one is wanted."""
    starts = list(occurrences(view, old, len(old) if replace_all else 1))
    if not replace_all or sought.doubt:
        matching.one(line_numbers(view, starts), "exact", sought)
    if not starts:
        return None
    first = view.count("\n", 0, starts[0]) + 1
    spans = [(start, start + len(old), new) for start in starts]
    return Found(spans, "exact", first, first + len(split(old)) - 1, len(spans))


def occurrences(view: str, old: str, step: int = 1) -> Iterator[int]:
    at = view.find(old)
    while at >= 0:
        yield at
        at = view.find(old, at + step)


def line_numbers(view: str, places: Sequence[int]) -> list[int]:
    """The lines of these places, from 0; the places ascend."""
    numbers, line = [], 0
    for before, at in pairwise([0, *places]):
        line += view.count("\n", before, at)
        numbers.append(line)
    return numbers


def tolerant(source: Source, old: str, new: str, sought: Sought) -> Found | None:
    """The one place of `old`, allowing for what models get wrong. Raises ToolError for several."""
    if found := near_lines(source, old, new, sought):
        return found
    if (plain := matching.unnumbered(old)) is not None:
        bare = matching.unnumbered(new)
        bare = new if bare is None else bare
        found = exact(source.view, plain, bare, False, sought)
        found = found or near_lines(source, plain, bare, sought)
        return found and found._replace(level=numbered(found.level))
    if "\\" in old and source.view.count(matching.unescaped(old)) == 1:
        becomes = new if "\n" in new else matching.unescaped(new)
        found = exact(source.view, matching.unescaped(old), becomes, False, sought)
        return found and found._replace(level="escaped characters")
    return None


def numbered(level: str) -> str:
    return "line numbers" if level == "exact" else f"line numbers and {level}"


def split(passage: str) -> list[str]:
    """The lines of a passage; a last line end opens no further one."""
    return passage.removesuffix("\n").split("\n")


def aligned(old: list[str], new: list[str]) -> list[Signed]:
    """Lines that stay, go and come where one passage gives way to another."""
    rows: list[Signed] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if tag == "equal":
            rows += [(" ", line) for line in old[a:b]]
        else:
            rows += [("-", line) for line in old[a:b]] + [("+", line) for line in new[c:d]]
    return rows


class Spot(NamedTuple):
    """The place of whole lines."""

    start: int  # in the view
    first: int  # line, from 0
    block: list[str]  # the lines as the file has them
    level: str


def near_lines(source: Source, old: str, new: str, sought: Sought) -> Found | None:
    """The one place of a passage of whole lines, not to the letter."""
    found = near(source, split(old), sought)
    rows = aligned(split(old), split(new) if new else [])
    return found and changed(source.view, found, rows, sought)


def near(source: Source, old: list[str], sought: Sought) -> Spot | None:
    if (found := matching.place(source.lines, old, sought)) is None:
        return None
    first, level = found
    return Spot(source.lines.starts[first], first, source.lines.block(first, len(old)), level)


def there(source: Source, old: list[str], sought: Sought) -> Spot | None:
    """The one place of whole lines to the letter. Raises ToolError for several."""
    starts = list(lines_at(source.view, "\n".join(old)))
    numbers = line_numbers(source.view, starts)
    if (first := matching.one(numbers, "exact", sought)) is None:
        return None
    return Spot(starts[numbers.index(first)], first, old, "exact")


def lines_at(view: str, passage: str) -> Iterator[int]:
    """Where the passage is as whole lines."""
    if view and not view.endswith("\n"):
        view += "\n"
    if view.startswith(passage + "\n"):
        yield 0
    yield from (at + 1 for at in occurrences(view, f"\n{passage}\n"))


def changed(view: str, found: Spot, rows: Sequence[Signed], sought: Sought) -> Found:
    """What changes where lines go or come. Those that stay are not written, even as they are."""
    old, new = ([line for sign, line in rows if sign != gone] for gone in "+-")
    indent = matching.indenter(found.block, old, new, sought)
    at, block = found.start, iter(found.block)
    spans: list[Span] = []
    for stays, run in groupby(rows, lambda row: row[0] == " "):
        signed = list(run)
        size = sum(len(next(block)) + 1 for sign, _ in signed if sign != "+")
        if not stays:
            comes = [indent(line) for sign, line in signed if sign == "+"]
            bare = at < len(view) < at + size and new and not comes  # what is left ends as it did
            spans.append((at - 1, len(view), "") if bare else span(view, at, size, comes))
        at += size
    return Found(spans, found.level, found.first + 1, found.first + len(found.block))


def span(view: str, at: int, size: int, new: list[str]) -> Span:
    """What puts these lines where so many characters of whole lines are.

    The file's last line end survives, and so does its lack: a place may be one line beyond it.
    """
    text, end = "\n".join(new), view[-1:] == "\n"
    if at > len(view):
        return len(view), len(view), "\n" + text + "\n" * end
    if size and new:
        return at, at + size - 1, text + "\n" * (end and at == len(view))
    return at, min(at + size, len(view)), text + "\n" * bool(new)


def missing(source: Source, old: list[str], sought: Sought) -> ToolError:
    near = matching.nearest(source.lines, old)
    block = f" The nearest lines are (tabs shown as →):\n{near}" if near else " read_file shows it."
    where = f"exactly so, and {sought.doubt}" if sought.doubt else "anywhere"
    return ToolError(f"{sought.what} does not occur in {sought.file} {where}.{block}")


def crlf_ends(text: str) -> Iterator[int]:
    """Where the view has a line end that is longer in the text."""
    return (match.start() - n for n, match in enumerate(re.finditer("\r\n", text)))


def ended_like(old: str, new: str, text: str, at: int) -> str:
    """The new text with the line ends of the old one, line by line where lines are the same."""
    own = re.findall("\r?\n", old)
    near = at if old or not at else at - 1  # what comes between lines ends as the one before it
    usual = max(("\n", "\r\n"), key=own.count) if own else end_near(text, near)
    before, after = old.replace("\r\n", "\n").split("\n"), new.split("\n")
    chosen = [usual] * (len(after) - 1)
    for block in difflib.SequenceMatcher(None, before, after, False).get_matching_blocks():
        for offset in range(block.size):
            if block.a + offset < len(own) and block.b + offset < len(chosen):
                chosen[block.b + offset] = own[block.a + offset]
    return "".join(line + end for line, end in zip(after, [*chosen, ""], strict=True))


def end_near(text: str, at: int) -> str:
    """How the line at this place ends, or else the one before it."""
    there = text.find("\n", at)
    there = there if there >= 0 else text.rfind("\n", 0, at)
    return "\r\n" if there and text[there - 1] == "\r" else "\n"


def decode(data: bytes, name: str) -> Decoded:
    """Read bytes as text. Raises ToolError for what is not text."""
    bom, encoding = next((pair for pair in BOMS if data.startswith(pair[0])), (b"", "utf-8"))
    try:
        text = data[len(bom) :].decode(encoding)
    except UnicodeDecodeError as error:
        raise ToolError(f"{name} is not valid {encoding.upper()}; left untouched.") from error
    if "\0" in text:
        raise ToolError(f"{name} is a binary file; left untouched.")
    return Decoded(text, encoding, bom)


def encode_like(text: str, data: bytes | None) -> bytes:
    """Encode a file's whole new text as the old one was: encoding, BOM, CRLF."""
    if not data:
        return text.encode()
    like = decode(data, "the file")
    ends = like.text.count("\n")
    if "\r\n" not in text and ends and like.text.count("\r\n") == ends:
        text = text.replace("\n", "\r\n")
    return _encode(text, like)


def _encode(text: str, like: Decoded) -> bytes:
    return like.bom + text.encode(like.encoding)


def write(path: Path, data: bytes | None, durable: bool = True) -> None:
    """Write a file whole or not at all; None deletes it. `durable`: it has reached the disk."""
    if path.is_symlink():
        raise ToolError(f"{path} is a symbolic link; edit the file it points to.")
    if data is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = os.umask(0)
    os.umask(mask)
    mode = path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~mask
    handle, temporary = tempfile.mkstemp(prefix=".amas-", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def unified(edit: Edit, context: int = 3) -> list[Row]:
    """An edit as the rows of a diff, with line numbers; a "@" row stands before each part."""
    try:
        skip, old, new = _differing(_plain(edit.before), _plain(edit.after), context)
    except ToolError:
        sizes = len(edit.before or b""), len(edit.after or b"")
        return [Row("@", None, None, f"binary, {sizes[0]} → {sizes[1]} bytes")]
    rows: list[Row] = []
    for group in difflib.SequenceMatcher(None, old, new, len(new) > 2000).get_grouped_opcodes(
        context
    ):
        if rows or group[0][1] + skip:
            rows.append(Row("@", group[0][1] + skip + 1, group[0][3] + skip + 1, ""))
        for tag, a, b, c, d in group:
            if tag == "equal":
                rows += [
                    Row(" ", skip + a + i + 1, skip + c + i + 1, old[a + i]) for i in range(b - a)
                ]
                continue
            rows += [Row("-", skip + i + 1, None, old[i]) for i in range(a, b)]
            rows += [Row("+", None, skip + i + 1, new[i]) for i in range(c, d)]
    return rows


def _differing(old: bytes, new: bytes, context: int) -> tuple[int, list[str], list[str]]:
    """How many same lines come first, and both sides from there to the last difference.

    The lines around are left out but for the context: of a file of 10 MB most is not even split.
    """
    a, b = memoryview(old), memoryview(new)
    start = old.rfind(b"\n", 0, _alike(a, b)) + 1
    for _ in range(context):
        start = old.rfind(b"\n", 0, max(start - 1, 0)) + 1
    tail = _alike(a[start:][::-1], b[start:][::-1])
    for _ in range(context + 1):  # the first may be cut
        at = old.find(b"\n", len(old) - tail)
        tail = len(old) - at - 1 if at >= 0 else 0
    sides = [_lines(data[start : len(data) - tail]) for data in (old, new)]
    return old.count(b"\n", 0, start), sides[0], sides[1]


def _alike(old: memoryview, new: memoryview) -> int:
    """How many bytes they begin with alike."""
    at, most = 0, min(len(old), len(new))
    for step in (1 << n for n in range(20, -1, -1)):
        while at + step <= most and old[at : at + step].tobytes() == new[at : at + step].tobytes():
            at += step
    return at


def _plain(data: bytes | None) -> bytes:
    """The text of a file in UTF-8 without a mark; as it is, if it has none."""
    marked = data and any(data.startswith(mark) for mark, _ in BOMS)
    return decode(data or b"", "").text.encode() if marked else data or b""


def _lines(data: bytes) -> list[str]:
    """The lines of a file for a diff; line ends that are not plain are spelled out."""
    if not data:
        return []
    text = decode(data, "").text
    plain = text.endswith("\n")
    lines = [line[:-1] + "␍" if line.endswith("\r") else line for line in text.split("\n")]
    return lines[:-1] if plain else [*lines[:-1], f"{lines[-1]} (no newline at the end)"]
