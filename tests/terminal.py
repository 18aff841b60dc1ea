"""A terminal for tests: the real program on a pty, its bytes fed to a terminal emulator."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte


class Terminal:
    """A program on a pty of so many columns and rows. `with` ends it."""

    def __init__(
        self, command: list[str], cwd: Path, env: dict, columns: int = 100, rows: int = 40
    ):
        self.screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.001)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.master, slave = pty.openpty()
        self._size(slave, columns, rows)
        env = {"TERM": "xterm-256color", **env}
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def _size(self, fd: int, columns: int, rows: int) -> None:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        self._size(self.master, columns, rows)
        self.screen.resize(rows, columns)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def send(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read(self, seconds: float = 0.05) -> bool:
        """Feed what came to the emulator and answer its questions; False when the program ended."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.raw += data
        self.stream.feed(data)
        if b"\x1b[6n" in data:  # where is the cursor?
            self.send(f"\x1b[{self.screen.cursor.y + 1};{self.screen.cursor.x + 1}R")
        return bool(data)

    def shown(self) -> str:
        """The rows on the screen now."""
        buffer, columns = self.screen.buffer, range(self.screen.columns)
        rows = (buffer[y] for y in range(self.screen.lines))  # pyte's own `display` is slow
        return "\n".join("".join([row[x].data for x in columns]).rstrip() for row in rows).rstrip()

    def all(self) -> str:
        """The scrollback and the screen."""
        columns = range(self.screen.columns)
        gone = [
            "".join([line[x].data for x in columns]).rstrip() for line in self.screen.history.top
        ]
        return "\n".join([*gone, self.shown()])

    def wait(self, wanted: str | Callable[[str], bool], seconds: float = 60.0) -> str:
        """Read until the screen shows this, and return all of it."""
        deadline = time.monotonic() + seconds
        there = wanted if callable(wanted) else lambda text: wanted in text
        while not there(self.all()):
            alive = self.read()
            if time.monotonic() > deadline or (not alive and not there(self.all())):
                raise AssertionError(f"never saw {wanted!r}; the screen:\n{self.all()}")
        return self.all()

    def ended(self, seconds: float = 60.0) -> int:
        """Read until the program ends; its exit status."""
        deadline = time.monotonic() + seconds
        while self.read():
            assert time.monotonic() < deadline, f"it goes on; the screen:\n{self.all()}"
        return self.process.wait(10)
