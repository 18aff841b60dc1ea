"""Draws on the terminal: text that stays, a live area below it, and the keys typed meanwhile."""

import base64
import codecs
import contextlib
import os
import re
import select
import sys
import termios
from collections.abc import Iterator
from typing import Any

from amas_code.visible import visible

SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)", re.DOTALL)  # arrows and the like
PASTED = re.compile(r"\x1b\[20[01]~")
HIDE, SHOW, DOWN = "\x1b[?25l", "\x1b[?25h", "\x1b[J"  # cursor off, on; erase from it down
CUT, WRAP = "\x1b[?7l", "\x1b[?7h"  # what a row has no room for is cut off, goes on below


LEFT_OVER = ("es", "ll")  # of a "yes" or "all" typed in answer to a question, after its first key


class Screen:
    """Prints above a live area of a few rows, which is redrawn in place.

    The cursor rests where the live area begins, so that after a resize everything below it can be
    erased without knowing how the terminal has wrapped it. A live row is cut where the terminal
    thinks that it is full, since terminals disagree on how wide an emoji is. Nothing is live
    without a terminal, nor between turns.
    """

    def __init__(self, console: Any):
        self.console = console  # of rich
        self.live = console.is_terminal and not console.is_dumb_terminal
        self.rows: list[str] = []
        self.size, self.at_work = console.size, False
        self.busy = False  # a pulse must not draw into the middle of a drawing, its own included

    @property
    def third(self) -> int:
        return max(self.console.height // 3, 4)

    def render(self, *things: Any, width: int | None = None) -> str:
        with self.console.capture() as captured:
            for thing in things:  # print() forgets how a text of its own wants to be cut
                cut = {name: getattr(thing, name, None) for name in ("no_wrap", "overflow")}
                self.console.print(thing, width=width, highlight=False, markup=False, **cut)
        return captured.get()

    def rows_of(self, thing: Any) -> list[Any]:
        """The last rows of it that the live area has room for."""
        from rich.text import Text

        text = self.render(thing, width=self.console.width - 1).rstrip("\n")
        return [Text.from_ansi(line) for line in text.split("\n")[-self.third :]]

    def print(self, *things: Any) -> None:
        """Text that stays, above the live area."""
        with self.alone():
            text = self.render(*things)
            self.send("\r" + DOWN + text + self.drawn() if self.live else text)

    def prompt(self, thing: Any) -> None:
        """Text that what comes next stands behind, the cursor shown."""
        with self.alone():
            text = self.render(thing).rstrip("\n")
            self.send(f"\r{DOWN}{text}{SHOW}" if self.live else text)

    def draw(self, *things: Any) -> None:
        """Make these the live area; nothing clears it."""
        if not (self.live and self.at_work):
            return
        with self.alone():
            self.size = self.console.size
            width = self.size.width - 1  # a full row would wrap
            rows = self.render(*things, width=width).split("\n")[:-1] if things else []
            self.rows = rows[-max(self.size.height - 2, 1) :]
            self.send(self.drawn())

    def drawn(self) -> str:
        if self.console.size != self.size:  # drawn for another size; the next pulse draws anew
            self.rows = []
        rows = CUT + "\x1b[K\r\n".join(self.rows) + "\x1b[K" + WRAP if self.rows else ""
        up = f"\x1b[{len(self.rows) - 1}A" if len(self.rows) > 1 else ""
        return f"\r{rows}{DOWN}{up}\r"

    def send(self, text: str) -> None:
        """Write in one piece."""
        with self.alone():
            self.console.file.write(text)
            self.console.file.flush()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold off a pulse while we draw: a drawing inside a drawing would garble both."""
        was, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = was

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """The cursor hidden while we draw, everything put back after."""
        self.at_work = True
        self.send(HIDE if self.live else "")
        try:
            yield
        finally:
            self.at_work, self.rows = False, []
            self.send(f"\r{DOWN}{SHOW}" if self.live else "")

    def copy(self, text: str) -> None:
        """To the clipboard by the terminal itself (OSC 52), so that it works through ssh too."""
        if self.live:
            self.send(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\a")


class Keyboard:
    """The keys typed while the agent works: no echo, nothing waits for them.

    `line` is what has been typed and not yet sent.
    """

    def __init__(self) -> None:
        self.fd = sys.stdin.fileno()
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.line = ""

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Echo and line mode off; Ctrl-C still is a signal."""
        before = termios.tcgetattr(self.fd)
        mode = termios.tcgetattr(self.fd)
        mode[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(self.fd, termios.TCSADRAIN, mode)
        try:
            yield
        finally:
            termios.tcsetattr(self.fd, termios.TCSADRAIN, before)

    def read(self, seconds: float = 0.0) -> str:
        """What was typed, waiting so long for it. SystemExit when the terminal is gone."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return ""
        data = os.read(self.fd, 65536)
        if not data:
            raise SystemExit(129)  # as by SIGHUP
        return self.decoder.decode(data)

    def read_whole(self, seconds: float) -> str:
        """The same, with the rest of a key that came in two. An Esc by itself is a Ctrl-C."""
        typed = self.read(seconds)
        if typed.endswith("\x1b"):
            typed += self.read(0.05)
        if typed.endswith("\x1b"):
            raise KeyboardInterrupt
        return typed

    def resting(self, seconds: float = 0.7) -> bool:
        """Whether no key comes for so long."""
        return not select.select([self.fd], [], [], seconds)[0]

    def sent(self) -> list[str]:
        """Take in what was typed: the complete lines. A lone Esc is a KeyboardInterrupt."""
        typed = self.read_whole(0.0)
        typed = SEQUENCE.sub(
            "", PASTED.sub("", typed.replace("\x1b\r", " ").replace("\x1b\n", " "))
        )
        for key in typed:
            match key:
                case "\x7f" | "\b":
                    self.line = self.line[:-1]
                case "\x15":  # Ctrl-U
                    self.line = ""
                case _ if key in "\r\n" or key.isprintable():
                    self.line += "\n" if key == "\r" else key
        *lines, self.line = self.line.split("\n")
        return [visible(line) for line in lines if line.strip() and line not in LEFT_OVER]

    def key(self, known: str) -> str:
        """Wait for one of these keys. Esc and Ctrl-C are a KeyboardInterrupt."""
        while True:
            typed = self.read_whole(3600.0)
            if typed.lower() and typed.lower()[0] in known:
                return typed.lower()[0]

    def ask(self, question: str) -> str:
        """One line of text, edited the plain way; "" for Ctrl-D."""
        mode = termios.tcgetattr(self.fd)
        mode[3] |= termios.ECHO | termios.ICANON
        termios.tcsetattr(self.fd, termios.TCSADRAIN, mode)
        try:
            return input(question).strip()
        except EOFError:
            return ""
        finally:
            mode[3] &= ~(termios.ECHO | termios.ICANON)
            termios.tcsetattr(self.fd, termios.TCSADRAIN, mode)
