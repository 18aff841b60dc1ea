"""Draws docs/*.svg: the real amas plays a scene on a terminal, and its screens become pictures.

python -m tests.pictures            draw them anew
python -m tests.pictures --check    1 if one is missing
"""

import argparse
import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import pyte

from tests.conftest import AMAS, git
from tests.server import Server, Tokens, answer, call, route, say
from tests.terminal import Terminal

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = {
    "chat": "amas finds a bug, shows the change, asks, and runs the test",
    "diff": "amas shows a change and asks whether to make it",
    "undo": "/undo takes the change back, /checkpoint lists what happened",
}
COLUMNS, ROWS = 92, 40  # of the terminal
CELL, LINE, SIZE = 8.4, 19, 14  # pixels: a column, a row, the letters
EDGE, BAR = 18, 42  # pixels: around the text, above it

# The scene

CART = '''"""What is in the cart, and what it costs."""


def total(prices: list[float], coupon: float = 0.0) -> float:
    """The sum to pay, less the coupon."""
    return sum(price - coupon for price in prices)
'''
TEST = """from cart import total

assert total([20.0, 5.0]) == 25.0
assert total([20.0, 5.0], coupon=4.0) == 21.0
assert total([3.0], coupon=4.0) == 0.0
print("3 passed")
"""
OLD = "    return sum(price - coupon for price in prices)\n"
NEW = "    return max(sum(prices) - coupon, 0.0)\n"
COMMAND = "python3 test_cart.py"
TASK = "The coupon is taken off once per item. Fix it."

SCRIPT = [
    answer(
        "I'll look at the code and its test first.",
        call("read_file", path="cart.py"),
        call("read_file", path="test_cart.py"),
        usage=Tokens(1820, 61),
    ),
    answer(
        "There it is: `total()` takes the coupon off **every price** instead of once off the sum. "
        "A coupon worth more than the cart would even make it negative, which the test rules out.",
        call("edit_file", path="cart.py", old_str=OLD, new_str=NEW),
        usage=Tokens(2240, 118, 1820),
    ),
    answer(call("shell_command", command=COMMAND), usage=Tokens(2410, 34, 2240)),
    say(
        "Fixed in `cart.py`, and all three tests pass:\n\n"
        "- the coupon is taken off **once**, from the sum\n"
        "- the total never falls below zero\n",
        usage=Tokens(2490, 52, 2410),
    ),
]


def scene() -> Iterator[tuple[str, str, bytes]]:
    """Each picture: its name, how its first row begins, and what the terminal had got by then."""
    with shop() as (project, env), Server(SCRIPT, "anthropic") as server:
        to = {
            f"AMAS_{name.upper()}": value for name, value in route("anthropic", server.url).items()
        }
        with Terminal(AMAS, project, env | to, COLUMNS, ROWS) as terminal:
            terminal.wait("· context ")
            terminal.send(f"{TASK}\r")
            terminal.wait(lambda text: text.count("Go ahead?") == 1)
            yield "diff", "There it is", terminal.raw
            terminal.send("y")
            terminal.wait(lambda text: text.count("Go ahead?") == 2)
            terminal.send("y")
            type_at(terminal, "1 command · ")
            yield "chat", "Amas", terminal.raw
            terminal.send("/undo\r")
            type_at(terminal, "Undone: ")
            terminal.send("/checkpoint\r")
            type_at(terminal, "undo: edit")
            yield "undo", "Fixed in", terminal.raw


def type_at(terminal: Terminal, after: str) -> None:
    """Wait until this was shown and the next line can be typed."""

    def there(text: str) -> bool:
        rows = terminal.shown().split("\n")
        return after in text and "· context " in rows[-1] and "›" in map(str.strip, rows)

    terminal.wait(there)


@contextlib.contextmanager
def shop() -> Iterator[tuple[Path, dict[str, str]]]:
    """A repository with a bug, and an environment with a home of its own."""
    with tempfile.TemporaryDirectory() as name:
        home, project = Path(name).resolve() / "home", Path(name).resolve() / "shop"
        home.mkdir()
        project.mkdir()
        git(project, "init", "-q", "-b", "main")
        (project / "cart.py").write_text(CART)
        (project / "test_cart.py").write_text(TEST)
        git(project, "add", ".")
        git(project, "commit", "-q", "-m", "A cart and its test")
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        yield project, kept | {"HOME": str(home), "LANG": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"}


# What the terminal shows


class Screen(pyte.Screen):
    """Knows faint text too. Blinking, which amas does not use, stands in for it."""

    def select_graphic_rendition(self, *codes: int, **options: bool) -> None:
        known = {2: (5,), 22: (22, 25)}
        if not {38, 48} & set(codes):  # else a 2 may be part of a colour
            codes = tuple(each for code in codes for each in known.get(code, (code,)))
        super().select_graphic_rendition(*codes, **options)


class Style(NamedTuple):
    ink: str
    paper: str
    bold: bool
    italic: bool
    faint: bool
    underlined: bool


class Word(NamedTuple):
    """Text of one style, with the spaces after it. Its place is given, so any font will do."""

    column: int
    text: str
    style: Style


def rows(raw: bytes, first: str) -> list[list[Word]]:
    """The screen from the row that begins so, without the empty rows at its end."""
    screen = Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(raw)
    if not screen.cursor.hidden:
        line, column = screen.buffer[screen.cursor.y], screen.cursor.x
        line[column] = line[column]._replace(reverse=True)
    shown = [line.rstrip() for line in screen.display]
    top = next(number for number, line in enumerate(shown) if line.startswith(first))
    bottom = max(number for number, line in enumerate(shown) if line)
    return [words(screen, number) for number in range(top, bottom + 1)]


def words(screen: Screen, row: int) -> list[Word]:
    found: list[Word] = []
    wide = False
    for column in range(screen.columns):
        cell = screen.buffer[row][column]
        if not cell.data:  # the second half of a wide character
            wide = True
            continue
        last = found[-1] if found else None
        begins = last and last.text.endswith(" ") and cell.data != " "
        if last is None or begins or wide or style(cell) != last.style:
            found.append(Word(column, cell.data, style(cell)))
        else:
            found[-1] = last._replace(text=last.text + cell.data)
        wide = False
    return found


def style(cell: pyte.screens.Char) -> Style:
    ink, paper = COLOURS.get(cell.fg, f"#{cell.fg}"), COLOURS.get(cell.bg, f"#{cell.bg}")
    ink, paper = INK if cell.fg == "default" else ink, PAPER if cell.bg == "default" else paper
    if cell.reverse:
        ink, paper = paper, ink
    return Style(ink, paper, cell.bold, cell.italics, cell.blink, cell.underscore)


# The picture

INK, PAPER, FRAME = "#e6edf3", "#161b22", "#444c56"
COLOURS = {
    "black": "#6e7681",
    "red": "#ff7b72",
    "green": "#56d364",
    "brown": "#e3b341",
    "blue": "#79c0ff",
    "magenta": "#d2a8ff",
    "cyan": "#56d4dd",
    "white": "#c9d1d9",
    "brightblack": "#8b949e",
    "brightred": "#ffa198",
    "brightgreen": "#7ee787",
    "brightbrown": "#f2cc60",
    "brightblue": "#a5d6ff",
    "bfightmagenta": "#e2c5ff",  # as the emulator spells it
    "brightmagenta": "#e2c5ff",
    "brightcyan": "#a5f0f5",
    "brightwhite": "#ffffff",
}
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
LIGHTS = ("#ff5f57", "#febc2e", "#28c840")


def picture(shown: list[list[Word]], title: str) -> str:
    width, height = COLUMNS * CELL + 2 * EDGE, BAR + len(shown) * LINE + EDGE
    lights = (
        f'<circle cx="{22 + 20 * number}" cy="20" r="6" fill="{colour}"/>'
        for number, colour in enumerate(LIGHTS)
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" role="img" aria-label="{escape(title)}" '
        f'font-family="{FONT}" font-size="{SIZE}">',
        f"<title>{escape(title)}</title>",
        "<style>text{white-space:pre}.b{font-weight:bold}.i{font-style:italic}"
        ".f{fill-opacity:.6}.u{text-decoration:underline}</style>",
        f'<rect x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1}" rx="10" '
        f'fill="{PAPER}" stroke="{FRAME}"/>',
        *lights,
        f'<text x="{width / 2:.0f}" y="25" text-anchor="middle" fill="#8b949e">shop – amas</text>',
        *(drawn(row, BAR + number * LINE) for number, row in enumerate(shown)),
        "</svg>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def drawn(row: list[Word], top: int) -> str:
    """A row: what lies behind its words, then the words."""
    behind = [
        f'<rect x="{place(word)}" y="{top}" width="{columns(row, word) * CELL:.1f}" '
        f'height="{LINE}" fill="{word.style.paper}" shape-rendering="crispEdges"/>'
        for word in row
        if word.style.paper != PAPER
    ]
    seen = "".join(span(word) for word in row if word.text.strip())
    seen = re.sub(" +</tspan>$", "</tspan>", seen)
    text = f'<text y="{top + SIZE}" fill="{INK}" xml:space="preserve">{seen}</text>'
    return "".join(behind) + (text if seen else "")


def columns(row: list[Word], word: Word) -> int:
    """How many columns a word takes: until the next one."""
    after = [other.column for other in row if other.column > word.column]
    return (after[0] if after else COLUMNS) - word.column


def place(word: Word) -> str:
    return f"{EDGE + word.column * CELL:.1f}"


def span(word: Word) -> str:
    ink, _, *looks = word.style
    marks = "".join(letter for letter, on in zip("bifu", looks, strict=True) if on)
    kind = f' class="{" ".join(marks)}"' if marks else ""
    fill = f' fill="{ink}"' if ink != INK else ""
    return f'<tspan x="{place(word)}"{fill}{kind}>{escape(word.text)}</tspan>'


def draw() -> None:
    DOCS.mkdir(exist_ok=True)
    for name, first, raw in scene():
        drawing = picture(rows(raw, first), PICTURES[name])
        for private in (tempfile.gettempdir(), str(Path.home())):
            if private in drawing:
                raise SystemExit(f"{name}: {private} of this machine would be in the picture")
        (DOCS / f"{name}.svg").write_text(drawing, encoding="utf-8")


def missing() -> list[str]:
    return [name for name in PICTURES if not (DOCS / f"{name}.svg").is_file()]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only look whether all are there")
    if not parser.parse_args().check:
        draw()
    for name in missing():
        print(f"docs/{name}.svg is missing: python -m tests.pictures draws it", file=sys.stderr)
    return 1 if missing() else 0


if __name__ == "__main__":
    sys.exit(main())
