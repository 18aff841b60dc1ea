"""The journal of a conversation: one JSON line an event, only ever appended to.

It is at once history, event stream and what `--continue` reads: replaying its `said`, `rewound`
and `replaced` lines gives `messages` back. A torn last line, as a crash leaves it, is passed over.
"""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from amas_code.events import (
    Asked,
    Began,
    Notice,
    Output,
    Text,
    Thought,
    Usage,
)
from amas_code.places import home_directory

PASSING = (Text, Thought, Output)  # not kept: the message or result that they grow into is
PRIVATE = "# Written by amas: what is private to this machine stays out of git.\n" + "\n".join(
    ("sessions/", ".gitignore", "")
)


class Recorded(NamedTuple):
    """A session as its journal tells it."""

    id: str
    messages: list[dict]
    usage: list[Usage]


class Listed(NamedTuple):
    """A session in a list."""

    id: str
    path: Path
    prompt: str  # the first
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
        self.directory, self.emit = directory, emit
        self.id = id or time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)
        self.file: IO[bytes] | None = None
        self.failed = False

    @property
    def path(self) -> Path:
        return self.directory / f"{self.id}.jsonl"

    def listen(self, event) -> None:
        if isinstance(event, PASSING) or self.failed:
            return
        record = {"time": round(time.time(), 3), **line(event)}
        try:
            self.write(
                json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "replace")
            )
            if isinstance(event, Asked) or (
                isinstance(event, Began) and event.action.kind != "read"
            ):
                os.fsync(self.opened().fileno())
        except OSError as error:
            self.failed = True
            self.emit(Notice(f"This chat is not being saved: {self.path}: {error.strerror}."))

    def write(self, data: bytes) -> None:
        file = self.opened()
        file.write(data + b"\n")
        file.flush()

    def opened(self) -> IO[bytes]:
        """The file, made at the first event, its torn last line closed."""
        if self.file is None:
            prepare(self.directory)
            self.file = os.fdopen(
                os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600), "r+b"
            )
            if end := self.file.seek(0, os.SEEK_END):
                self.file.seek(end - 1)
                if self.file.read(1) != b"\n":
                    self.file.write(b"\n")
        return self.file

    def switch(self, id: str = "") -> None:
        """Go on with another session's file, or a new one."""
        if self.file:
            with contextlib.suppress(OSError):  # what a full disk did not take
                self.file.close()
        self.__init__(self.directory, self.emit, id)  # type: ignore[misc]


def prepare(directory: Path) -> None:
    """Make the directory, readable by the user alone, and keep it out of git."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    home = directory.parent
    if home.name == ".amas":
        home.chmod(0o700)
        if not (home / ".gitignore").exists():
            (home / ".gitignore").write_text(PRIVATE, "utf-8")


def place(root: Path, state: Path) -> Path:
    """Where a project's sessions lie: in it, or in our state directory if it is not writable."""
    inside = root / ".amas/sessions"
    if root not in (home_directory().resolve(), Path("/")) and os.access(
        inside if inside.exists() else root, os.W_OK
    ):
        return inside
    return state / "sessions" / str(root).strip("/").replace("/", "-")


def records(path: Path) -> Iterator[dict]:
    """The journal's lines; what is not a whole JSON object is passed over."""
    with path.open("rb") as file:
        for raw in file:
            try:
                record = json.loads(raw)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def load(path: Path) -> Recorded:
    """The conversation that a journal tells of. Raises OSError."""
    messages: list[dict] = []
    usage: list[Usage] = []
    for record in records(path):
        match record:
            case {"type": "said", "message": dict(message)}:
                messages.append(message)
            case {"type": "rewound", "length": int(length)}:
                del messages[length:]
            case {"type": "replaced", "messages": list(replaced)}:
                messages = replaced
            case {"type": "usage"} if record.keys() >= set(Usage._fields):
                usage.append(Usage(*(record[name] for name in Usage._fields)))
    return Recorded(path.stem, messages, usage)


def listed(directory: Path) -> list[Listed]:
    """The sessions of a project, newest first. One that cannot be read is left out."""
    found = []
    for path in directory.glob("*.jsonl"):
        try:
            prompt = next((r["prompt"] for r in records(path) if r.get("type") == "asked"), None)
            if prompt:
                info = path.stat()
                found.append(Listed(path.stem, path, str(prompt), info.st_mtime, info.st_size))
        except (OSError, KeyError):
            continue
    return sorted(found, key=lambda session: session.when, reverse=True)


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
