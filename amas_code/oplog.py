"""The private log of changes: what each file held before and after, kept before it changes.

Plain files, not a git ref: `git push --mirror`, `git bundle --all` and `git log --all` take every
ref, and the log holds bytes of ignored and untracked files too. It needs no git, and nothing here
ever deletes from it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from amas_code.edits import write
from amas_code.events import Edit, ToolError

Record = dict[str, Any]  # id, time, files, state, and its Cause's; later commit, private
Records = dict[str, Record]  # by id, oldest first
FEW = 100  # files that are synced to the disk one by one
GONE = "{} is gone, and with it the log that undo needs; nothing was changed."
NO_COMMIT = "what commands do is not committed"


class Op(NamedTuple):
    """One logged change, as the user sees it."""

    id: str
    kind: str  # "edit", "command", "undo", "redo" or "mark" (a named save)
    paths: tuple[str, ...]  # from the project's root; absolute if outside
    why: str
    time: float
    commit: str | None  # on the user's branch
    private: str | None  # why it has no commit
    session: str
    turn: int  # which prompt of the session
    live: bool  # false for an edit or command that is undone now


class Cause(NamedTuple):
    """What brought a change about."""

    kind: str  # as in Op
    why: str
    session: str = ""
    turn: int = 0  # which prompt of the session
    of: str = ""  # the op that is undone or redone


class Change(NamedTuple):
    """One file before and after. `mode` is what it had, or gets back where it comes back."""

    path: Path  # absolute, behind no link
    before: bytes | None  # None: no file
    after: bytes | None
    mode: int | None = None

    def put(self, durable: bool = True) -> None:
        """Write the file, atomically."""
        write(self.path, self.after, durable)
        if self.before is None and self.after is not None and self.mode is not None:
            self.path.chmod(self.mode)

    def is_put(self) -> bool:
        return not self.path.is_symlink() and contents(self.path) == self.after

    def put_back(self) -> None:
        self._replace(before=self.after, after=self.before).put()

    def sweep(self) -> None:
        """Remove what a crash left of writing this file: its beginning, under a temporary name."""
        for left in self.path.parent.glob(".amas-*"):
            if left.is_file() and not left.is_symlink():
                data = left.read_bytes()
                if (self.before or b"").startswith(data) or (self.after or b"").startswith(data):
                    left.unlink()


def contents(path: Path) -> bytes | None:
    """The file's bytes; None if there is no file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would wait for its writer
    except (FileNotFoundError, NotADirectoryError):
        return None
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ToolError(f"{path} is no plain file.")
        return file.read()


def mode(path: Path) -> int | None:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


class Log:
    """An append-only file of records, and beside it the bytes they name.

    A record is a JSON object with an id; a later one with that id adds to it. Its state is
    "intent", then "done" or "dropped"; an intent that stays one is what a crash cut short. A torn
    line is left out. What was appended has reached the disk. Only who holds the lock may append.
    """

    def __init__(self, folder: Path, root: Path, in_git: bool = False):
        self.folder, self.root, self._file = folder, root, folder / "log.jsonl"
        self.in_git = in_git
        self._records = Records()
        self._inode = self._known = 0  # so many bytes of the file are in _records
        self._synced = set[str]()  # what was stored, and has reached the disk

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Wait until no other process holds the lock. Yields the file it is on."""
        try:
            self.folder.mkdir(mode=0o700, parents=not self.in_git, exist_ok=True)
        except FileNotFoundError:
            raise ToolError(GONE.format(self.folder.parent)) from None
        with open(self.folder / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file.fileno()

    def begin(self, cause: Cause, changes: Sequence[Change] = (), **more: Any) -> Record:
        """Log what is about to change."""
        op: Record = {"id": str(len(self.records()) + 1), "time": time.time()}
        op |= cause._asdict() | {"why": one_line(cause.why)}
        with synced(changes) as each:
            files = self.kept(changes, each)
        return self.add(op | {"files": files, "state": "intent"} | more)

    def kept(self, changes: Iterable[Change], durable: bool = True) -> list:
        """The changes as a record holds them, their bytes stored."""

        def keep(data: bytes | None) -> str | None:
            return self._keep(data, durable)

        return [(self.name(c.path), keep(c.before), keep(c.after), c.mode) for c in changes]

    def add(self, record: Record) -> Record:
        with open(self._file, "a+b") as file:
            file.seek(max(file.tell() - 1, 0))
            torn = file.read(1) not in (b"", b"\n")
            file.write(b"\n" * torn + json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return self.records()[record["id"]]

    def records(self) -> Records:
        """All that was logged, by other processes too."""
        inode = self._file.stat().st_ino if self._file.exists() else 0
        if (
            inode != self._inode
        ):  # another log by now, as a command may have made anew what it is in
            self._records, self._known, self._inode = Records(), 0, inode
            self._synced.clear()
        with contextlib.suppress(FileNotFoundError), open(self._file, "rb") as file:
            file.seek(self._known)
            whole, end, _ = file.read().rpartition(b"\n")
            self._known += len(whole + end)
            for line in whole.split(b"\n"):
                with contextlib.suppress(ValueError):
                    record = json.loads(line)
                    self._records.setdefault(record["id"], {}).update(record)
        return self._records

    def stacks(self, session: str = "", last: str = "") -> tuple[Records, Records]:
        """The live edits, and the undone ones that may be redone, each in the order they became so.

        Of one session, or of all; as of now, or as of the op `last`.
        """
        live, undone = Records(), Records()
        for id, op in self.records().items():
            match op["kind"] if op["state"] == "done" else "":
                case "edit" | "command":
                    live[id] = op
                    undone = {i: o for i, o in undone.items() if o["session"] != op["session"]}
                case "undo":
                    undone[op["of"]] = self._records[op["of"]]
                    live.pop(op["of"], None)
                case "redo":
                    live[op["of"]] = self._records[op["of"]]
                    undone.pop(op["of"], None)
            if id == last:
                break
        return of_session(live, session), of_session(undone, session)

    def ops(self) -> list[Op]:
        """All that was carried out, oldest first."""
        live, _ = self.stacks()
        done = [op for op in self.records().values() if op["state"] == "done"]
        return [told(op, op["kind"] not in ("edit", "command") or op["id"] in live) for op in done]

    def find(self, ref: str) -> str:
        """The id of an op that was meant by its id or, if a mark, by its name."""
        ops = self.records().values()
        ids = [
            op["id"] for op in ops if ref == op["id"] or (op["kind"], op["why"]) == ("mark", ref)
        ]
        if not ids:
            raise ToolError(f"No checkpoint is called {ref}; /checkpoint list shows them.")
        return ids[-1]

    def changes(self, op: Record) -> list[Change]:
        data = self._data
        return [
            Change(self.root / f, data(old), data(new), bits) for f, old, new, bits in op["files"]
        ]

    def net(self, session: str) -> list[Edit]:
        """What the live edits of a session come to, file by file, as the files are now."""
        first: dict[Path, bytes | None] = {}
        for op in self.stacks(session)[0].values():
            for change in self.changes(op):
                first.setdefault(change.path, change.before)
        edits = (Edit(path, before, contents(path)) for path, before in first.items())
        return [edit for edit in edits if edit.before != edit.after]

    def name(self, path: Path) -> str:
        inside = path.is_relative_to(self.root)
        return path.relative_to(self.root).as_posix() if inside else str(path)

    def _keep(self, data: bytes | None, durable: bool) -> str | None:
        """Store bytes, once however often they come. Returns their name."""
        if data is None:
            return None
        path = self.folder / hashlib.sha256(data).hexdigest()
        if not path.exists():
            write(path, zlib.compress(data, 6 if durable else 1), durable)
        elif durable and path.name not in self._synced:  # it may have been stored for a command
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        if durable:
            self._synced.add(path.name)
        return path.name

    def _data(self, name: str | None) -> bytes | None:
        return None if name is None else zlib.decompress((self.folder / name).read_bytes())


@contextlib.contextmanager
def synced(changes: Sequence[Change]) -> Iterator[bool]:
    """Whether to sync each file that is written for them; many are synced together at the end."""
    few = len(changes) <= FEW
    yield few
    if not few:
        os.sync()


def told(op: Record, live: bool = True) -> Op:
    paths = tuple(name for name, *_ in op["files"])
    facts = (op["why"], op["time"], op["commit"], op["private"], op["session"])
    return Op(op["id"], op["kind"], paths, *facts, op.get("turn", 0), live)


def of_session(ops: Records, session: str) -> Records:
    return {id: op for id, op in ops.items() if session in ("", op["session"])}


def one_line(text: str) -> str:
    """Without line breaks and control characters."""
    return "".join(char for char in " ".join(text.split()) if char.isprintable())
