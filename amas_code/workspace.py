"""The project as the tools see it, and what the model has read of it."""

import difflib
import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from amas_code.events import Edit, ToolError
from amas_code.mentions import project_files
from amas_code.shell import Shell

LARGEST = 50_000_000  # bytes of a file that is read as a whole


class Seen(NamedTuple):
    """What the model knows of a file: its bytes then, and how many lines from the top."""

    digest: bytes
    lines: int
    of: int


class Workspace:
    """What the tools work on: the project, what the model has read, its commands, its list."""

    def __init__(self, root: Path, shell: Shell, ignore: list[str]):
        self.root, self.shell, self.ignore = root, shell, ignore
        self.seen: dict[Path, Seen] = {}
        self.todo: list[str] = []

    def files(self) -> list[str]:
        return project_files(self.root, self.ignore)

    def knows(self, path: Path, data: bytes) -> bool:
        """Whether the model has read something of the file as it is now."""
        return path in self.seen and self.seen[path].digest == digest(data)

    def familiar(self, path: Path, data: bytes) -> str:
        """How the model knows the file: "read" as it is now, "stale" or "unread"."""
        return "read" if self.knows(path, data) else "stale" if path in self.seen else "unread"

    def knows_all(self, path: Path, data: bytes) -> bool:
        return self.knows(path, data) and self.seen[path].lines >= self.seen[path].of

    def note(self, path: Path, data: bytes, first: int, last: int, of: int) -> None:
        """The model was shown these lines."""
        known = self.seen[path].lines if self.knows(path, data) else 0
        self.seen[path] = Seen(digest(data), max(known, last) if first <= known + 1 else known, of)

    def landed(self, edits: Sequence[Edit]) -> None:
        """What the model knew of a file it knows still, after its own edit.

        Of a file that it made it knows all, or no more than of those that went in the same step:
        it may be one of them, moved.
        """
        gone = [self.knowledge(e.path, e.before or b"") for e in edits if e.after is None]
        for edit in edits:
            if edit.after is None or edit.before is None:
                known = min(gone, default=2)
            else:
                known = self.knowledge(edit.path, edit.before)
            if edit.after is None or (edit.before is None and not known):
                self.seen.pop(edit.path, None)
            elif known:
                self.seen[edit.path] = Seen(digest(edit.after), known - 1, 1)

    def knowledge(self, path: Path, data: bytes) -> int:
        """0: nothing of the file as it is, 1: some of it, 2: all."""
        return self.knows(path, data) + self.knows_all(path, data)

    def content(self, path: Path) -> bytes:
        """The bytes of a file, or a clear word on why not."""
        try:
            return plain(path)
        except FileNotFoundError:
            near = difflib.get_close_matches(os.path.relpath(path, self.root), self.files(), 3, 0.5)
            hint = (
                f" Did you mean {' or '.join(near)}?"
                if near
                else " list_files shows what there is."
            )
            raise ToolError(f"There is no file {shown(path)}.{hint}") from None
        except IsADirectoryError:
            raise ToolError(
                f"{shown(path)} is a directory; list_files shows what is in it."
            ) from None
        except OSError as error:
            raise ToolError(f"{shown(path)} cannot be read: {error.strerror}.") from None

    def present(self, path: Path) -> bytes | None:
        """The bytes of a file that need not exist."""
        if path.is_dir():
            raise ToolError(f"{shown(path)} is a directory.")
        try:
            return plain(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ToolError(f"{shown(path)} cannot be read: {error.strerror}.") from None


def plain(path: Path) -> bytes:
    """The bytes of a plain file: a pipe would be waited for, a huge file take all the memory."""
    info = path.stat()
    if not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
        raise ToolError(f"{shown(path)} is a pipe or a device, no file to read or edit.")
    if info.st_size > LARGEST:
        size = f"{info.st_size // 1_000_000} MB"
        raise ToolError(f"{shown(path)} is too large ({size}); look for what matters in it.")
    return path.read_bytes()


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def absolute(path: str) -> Path:
    """Where the model means: relative to the working directory, `~` expanded, links kept."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def shown(path: Path) -> str:
    """A path as the user would write it here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
