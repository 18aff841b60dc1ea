"""Finds the one place an edit belongs to, and changes only that: bytes in, bytes out."""

import bisect
import codecs
import contextlib
import difflib
import os
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from amas_code import matching
from amas_code.events import Edit, ToolError

Span = tuple[int, int, str]  # from, to in the view, and what is to stand there


class Applied(NamedTuple):
    """The file after a replacement, and how the place was found."""

    after: bytes
    level: str  # "exact", or in plain words what had to be allowed for
    lines: tuple[int, int]  # first and last line of the match in the old file, from 1
    places: int  # changed


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


def replace(
    data: bytes,
    old: str,
    new: str,
    replace_all: bool = False,
    name: str = "the file",
    exact_only: bool = False,
) -> Applied:
    """Put `new` where `old` is. Raises ToolError where that is not one certain place.

    The match is made on a view with "\\n" line ends; only the bytes of the matched span change.
    exact_only: the model did not read the file, so nothing is allowed for.
    """
    decoded = decode(data, name)
    old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if not old.strip():
        raise ToolError("old_str is blank; quote the lines to replace.")
    if old == new:
        raise ToolError("old_str and new_str are the same; nothing to change.")
    view = decoded.text.replace("\r\n", "\n")
    found = exact(view, old, new, replace_all, name)
    if found is None and exact_only:
        raise missing(view, old, name, "exactly so, and you have not read it; read it first")
    found = found or tolerant(view, old, new, name)
    if found is None:
        raise missing(view, old, name, "anywhere")
    after = _encode(written(decoded.text, view, found.spans), decoded)
    if after == data:
        raise ToolError(f"This would change nothing in {name}.")
    first = view.count("\n", 0, found.spans[0][0]) + 1
    return Applied(after, found.level, (first, first + found.lines - 1), len(found.spans))


class Found(NamedTuple):
    """Where a passage is."""

    spans: list[Span]
    level: str
    lines: int  # of one span


def exact(view: str, old: str, new: str, replace_all: bool, name: str) -> Found | None:
    """The places of `old` to the letter. Raises ToolError for several where one is wanted."""
    starts = []
    at = view.find(old)
    while at >= 0:
        starts.append(at)
        at = view.find(old, at + (len(old) if replace_all else 1))
    if len(starts) > 1 and not replace_all:
        numbers = [view.count("\n", 0, start) for start in starts]
        raise ToolError(f"{matching.several(numbers, name)}.")
    spans = [(start, start + len(old), new) for start in starts]
    return Found(spans, "exact", len(split(old))) if spans else None


def tolerant(view: str, old: str, new: str, name: str) -> Found | None:
    """The one place of `old`, allowing for what models get wrong. Raises ToolError for several."""
    if found := by_lines(view, old, new, name):
        return found
    if (plain := matching.unnumbered(old)) is not None:
        bare = matching.unnumbered(new)
        found = either(view, plain, new if bare is None else bare, name)
        level = (
            f"line numbers and {found.level}"
            if found and found.level != "exact"
            else "line numbers"
        )
        return found and found._replace(level=level)
    if "\\" in old and view.count(matching.unescaped(old)) == 1:
        becomes = new if "\n" in new else matching.unescaped(new)
        found = exact(view, matching.unescaped(old), becomes, False, name)
        return found and found._replace(level="escaped characters")
    return None


def either(view: str, old: str, new: str, name: str) -> Found | None:
    return exact(view, old, new, False, name) or by_lines(view, old, new, name)


def by_lines(view: str, old: str, new: str, name: str) -> Found | None:
    """The place of whole lines."""
    lines, wanted = view.split("\n"), split(old)
    found = matching.place(lines, wanted, split(new) if new else [], name)
    if found is None:
        return None
    start = sum(len(line) + 1 for line in lines[: found.first])
    end = start + sum(len(line) + 1 for line in lines[found.first : found.first + len(wanted)]) - 1
    if not found.lines and end < len(view):
        end += 1  # lines that go take their line end with them
    return Found([(start, end, "\n".join(found.lines))], found.level, len(wanted))


def split(passage: str) -> list[str]:
    """The lines of a passage; a last line end opens no further one."""
    return passage.removesuffix("\n").split("\n")


def missing(view: str, old: str, name: str, where: str) -> ToolError:
    near = matching.nearest(view, split(old))
    block = f" The nearest lines are (tabs shown as →):\n{near}" if near else " read_file shows it."
    return ToolError(f"old_str does not occur in {name} {where}.{block}")


def written(text: str, view: str, spans: list[Span]) -> str:
    """The text with the spans of its view replaced; new lines end as those around them do."""
    removed = [m.start() - n for n, m in enumerate(re.finditer("\r\n", text))]
    out, done = [], 0
    for start, end, new in spans:
        a, b = (at + bisect.bisect_left(removed, at) for at in (start, end))
        out += [text[done:a], ended_like(text[a:b], new, text, a)]
        done = b
    return "".join([*out, text[done:]])


def ended_like(old: str, new: str, text: str, at: int) -> str:
    """The new text with the line ends of the old one, line by line where lines are the same."""
    if "\r\n" not in text:
        return new
    ends = (
        re.findall("\r?\n", old)
        or re.findall("\r?\n", text[at:])
        or re.findall("\r?\n", text[:at])[-1:]
    )
    usual = max(("\n", "\r\n"), key=ends.count) if "\n" in old else ends[0]
    before, after = old.replace("\r\n", "\n").split("\n"), new.split("\n")
    own = re.findall("\r?\n", old)
    chosen = [usual] * (len(after) - 1)
    for block in difflib.SequenceMatcher(None, before, after, False).get_matching_blocks():
        for offset in range(block.size):
            if block.a + offset < len(own) and block.b + offset < len(chosen):
                chosen[block.b + offset] = own[block.a + offset]
    return "".join(line + end for line, end in zip(after, [*chosen, ""], strict=True))


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
        old, new = (_lines(data) for data in (edit.before, edit.after))
    except ToolError:
        sizes = len(edit.before or b""), len(edit.after or b"")
        return [Row("@", None, None, f"binary, {sizes[0]} → {sizes[1]} bytes")]
    same = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )
    skip = max(same - context, 0)  # what is the same before and after need not be compared
    most = min(len(old), len(new)) - same
    tail = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    keep = max(tail - context, 0)
    a_part, b_part = old[skip : len(old) - keep], new[skip : len(new) - keep]
    rows: list[Row] = []
    for group in difflib.SequenceMatcher(
        None, a_part, b_part, len(b_part) > 2000
    ).get_grouped_opcodes(context):
        if rows or group[0][1] + skip:
            rows.append(Row("@", group[0][1] + skip + 1, group[0][3] + skip + 1, ""))
        for tag, a, b, c, d in group:
            if tag == "equal":
                rows += [
                    Row(" ", skip + a + i + 1, skip + c + i + 1, a_part[a + i])
                    for i in range(b - a)
                ]
                continue
            rows += [Row("-", skip + i + 1, None, a_part[i]) for i in range(a, b)]
            rows += [Row("+", None, skip + i + 1, b_part[i]) for i in range(c, d)]
    return rows


def _lines(data: bytes | None) -> list[str]:
    """The lines of a file for a diff; line ends that are not plain are spelled out."""
    if not data:
        return []
    text = decode(data, "").text
    plain = text.endswith("\n")
    lines = [line[:-1] + "␍" if line.endswith("\r") else line for line in text.split("\n")]
    return lines[:-1] if plain else [*lines[:-1], f"{lines[-1]} (no newline at the end)"]
