"""Finds the one place of a passage that is not in the file to the letter, and fits the new one in.

Whole lines only, one allowance at a time, and no guessing: two places are none, and what is not the
same but for whitespace, look-alike characters or width forms is not the same.
"""

import math
import re
import unicodedata
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from amas_code.events import ToolError

LOOK_ALIKES = {
    **dict.fromkeys(map(ord, "‘’‚‛′´"), "'"),
    **dict.fromkeys(map(ord, "“”„‟″"), '"'),
    **dict.fromkeys(map(ord, "‐‑‒–—―−"), "-"),
    **dict.fromkeys([0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " "),
}
WORD = re.compile(r"[A-Za-z0-9_]+")
CHUNK = re.compile(r"[^ '\"-]+")  # what no other sign looks like
NUMBERED = re.compile(r"\s*\d+(?:\t|: ?|\| ?|→)")
ESCAPES = {"n": "\n", "t": "\t", "r": "", '"': '"', "'": "'", "\\": "\\"}
SHOWN = 12  # lines of the nearest block


class Sought(NamedTuple):
    """A passage as refusals speak of it, and what tells its place from others like it."""

    what: str  # "old_str", "Hunk 2"
    file: str
    advice: str  # how to make it occur once
    doubt: str = ""  # why nothing but an exact and unique match will do
    narrowed: Callable[[list[int], str], list[int]] = lambda numbers, level: numbers


class Lines:
    """The lines of a text, as split("\\n") gives them, but cut out one by one.

    A list of them would take thrice the text's size.
    """

    def __init__(self, text: str):
        self.text = text
        self.starts = array("q", [0])
        self.starts.extend(match.end() for match in re.finditer("\n", text))
        self.starts.append(len(text) + 1)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> str:
        return self.text[self.starts[number] : self.starts[number + 1] - 1]

    def __iter__(self) -> Iterator[str]:
        return (self.text[a : b - 1] for a, b in pairwise(self.starts))

    def block(self, first: int, count: int) -> list[str]:
        return [self[number] for number in range(first, first + count)]

    def holding(self, word: str) -> Iterator[int]:
        """The numbers of the lines with this word."""
        at = self.text.find(word)
        while at >= 0:
            after = bisect_right(self.starts, at)
            yield after - 1
            at = self.text.find(word, self.starts[after])


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


def place(lines: Lines, old: list[str], sought: Sought) -> tuple[int, str] | None:
    """The first line of the one place of `old`, and the level; or None. Several: a ToolError."""
    starts = hits(lines, old, possible(lines, old), LEVELS[-1][1])  # what a stricter level can hit
    for level, normal in LEVELS:
        if (first := one(hits(lines, old, starts, normal), level, sought)) is not None:
            return first, level
    return None


def possible(lines: Lines, old: list[str]) -> Iterable[int]:
    """Where `old` may begin: its rarest chunk must be there, unless width forms hide it."""
    wanted = map(LEVELS[-1][1], old)
    chunks = {chunk: i for i, line in enumerate(wanted) for chunk in CHUNK.findall(line)}
    last = len(lines) - len(old)
    if not chunks:
        return range(last + 1)
    rarest = min(sorted(chunks, key=len)[-8:], key=lines.text.count)
    holds = list(lines.holding(rarest))
    normal = unicodedata.is_normalized
    if not normal("NFKC", lines.text):
        odd = (i for i, line in enumerate(lines) if not normal("NFKC", line))
        holds = sorted({*holds, *odd})
    return [i - chunks[rarest] for i in holds if 0 <= i - chunks[rarest] <= last]


def hits(lines: Lines, old: list[str], starts: Iterable[int], normal: Callable) -> list[int]:
    """Those of the starts at which the lines are the same as `old` at this level."""
    for offset, line in enumerate(map(normal, old)):
        starts = [i for i in starts if normal(lines[i + offset]) == line]
        if not starts:
            break
    return list(starts)


def one(numbers: list[int], level: str, sought: Sought) -> int | None:
    """The one of these lines at which the passage may begin. Raises ToolError for several."""
    if len(numbers) > 1 and not sought.doubt:
        numbers = sought.narrowed(numbers, level) or numbers
    if len(numbers) > 1:
        raise several(numbers, level, sought)
    return numbers[0] if numbers else None


def several(numbers: list[int], level: str, sought: Sought) -> ToolError:
    shown = ", ".join(str(number + 1) for number in numbers[:10])
    more = ", …" if len(numbers) > 10 else ""
    how = "" if level == "exact" else f" (allowing for {level})"
    return ToolError(
        f"{sought.what} occurs {len(numbers)} times in {sought.file}, at lines {shown}{more}{how}; "
        f"{sought.doubt or sought.advice}."
    )


def margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def indenter(
    block: list[str], old: list[str], new: list[str], sought: Sought
) -> Callable[[str], str]:
    """How a line of `new` is indented in the file: as seen in the lines that `old` and file share.

    By the very map, else by the same shift, else by the same unit; raises ToolError if none holds.
    """
    pairs = {(margin(o), margin(f)) for o, f in zip(old, block, strict=True) if o.strip()}
    seen = dict(pairs)
    if len(seen) < len(pairs):
        raise ToolError(
            f"{sought.what} is indented otherwise than {sought.file}, and not evenly; quote it as "
            "it is there."
        )
    table: dict[str, str] = seen.copy()
    for wanted in {margin(line) for line in new if line.strip()} - set(seen):
        if (there := shifted(wanted, seen)) is None:
            raise ToolError(
                f"{sought.what} is found in {sought.file}, but how its new lines are to be "
                "indented there is not clear; indent them as the file is."
            )
        table[wanted] = there

    def indent(line: str) -> str:
        return table[margin(line)] + line.lstrip() if line.strip() else line

    return indent


def shifted(wanted: str, seen: dict[str, str]) -> str | None:
    """An indentation that `old` did not have, carried over to the file's way, or None."""
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


def by_unit(wanted: str, seen: dict[str, str]) -> str | None:
    """The same depth in the file's unit; None if not both sides are even."""
    mine, theirs = set("".join(seen) + wanted), set("".join(seen.values()))
    if len(mine) != 1 or len(theirs) != 1:
        return None
    sizes = {len(o): len(f) for o, f in seen.items()}
    step = math.gcd(*sizes, len(wanted))
    (low, base), (high, top) = min(sizes.items()), max(sizes.items())
    slope = (top - base) / (high - low) if high > low else base / low if low else 1 / step
    if any(base + slope * (size - low) != there for size, there in sizes.items()):
        return None
    length = base + slope * (len(wanted) - low)
    if length < 0 or length != int(length):
        return None
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


def nearest(lines: Lines, old: list[str]) -> str:
    """The block of the file most like `old`, numbered, tabs visible; "" if nothing is like it."""
    where = {line.strip(): index for index, line in enumerate(old) if line.strip()}
    votes = Counter(
        n - where[key] for n, line in enumerate(lines) if (key := line.strip()) in where
    )
    start = votes.most_common(1)[0][0] if votes else mentioned(lines, old)
    if start is None:
        return ""
    numbers = range(max(start, 0), len(lines))[: min(len(old) + 2, SHOWN)]
    shown = ((n + 1, lines[n][:200].replace("\t", "→   ")) for n in numbers)
    return "\n".join(f"{number:>6}\t{line}" for number, line in shown)


def mentioned(lines: Lines, old: list[str]) -> int | None:
    """The first line that holds one of the longer words of `old`."""
    words = sorted(set(WORD.findall("\n".join(old))), key=len, reverse=True)
    found = (next(lines.holding(word), None) for word in words[:20] if len(word) > 3)
    return next((number for number in found if number is not None), None)
