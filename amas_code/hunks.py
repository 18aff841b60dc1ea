"""Places hunks, the way edit_file places a passage, and applies all of a file's or none.

A hunk comes from a patch or a SEARCH/REPLACE block. All are placed in the file as it is.
"""

import re
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from amas_code import matching
from amas_code.edits import (
    DOUBTS,
    Applied,
    Found,
    Signed,
    Source,
    changed,
    missing,
    near,
    numbered,
    span,
    spliced,
    there,
)
from amas_code.events import ToolError
from amas_code.matching import Sought


class Hunk(NamedTuple):
    """Lines that give way to others, and what is said of where they are."""

    what: str  # as refusals call it: "Hunk 2"
    rows: Sequence[Signed]
    stated: tuple[int, int] = (0, -1)  # first line in the old file, from 1, and how many
    anchors: Sequence[str] = ()  # lines that stand somewhere before
    at_end: bool = False  # of the file
    unended: str = ""  # the sides, "-" or "+", whose last line has no line end

    def old(self) -> list[str]:
        return [line for sign, line in self.rows if sign != "+"]

    def new(self) -> list[str]:
        return [line for sign, line in self.rows if sign != "-"]


def apply(data: bytes, hunks: Sequence[Hunk], name: str, known: str, ordered: bool) -> Applied:
    """Carry the hunks out. Raises ToolError if one of them fails.

    known: as for `edits.replace`. ordered: they must come in the order of the file.
    """
    source = Source(data, name)
    placed = [(place(source, hunk, name, known), hunk.what) for hunk in hunks]
    if not ordered:
        placed.sort(key=lambda pair: pair[0].spans)
    for (before, _), (after, what) in pairwise(placed):
        start, end, _ = after.spans[0]
        if start < before.spans[-1][1] or (start, end) == before.spans[-1][:2]:
            raise ToolError(
                f"{what} is found at line {after.first} of {name}, within or before the one that "
                "precedes it; keep the order of the file and change each line once."
            )
    found = [each for each, _ in placed]
    cuts = source.cuts([span for each in found for span in each.spans])
    del source  # its texts are as large as the file, and so is what is made now
    return Applied(spliced(data, cuts, name), found, known)


def place(source: Source, hunk: Hunk, name: str, known: str) -> Found:
    """The one place of a hunk. Raises ToolError where there is none, or more than one."""
    doubt, advice = DOUBTS.get(known, ""), "give more of the lines around it"
    one_ends = len(set(hunk.unended)) == 1  # so the file's last line gets or loses its line end
    if hunk.old() == hunk.new() and not one_ends:
        raise ToolError(f"{hunk.what} changes nothing in {name}; give lines with - and +.")
    sought = Sought(hunk.what, name, advice, doubt, lambda *them: narrowed(source, hunk, *them))
    if not hunk.old():
        found: Found | None = inserted(source, hunk, sought)
    else:
        found = located(source, hunk.rows, sought) or unnumbered(source, hunk, sought)
    if found is None:
        raise missing(source, hunk.old(), sought)
    if hunk.old() and not "".join(hunk.old()).strip() and found.first != hunk.stated[0]:
        raise ToolError(f"{hunk.what} has only blank lines to be found by in {name}; {advice}.")
    return ended(source.view, found, hunk, name) if one_ends else found


def located(source: Source, rows: Sequence[Signed], sought: Sought) -> Found | None:
    old = [line for sign, line in rows if sign != "+"]
    found = there(source, old, sought)
    if found is None and not sought.doubt:
        found = near(source, old, sought)
        if found and found.first + len(old) > source.total:
            return None  # its last line would be what follows the last line end
    return found and changed(source.view, found, rows, sought)


def unnumbered(source: Source, hunk: Hunk, sought: Sought) -> Found | None:
    """The place of lines that were quoted with their numbers."""
    if sought.doubt or matching.unnumbered("\n".join(hunk.old())) is None:
        return None
    rows = []
    for sign, line in hunk.rows:
        bare = matching.unnumbered(line)
        rows.append((sign, line if bare is None else bare))
    found = located(source, rows, sought)
    return found and found._replace(level=numbered(found.level))


def narrowed(source: Source, hunk: Hunk, numbers: list[int], level: str) -> list[int]:
    """Those of several places that are meant by what the hunk says besides its lines."""
    if hunk.stated[1] > 0 and level == "exact":
        return [n for n in numbers if n + 1 == hunk.stated[0]]
    if hunk.at_end:
        return [n for n in numbers if n + len(hunk.old()) == source.total]
    if hunk.anchors:
        after = anchored(source.view, hunk, "")
        return [n for n in numbers if n > after]
    return numbers


def anchored(view: str, hunk: Hunk, doubt: str) -> int:
    """The line of the last anchor, from 0. Each must be there once after the one before it."""
    at = 0
    for text in hunk.anchors:
        bare = rf"^[ \t]*{re.escape(text.strip())}"
        ways = (f"^{re.escape(text)}$", rf"{bare}[ \t]*$", rf"{bare}(?!\w)")
        for way in ways[: 1 if doubt else 3]:
            if found := list(re.compile(way, re.MULTILINE).finditer(view, at)):
                break
        if len(found) != 1:
            raise ToolError(
                f"{hunk.what}: {len(found)} lines are {text!r}, as its @@ says; "
                f"{doubt or 'give more of the lines around the change'}."
            )
        at = found[0].end()
    return view.count("\n", 0, at)


def inserted(source: Source, hunk: Hunk, sought: Sought) -> Found:
    """Where lines go that have none around them."""
    line, count = hunk.stated
    if hunk.at_end or not source.view:
        line = source.total
    elif hunk.anchors:
        line = anchored(source.view, hunk, sought.doubt) + 1
    elif count != 0 or sought.doubt or line > source.total:
        raise ToolError(
            f"{hunk.what} only adds lines, and it is not certain where in {sought.file}; "
            f"{sought.doubt or 'give a line before or after them'}."
        )
    spans = [span(source.view, source.lines.starts[line], 0, hunk.new())]
    return Found(spans, "exact", line + 1, line + 1)


def ended(view: str, found: Found, hunk: Hunk, name: str) -> Found:
    """The same, but the file's last line gets or loses its line end, as the hunk has it."""
    *others, (start, end, text) = found.spans
    if end < len(view) - view.endswith("\n"):
        raise ToolError(
            f"{hunk.what} says that {name} ends there, but it goes on after line {found.last}; "
            "leave out the line about the newline."
        )
    comes = any(sign == "+" for sign, _ in takewhile(lambda row: row[0] != " ", hunk.rows[::-1]))
    if "+" in hunk.unended:
        text = text.removesuffix("\n")
    elif comes or (hunk.new() and view[start : start + 1] == "\n"):  # a kept line's end
        text += "\n"
    return found._replace(spans=[*others, (start, len(view), text)])
