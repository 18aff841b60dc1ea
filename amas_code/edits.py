"""Finds the one place an edit belongs to, and changes only that: bytes in, bytes out."""

import codecs
import contextlib
import difflib
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from amas_code.events import Edit, ToolError


class Applied(NamedTuple):
    """The file after a replacement, and how the place was found."""

    after: bytes
    level: str  # "exact", or in plain words what had to be allowed for
    lines: tuple[int, int]  # first and last line of the match in the old file, from 1
    count: int  # places changed


class Decoded(NamedTuple):
    """A text file's text, line ends as they are, and what it takes to write it back."""

    text: str
    encoding: str
    bom: bytes


class Row(NamedTuple):
    """One line of a diff as it is shown."""

    sign: str  # " ", "-", "+", "@" or "\\"
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
    """Put `new` where `old` is. Raises ToolError where that is not one certain place."""
    decoded = decode(data, name)
    if not old.strip():
        raise ToolError("old_str is blank; quote the lines to replace.")
    if old == new:
        raise ToolError("old_str and new_str are the same; nothing to change.")
    text = decoded.text
    if "\r\n" in text and "\r\n" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    count = text.count(old)
    if not count:
        raise ToolError(f"old_str does not occur in {name}; read it and quote it exactly.")
    if count > 1 and not replace_all:
        raise ToolError(f"old_str occurs {count} times in {name}; quote more lines.")
    first = text.count("\n", 0, text.index(old)) + 1
    lines = first, first + old.rstrip("\n").count("\n")
    return Applied(_encode(text.replace(old, new), decoded), "exact", lines, count)


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


def write(path: Path, data: bytes | None) -> None:
    """Write a file whole or not at all; None deletes it."""
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
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def unified(edit: Edit, context: int = 3) -> list[Row]:
    """An edit as the rows of a diff, with line numbers."""
    try:
        old = decode(edit.before or b"", "").text.split("\n")
        new = decode(edit.after or b"", "").text.split("\n")
    except ToolError:
        sizes = len(edit.before or b""), len(edit.after or b"")
        return [Row("@", None, None, f"binary, {sizes[0]} → {sizes[1]} bytes")]
    rows = []
    for group in difflib.SequenceMatcher(None, old, new, False).get_grouped_opcodes(context):
        rows.append(Row("@", group[0][1] + 1, group[0][3] + 1, ""))
        for tag, a, b, c, d in group:
            if tag == "equal":
                rows += [Row(" ", a + i + 1, c + i + 1, old[a + i]) for i in range(b - a)]
            else:
                rows += [Row("-", i + 1, None, old[i]) for i in range(a, b)]
                rows += [Row("+", None, i + 1, new[i]) for i in range(c, d)]
    return rows
