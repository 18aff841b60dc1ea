"""What commands did to the project: private snapshots before and after, so that undo covers it.

They lie in a bare git repository of our own beside the log; the user's is only read. Covered: plain
files that git does not ignore, byte for byte whatever its attributes say, also where the project
has no repository. Not covered: ignored files and those over LARGEST, links, submodules and other
repositories inside, modes (a file that comes back gets the usual one, executable or not), empty
directories; branch, index and commits; all outside the project. What the user or another program
changed while a command ran cannot be told apart from what the command did.
"""

import contextlib
import fcntl
import os
import select
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple

from amas_code.events import ToolError
from amas_code.gitstore import (
    OPTIONS,
    GitError,
    Repo,
    beside,
    environment,
    finished,
    names_in,
    read_object,
    run,
)
from amas_code.oplog import GONE, NO_COMMIT, Cause, Change, Log, Op, Record, told
from amas_code.signals import uninterrupted

PATIENCE = 60.0  # seconds without a name from git
LARGEST = 10_000_000  # bytes of a file
MOST_FILES = 100_000  # not yet in a snapshot
MOST_BYTES = 500_000_000  # of those and of changed ones together
MANY_LOOSE = 8  # objects in one of 256 directories; more are swept up
OWN = (
    *("-c", "core.trustctime=true", "-c", "core.checkStat=default", "-c", "core.fileMode=true"),
    *("-c", "core.splitIndex=false", "-c", "core.untrackedCache=false"),
    *("-c", "core.sparseCheckout=false", "-c", "core.autocrlf=false"),
    *("-c", "core.looseCompression=1"),
)
Bytes = bytes | None  # of a file; None: there is none
UNSEEN = "what was in it before is not known"
AS_THEY_ARE = "* -text !filter -ident !working-tree-encoding\n"  # no attribute changes a byte


class Effects(NamedTuple):
    """What a command did, as far as that is known."""

    op: Op | None  # None: it changed no file that is covered
    others: tuple[str, ...] = ()  # what changed and is not covered, in words


class Snapshots:
    """The snapshots of one project. Who calls these methods holds the log's lock."""

    def __init__(self, log: Log, repo: Repo):
        self.log, self.repo, self.folder = log, repo, log.folder / "snapshots"
        self.unseen: dict[str, tuple] = {}  # files that are in no snapshot: why, size, time
        self.running: dict[str, IO] = {}  # by op: a lock that ends with this process

    def begin(self, cause: Cause) -> Record:
        """Note how all is before a command. Raises GitError or OSError where that is not possible.

        The op stays an intent while the command runs, so that recover() can end it after a crash.
        """
        tree = self.take(begins=True)
        with uninterrupted():
            op = self.log.begin(cause, tree=tree, unseen=[*self.unseen])
            try:
                self.running[op["id"]] = lock = open(self._flag(op), "w")  # noqa: SIM115
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError:
                self.log.add({"id": op["id"], "state": "dropped"})
                raise
        return op

    def is_running(self, op: Record) -> bool:
        """Whether the process that began it lives."""
        with contextlib.suppress(FileNotFoundError), open(self._flag(op)) as flag:
            try:
                fcntl.flock(flag, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def tidy(self) -> None:
        """Remove the flags of commands that have ended, which a crash may leave."""
        for flag in self.log.folder.glob("running-*"):
            op = self.log.records().get(flag.name.partition("-")[2])
            if op is None or op["state"] != "intent":
                flag.unlink()

    def end(self, op: Record) -> Effects:
        """Log what differs from when it began. Raises GitError or OSError; then it is dropped."""
        if op["id"] not in self.log.records():
            raise ToolError(GONE.format("That"))
        before, others = dict(self.unseen), list[str]()
        outcome: Record = {"state": "dropped"}
        try:
            files = self.log.kept(self._changes(op, self.take(), others), durable=False)
            if files:
                outcome = {"state": "done", "files": files, "commit": None, "private": NO_COMMIT}
        finally:
            ended = self.log.add({"id": op["id"], **outcome})
            self._flag(op).unlink(missing_ok=True)
            if flag := self.running.pop(op["id"], None):
                flag.close()
        both = {**before, **self.unseen}
        others += [
            f"{name} ({both[name][0]})"
            for name in both
            if before.get(name) != self.unseen.get(name)
        ]
        self._sweep()
        return Effects(told(ended) if files else None, tuple(dict.fromkeys(others)))

    def take(self, begins: bool = False) -> str:
        """A snapshot of the work tree as it is now; the name of its tree."""
        self._prepare()
        try:
            return self._taken(begins)
        except TooMuch:
            raise
        except GitError:  # such as a blob that the user's git has thrown away since
            (self.folder / "index").unlink(missing_ok=True)
            return self._taken(begins)

    # -- taking one ----------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make our repository. What the user's has committed need not be stored again."""
        (self.folder / "index.lock").unlink(missing_ok=True)  # we hold the lock: a crash left it
        marker, link = self.folder / "info/attributes", self.folder / "objects/info/alternates"
        theirs = os.fsencode(self._theirs[0]) if self._theirs else b""
        if marker.exists() and link.read_bytes() == theirs:
            return
        how = [f"--object-format={self._theirs[2]}"] if self._theirs else []
        run(("init", "-q", "--bare", "--template=", *how, str(self.folder)), self.log.root)
        link.write_bytes(theirs)
        (self.folder / "index").unlink(missing_ok=True)  # what it names may be elsewhere now
        marker.parent.mkdir(exist_ok=True)
        marker.write_text(AS_THEY_ARE)

    @cached_property
    def _theirs(self) -> tuple[Path, Path, str] | None:
        """Of the user's repository: objects, excluded files, object format."""
        if self.repo.folder is None:
            return None
        asked = ("--git-path", "objects", "--git-path", "info/exclude", "--show-object-format")
        lines = os.fsdecode(run(("rev-parse", *asked), self.repo.top).stdout).split("\n")
        return (self.repo.top / lines[0]).resolve(), self.repo.top / lines[1], lines[2]

    def _taken(self, begins: bool) -> str:
        known = self.folder / "tree"  # of the index as it is
        fresh = not (self.folder / "index").exists()
        asked = [self._args("diff-files", "-z", "--name-only")]
        if (begins or fresh) and self._theirs:  # what is tracked is covered even if it is ignored
            asked.append(("ls-files", "-z", "--cached", "--ignored", "--exclude-standard"))
        with beside(asked, self.log.root, self.repo.held) as running:
            unknown = self._unknown()
            dirty, *tracked = [names_in(finished(process).stdout) for process in running]
        gone, present = self._sorted(dirty, sum(tracked, unknown))
        if gone or present or fresh or not known.exists():
            known.unlink(missing_ok=True)
            for how, which in (("--force-remove", gone), ("--replace", present)):
                if which:
                    data = b"".join(os.fsencode(name) + b"\0" for name in which)
                    self._git("update-index", "-z", "--add", how, "--stdin", data=data)
            known.write_bytes(self._git("write-tree").stdout)
        return known.read_text().strip()

    def _unknown(self) -> list[str]:
        """Files that are in no snapshot yet."""
        args = ["ls-files", "-z", "--others", "--exclude-standard"]
        if self._theirs and self._theirs[1].exists():
            args.append(f"--exclude-from={self._theirs[1]}")
        if self.log.folder.is_relative_to(self.log.root):
            args.append(f"--exclude=/{self.log.name(self.log.folder)}/")
        names = list[str]()
        with self._started(subprocess.DEVNULL, *args) as process:
            try:
                for name in separated(process):
                    names.append(name)
                    if len(names) > MOST_FILES:
                        raise TooMuch(f"more than {MOST_FILES:,} files")
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise GitError("git could not list the files")
        return names

    def _sorted(self, dirty: list[str], unknown: list[str]) -> tuple[list[str], list[str]]:
        """Those that are gone, or not to be kept any more, and those that are to be looked at."""
        gone, present, size = list[str](), list[str](), 0
        self.unseen, indexed = {}, set(dirty)
        folders = dict[str, bool]()
        for name in dict.fromkeys(dirty + unknown):
            if name.endswith("/"):  # a repository inside
                continue
            path, folder = os.path.join(self.log.root, name), os.path.dirname(name)
            if folder not in folders:
                there = os.path.join(os.path.realpath(self.log.root), folder).rstrip("/")
                folders[folder] = os.path.realpath(there) == there
            info = os.lstat(path) if folders[folder] and os.path.lexists(path) else None
            if info is None or not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
                gone.append(name)
            elif why := unfit(path, info):
                self.unseen[name] = why, info.st_size, info.st_mtime_ns
                gone += [name] if name in indexed else []
            else:
                present.append(name)
                size += info.st_size
        if size > MOST_BYTES:
            raise TooMuch(f"more than {MOST_BYTES // 1_000_000} MB in files")
        return gone, present

    # -- comparing two -------------------------------------------------------------------------

    def _changes(self, op: Record, after: str, others: list[str]) -> Iterator[Change]:
        """What differs since then. The names of what cannot be brought back go to `others`."""
        if after == op["tree"]:
            return
        args = ("diff-tree", "-r", "-z", "--no-renames", op["tree"], after)
        parts = names_in(self._git(*args).stdout)
        rows = list[tuple[str, list[str]]]()
        for told_of, name in zip(parts[0::2], parts[1::2], strict=True):
            old, new, *blobs, _ = told_of.lstrip(":").split()
            if "120000" in (old, new):
                others.append(f"{name} (a link)")
            elif blobs[0] == blobs[1]:
                others.append(f"{name} (its mode)")
            else:
                rows.append((name, [old, *blobs]))
        landed, unseen = self._landed_since(op), {*op["unseen"], *self.unseen}
        began = self._began(op)
        left = {facts[1] for _, facts in rows if not facts[2].strip("0")}  # to be found elsewhere
        for name, facts in rows:
            if facts[0] == "000000" and facts[2] not in left and self._changed(name) < began:
                unseen.add(name)
        others += [f"{name} ({UNSEEN})" for name, _ in rows if name in unseen]
        rows = [row for row in rows if row[0] not in landed | unseen]
        contents = self._contents([blobs for _, (_, *blobs) in rows])
        mask = os.umask(0)
        os.umask(mask)
        for (name, (old, *_)), found in zip(rows, contents, strict=True):
            bits = (0o777 if old == "100755" else 0o666) & ~mask
            if found is None:
                others.append(f"{name} (what was in it is gone)")
            else:
                yield Change(self.log.root / name, *found, bits)

    def _began(self, op: Record) -> float:
        """When the command did, by the clock that stamps files."""
        with contextlib.suppress(OSError):
            return self._flag(op).stat().st_ctime
        return float("inf")

    def _changed(self, name: str) -> float:
        """When a file changed last; one that looks new, but did before the command, was hidden."""
        with contextlib.suppress(OSError):
            return os.lstat(self.log.root / name).st_ctime
        return 0.0

    def _contents(self, pairs: list[list[str]]) -> Iterator[tuple[Bytes, Bytes] | None]:
        """The bytes of each pair of blobs; None for the null one, which stands for no file.

        None in the place of a pair: the user's git has thrown one away.
        """
        with tempfile.TemporaryFile() as wanted:
            blobs = [blob for pair in pairs for blob in pair if blob.strip("0")]
            wanted.write("".join(f"{blob}\n" for blob in blobs).encode())
            wanted.seek(0)
            with self._started(wanted, "cat-file", "--batch") as process:
                assert process.stdout
                for pair in pairs:
                    old, new = [
                        read_object(process.stdout) if blob.strip("0") else ("", None)
                        for blob in pair
                    ]
                    yield (old[1], new[1]) if old and new else None

    def _landed_since(self, op: Record) -> set[str]:
        """The files that an edit changed while the command ran: those are no effect of it."""
        later = [each for id, each in self.log.records().items() if int(id) > int(op["id"])]
        return {name for each in later if each["kind"] != "command" for name, *_ in each["files"]}

    # -- our repository ------------------------------------------------------------------------

    def _flag(self, op: Record) -> Path:
        return self.log.folder / f"running-{op['id']}"

    def _args(self, *args: str) -> tuple[str, ...]:
        return (*OWN, f"--git-dir={self.folder}", f"--work-tree={self.log.root}", *args)

    def _git(self, *args: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return run(self._args(*args), self.log.root, data, held=self.repo.held)

    def _started(self, stdin: int | IO, *args: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["git", *OPTIONS, *self._args(*args)],
            cwd=self.log.root,
            env=environment(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _sweep(self) -> None:
        """Throw away what no snapshot holds any more; the log has all that undo needs."""
        if len(list(self.folder.glob("objects/17/*"))) > MANY_LOOSE:
            self._git("prune", "--expire=1.day.ago")


class TooMuch(GitError):
    """The project is larger than what is watched."""


def unfit(path: str, info: os.stat_result) -> str:
    """Why a file is in no snapshot; "" if it is."""
    if stat.S_ISLNK(info.st_mode):
        return ""
    return (
        "too large" if info.st_size > LARGEST else "" if os.access(path, os.R_OK) else "unreadable"
    )


def separated(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """The names that a process prints, with a NUL behind each. Raises GitError if it hangs."""
    assert process.stdout
    rest, stream = b"", process.stdout.fileno()
    while True:
        if not select.select([stream], [], [], PATIENCE)[0]:
            raise GitError("git hangs")
        if not (data := os.read(stream, 65536)):
            return
        *names, rest = (rest + data).split(b"\0")
        yield from map(os.fsdecode, names)
