"""Finds the one place of a passage that is not in the file to the letter, and fits the new one in.

Whole lines only, one allowance at a time, and no guessing: two places are none, and what is not the
same but for whitespace, look-alike characters or width forms is not the same.
"""

import difflib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from amas_code.events import ToolError

LOOK_ALIKES = {
    **dict.fromkeys(map(ord, "‘’‚‛′`´"), "'"),
    **dict.fromkeys(map(ord, "“”„‟″"), '"'),
    **dict.fromkeys(map(ord, "‐‑‒–—―−"), "-"),
    **dict.fromkeys([0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " "),
}
WORD = re.compile(r"[A-Za-z0-9_]+")
NUMBERED = re.compile(r"\s*\d+(?:\t|: ?|\| ?|→)")
ESCAPES = {"n": "\n", "t": "\t", "r": "", '"': '"', "'": "'", "\\": "\\"}
SHOWN = 12  # lines of the nearest block


class Place(NamedTuple):
    """Lines of the file, and what is to stand there instead."""

    first: int  # from 0
    lines: list[str]
    level: str  # what had to be allowed for


def alike(line: str) -> str:
    """The line with look-alike characters as ASCII."""
    return line if line.isascii() else line.translate(LOOK_ALIKES)


def wide(line: str) -> str:
    return line if line.isascii() else unicodedata.normalize("NFKC", line)


LEVELS: list[tuple[str, Callable[[str], str]]] = [  # each allows for what those before it do
    ("trailing whitespace", str.rstrip),
    ("look-alike characters", lambda line: alike(line).rstrip()),
    ("indentation", lambda line: alike(line).strip()),
    ("whitespace", lambda line: " ".join(alike(line).split())),
    ("character width", lambda line: " ".join(wide(alike(line)).split())),
]


def place(lines: list[str], old: list[str], new: list[str], name: str) -> Place | None:
    """The one place of `old` among `lines`, or None. Raises ToolError where there are several."""
    starts = hits(lines, old, possible(lines, old), LEVELS[-1][1])  # what a stricter level can hit
    for level, normal in LEVELS:
        found = hits(lines, old, starts, normal)
        if len(found) > 1:
            raise ToolError(several(found, name) + f" (allowing for {level})")
        if found:
            block = lines[found[0] : found[0] + len(old)]
            return Place(found[0], fitted(block, old, new), level)
    return None


def possible(lines: list[str], old: list[str]) -> list[int]:
    """Where `old` may begin: its longest word must be there, unless width forms hide it."""
    words = [(len(word), i, word) for i, line in enumerate(old) for word in WORD.findall(line)]
    last = len(lines) - len(old)
    if not words:
        return list(range(last + 1))
    _, lead, word = max(words)
    normal = unicodedata.is_normalized
    holds = [i - lead for i, line in enumerate(lines) if word in line or not normal("NFKC", line)]
    return [i for i in holds if 0 <= i <= last]


def hits(lines: list[str], old: list[str], starts: list[int], normal: Callable) -> list[int]:
    wanted = [normal(line) for line in old]
    return [i for i in starts if all(normal(lines[i + j]) == w for j, w in enumerate(wanted))]


def several(starts: list[int], name: str) -> str:
    shown = ", ".join(str(start + 1) for start in starts[:10]) + (", …" if len(starts) > 10 else "")
    return (
        f"old_str occurs {len(starts)} times in {name}, at lines {shown}; quote enough lines to "
        "make it occur once, or set replace_all"
    )


def fitted(block: list[str], old: list[str], new: list[str]) -> list[str]:
    """The new lines as they belong here: those of `old` as the file has them, others indented."""
    indent = indenter(block, old, new)
    out: list[str] = []
    matcher = difflib.SequenceMatcher(None, old, new, False)
    for tag, a, b, c, d in matcher.get_opcodes():
        out += block[a:b] if tag == "equal" else [indent(line) for line in new[c:d]]
    return out


def margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def indenter(block: list[str], old: list[str], new: list[str]) -> Callable[[str], str]:
    """How a line of `new` is indented in the file: as seen in the lines that `old` and file share.

    By the very map, else by the same shift, else by the same unit; raises ToolError if none holds.
    """
    pairs = {(margin(o), margin(f)) for o, f in zip(old, block, strict=True) if o.strip()}
    seen = dict(pairs)
    if len(seen) < len(pairs):
        raise ToolError(
            "old_str is indented otherwise than the file, and not evenly; quote it as it is there."
        )
    wanted = {margin(line) for line in new if line.strip()} - set(seen)
    table = seen | {margin: shifted(margin, seen) for margin in wanted}

    def indent(line: str) -> str:
        return table[margin(line)] + line.lstrip() if line.strip() else line

    return indent


def shifted(wanted: str, seen: dict[str, str]) -> str:
    """An indentation that `old` did not have, carried over to the file's way."""
    if all(mine == theirs for mine, theirs in seen.items()):
        return wanted
    added = {
        theirs[: len(theirs) - len(mine)] for mine, theirs in seen.items() if theirs.endswith(mine)
    }
    if len(added) == 1 and all(theirs.endswith(mine) for mine, theirs in seen.items()):
        extra = added.pop()
        if len(set(extra + wanted)) <= 1:  # tabs on spaces would be neither
            return extra + wanted
    gone = {
        mine[: len(mine) - len(theirs)] for mine, theirs in seen.items() if mine.endswith(theirs)
    }
    if len(gone) == 1 and all(mine.endswith(theirs) for mine, theirs in seen.items()):
        less = gone.pop()
        if wanted.startswith(less):
            return wanted[len(less) :]
    return by_unit(wanted, seen)


def by_unit(wanted: str, seen: dict[str, str]) -> str:
    """The same depth in the file's unit, if both sides are even."""
    uneven = ToolError(
        "The indentation of new_str cannot be carried over; indent it as the file is."
    )
    mine, theirs = set("".join(seen) + wanted), set("".join(seen.values()))
    if len(mine) != 1 or len(theirs) != 1:
        raise uneven
    sizes = {len(o): len(f) for o, f in seen.items()}
    step = math.gcd(*sizes, len(wanted))
    (low, base), (high, top) = min(sizes.items()), max(sizes.items())
    slope = (top - base) / (high - low) if high > low else base / low if low else 1 / step
    if any(base + slope * (size - low) != there for size, there in sizes.items()):
        raise uneven
    length = base + slope * (len(wanted) - low)
    if length < 0 or length != int(length):
        raise uneven
    return theirs.pop() * int(length)


def unnumbered(text: str) -> str | None:
    """The text without the line numbers before every line; None if not every line has one."""
    lines = text.split("\n")
    if not all(NUMBERED.match(line) for line in lines if line.strip()):
        return None
    return "\n".join(NUMBERED.sub("", line, count=1) for line in lines)


def unescaped(text: str) -> str:
    """The text with \\n, \\t, \\" and the like carried out."""
    return re.sub(r"\\([ntr\"'\\])", lambda match: ESCAPES[match[1]], text)


def nearest(view: str, old: list[str]) -> str:
    """The block of the file most like `old`, numbered, tabs visible; "" if nothing is like it."""
    lines = view.split("\n")
    where = {line.strip(): index for index, line in enumerate(old) if line.strip()}
    votes = Counter(
        n - where[key] for n, line in enumerate(lines) if (key := line.strip()) in where
    )
    start = votes.most_common(1)[0][0] if votes else mentioned(view, old)
    if start is None:
        return ""
    start = max(start, 0)
    shown = enumerate(lines[start : start + min(len(old) + 2, SHOWN)], start + 1)
    return "\n".join(f"{number:>6}\t{line[:200].replace(chr(9), '→   ')}" for number, line in shown)


def mentioned(view: str, old: list[str]) -> int | None:
    """The first line that holds one of the longer words of `old`."""
    words = sorted(set(WORD.findall("\n".join(old))), key=len, reverse=True)
    found = (view.find(word) for word in words[:20] if len(word) > 3)
    return next((view.count("\n", 0, at) for at in found if at >= 0), None)
