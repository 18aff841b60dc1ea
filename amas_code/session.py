"""The journal of a conversation: one JSON line an event, only ever appended to.

It is at once history, event stream and what `--continue` reads (`recorded.py`). One process at a
time has it open.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from amas_code import __version__
from amas_code.events import (
    Began,
    Notice,
    Output,
    Said,
    Text,
    Thought,
    ToolError,
)
from amas_code.places import is_project
from amas_code.recorded import Recorded, load
from amas_code.signals import uninterrupted

VERSION = 1  # of what the lines look like
PASSING = (Text, Thought, Output)  # not kept: the message or result that they grow into is
OPEN = "That session is open in another amas; close it there, or start a new one with amas."
PRIVATE = "# Written by amas: what is private to this machine stays out of git.\n" + "\n".join(
    ("sessions/", ".gitignore", "")
)


class Listed(NamedTuple):
    """A session in a list."""

    id: str
    path: Path
    prompt: str  # the first; if that is long, its beginning
    when: float  # last written, seconds since the epoch
    size: int  # bytes


def line(event) -> dict:
    """An event as the JSON that journal and `--output-format stream-json` share."""
    body = {name: plain(value) for name, value in event._asdict().items()}
    return {"type": type(event).__name__.lower(), **body}


def plain(value):
    """Edits are told by their paths: what is in them is the checkpoint log's, not the journal's."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        body = {name: plain(v) for name, v in value._asdict().items() if name != "edits"}
        return body | (
            {"paths": [str(edit.path) for edit in value.edits]} if hasattr(value, "edits") else {}
        )
    return value


class Journal:
    """Appends events to the session's file. A full disk costs the journal, never the chat."""

    def __init__(self, directory: Path, emit: Callable, id: str = ""):
        self.directory, self.emit, self.cwd = directory, emit, os.getcwd()
        self.id, self.failed = id or new_id(), False
        self.file: IO[bytes] | None = None
        self.latest = 0  # when a session was last written to, in ns; ours comes after

    @property
    def path(self) -> Path:
        return self.directory / f"{self.id}.jsonl"

    def listen(self, event) -> None:
        if isinstance(event, PASSING) or self.failed:
            return
        try:
            with uninterrupted():  # no signal tears a line
                self.write(line(event))
                if must_last(event):
                    os.fsync(self.opened().fileno())
        except OSError as error:
            self.failed = True
            self.emit(Notice(f"This chat is not being saved: {self.path}: {error.strerror}."))

    def write(self, body: dict) -> None:
        file, record = self.opened(), {"time": round(time.time(), 3), **body}
        text = json.dumps(record, ensure_ascii=False, default=str)
        file.write(text.encode("utf-8", "replace") + b"\n")
        file.flush()
        if time.time_ns() <= self.latest:  # the clock went backwards: still we come last
            with contextlib.suppress(OSError):
                os.utime(file.fileno(), ns=(self.latest + 1,) * 2)

    def opened(self) -> IO[bytes]:
        """The file, made at the first event."""
        if self.file is None:
            prepare(self.directory)
            self.hold(claimed(self.path, os.O_CREAT))
            assert self.file
            if not self.file.tell():
                known = {"version": VERSION, "id": self.id, "cwd": self.cwd, "amas": __version__}
                self.write({"type": "session", **known})
        return self.file

    def hold(self, file: IO[bytes]) -> None:
        self.file = file
        self.latest = max((info.st_mtime_ns for info, _ in journals(self.directory)), default=0)

    def switch(self, id: str = "") -> Recorded:
        """Go on with another session's file, or a new one. Returns what was said there.

        Raises ToolError if another amas has it open, OSError if it cannot be read; then this one
        stays.
        """
        with contextlib.ExitStack() as kept:
            file = kept.enter_context(taken) if id and (taken := self.taken(id)) else None
            recorded = load(self.directory / f"{id}.jsonl") if id else Recorded()
            kept.pop_all()
        self.close()
        self.id, self.failed = id or new_id(), False
        if file:
            self.hold(file)
        return recorded

    def taken(self, id: str) -> IO[bytes] | None:
        """The file of an earlier session; None if it can at best be read."""
        try:
            return claimed(self.directory / f"{id}.jsonl")
        except BlockingIOError:
            raise ToolError(OPEN) from None
        except OSError:
            return None

    def close(self) -> None:
        """Give up the file: others may have it."""
        if self.file:
            with contextlib.suppress(OSError):  # what a full disk did not take
                self.file.close()
        self.file = None


def new_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)


def must_last(event) -> bool:
    """Whether it is on the disk before anything else happens: what the user said, and what is about
    to change something."""
    match event:
        case Said({"role": "user"}):
            return True
        case Began(action):
            return action.kind != "read"
    return False


def claimed(path: Path, flags: int = 0) -> IO[bytes]:
    """A journal opened at its end, its torn last line closed. No other amas can open it meanwhile.

    The lock ends with us, however we end: what we start does not inherit the file. Raises
    BlockingIOError if another has it.
    """
    file = os.fdopen(os.open(path, os.O_APPEND | os.O_RDWR | flags, 0o600), "r+b")
    try:
        lock(file)
        if end := file.seek(0, os.SEEK_END):
            file.seek(end - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
                file.flush()
    except OSError:
        file.close()
        raise
    return file


def lock(file: IO[bytes]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system that has no locks
        return


def prepare(directory: Path) -> None:
    """Make the directory, readable by the user alone, and keep it out of git."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    home = directory.parent
    if home.name == ".amas":
        with contextlib.suppress(PermissionError):  # it is a colleague's
            home.chmod(0o700)
        if not (home / ".gitignore").exists():
            (home / ".gitignore").write_text(PRIVATE, "utf-8")


def place(root: Path, state: Path) -> Path:
    """Where a project's sessions lie: in it, or in our state directory if that cannot be.

    It cannot where the project is not writable, nor through a link, which anybody may have put into
    the project.
    """
    inside, real = root / ".amas/sessions", Path(os.path.realpath(root))
    there = next(p for p in (inside, inside.parent, root) if os.path.lexists(p) or p == root)
    linked = Path(os.path.realpath(there)) != real / there.relative_to(root)
    if is_project(root) and not linked and there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return inside
    key = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    return state / "sessions" / f"{root.name}-{key}"


def listed(directory: Path) -> list[Listed]:
    return [*recent(directory)]


def recent(directory: Path, beginning: str = "") -> Iterator[Listed]:
    """The sessions of a project whose ID begins so, newest first, each read when its turn comes.

    One that nothing was asked in, or that cannot be read, is left out. What counts as newest is
    when it was last written to, not the time in the name: an old one may be gone on with.
    """
    for info, path in journals(directory):
        if path.stem.startswith(beginning) and (prompt := first_prompt(path)):
            when = min(info.st_mtime, time.time())
            yield Listed(path.stem, path, prompt, when, info.st_size)


def journals(directory: Path) -> list[tuple[os.stat_result, Path]]:
    """The plain files that are named like a journal, the one written to last first."""
    found = []
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".jsonl"):
                with contextlib.suppress(OSError):  # it has just gone
                    found.append((entry.stat(follow_symlinks=False), Path(entry.path)))
    plain = [(info, path) for info, path in found if stat.S_ISREG(info.st_mode)]
    return sorted(plain, key=lambda each: (each[0].st_mtime_ns, each[1].name), reverse=True)


def first_prompt(path: Path) -> str:
    """The beginning of what a session began with, or "". Only the file's beginning is read."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        for _ in range(MOST_PIECES):
            if asked := ASKED.match(file.readline(PIECE)):
                return json.loads(asked[1].decode("utf-8", "ignore") + '"')
    return ""


PIECE, MOST_PIECES = 20_000, 50  # bytes of the file; what comes before the prompt is shorter
ASKED = re.compile(
    rb'\{(?:"time": [^,]+, )?"type": "asked", "prompt": ("(?:[^"\\]+|\\[^u]|\\u[0-9a-f]{4})+)'
)


def markdown(messages: list[dict]) -> str:
    """A conversation to read elsewhere."""
    parts = []
    for message in messages:
        text = message.get("content") or ""
        match message["role"]:
            case "user":
                parts.append(f"## You\n\n{text}")
            case "assistant":
                calls = [call["function"] for call in message.get("tool_calls") or ()]
                done = [f"- `{call['name']}` `{call['arguments']}`" for call in calls]
                parts.append(
                    "\n\n".join(part for part in ("## Amas", text, "\n".join(done)) if part)
                )
            case "tool":
                parts.append("\n".join(f"    {row}" for row in text.split("\n")))
    return "\n\n".join(parts) + "\n"
