"""Reads SEARCH/REPLACE blocks, which some models write where edit_file wants two passages."""

import re
from pathlib import Path

from amas_code.edits import Source, aligned
from amas_code.events import ToolError
from amas_code.hunks import Hunk
from amas_code.workspace import absolute, shown

OPENING = re.compile(r"^<{5,9} SEARCH\s*$", re.MULTILINE)
DIVIDER = re.compile(r"={5,9}\s*$")
CLOSING = re.compile(r">{5,9} REPLACE\s*$")
FENCE = re.compile(r"\s*(```\w*\s*)?$")


def blocks(file: Path, data: bytes, old: str, new: str) -> list[Hunk]:
    """The SEARCH/REPLACE blocks that one of the two passages consists of, the other being blank.

    None if there are no such, or if the file itself holds that very text. Raises ToolError for
    broken ones, and for those meant for another file.
    """
    text = (new if not old.strip() else old if not new.strip() else "").replace("\r\n", "\n")
    if text.lstrip().startswith("*** Begin Patch"):
        raise ToolError("This is a patch; give it to apply_patch.")
    if not OPENING.search(text) or (old.strip() and text in Source(data, shown(file)).view):
        return []
    lines, hunks, at = text.split("\n"), list[Hunk](), 0
    while at < len(lines):
        if OPENING.match(lines[at]):
            what = f"Block {len(hunks) + 1} (line {at + 1})"
            size = length(lines[at:], what)
            hunks.append(block(lines[at : at + size], what))
            at += size
        elif not FENCE.match(lines[at]) and absolute(lines[at].strip(" #*`:")) != file:
            raise ToolError(
                f"Line {at + 1} is {lines[at][:80]!r}, where only blocks for {shown(file)} belong, "
                "each from <<<<<<< SEARCH over ======= to >>>>>>> REPLACE."
            )
        at += 1
    return hunks


def length(lines: list[str], what: str) -> int:
    """How many lines come before the block's last one."""
    for i, line in enumerate(lines[1:], 1):
        if CLOSING.match(line):
            return i
        if OPENING.match(line):
            break
    raise ToolError(f"{what} does not end; >>>>>>> REPLACE belongs after its new lines.")


def block(lines: list[str], what: str) -> Hunk:
    """A block, without its last line. Its divider has as many signs as its head, if one has."""
    dividers = [i for i, line in enumerate(lines) if DIVIDER.match(line)]
    alike = [i for i in dividers if lines[i].count("=") == lines[0].count("<")]
    if len(alike or dividers) != 1:
        raise ToolError(
            f"{what} has {len(dividers)} lines of =======, but one must part SEARCH and REPLACE; "
            "give old_str and new_str instead."
        )
    (cut,) = alike or dividers
    if not any(line.strip() for line in lines[1:cut]):
        raise ToolError(f"{what} has nothing to search for; quote the lines to replace.")
    return Hunk(what, aligned(lines[1:cut], lines[cut + 1 :]))
