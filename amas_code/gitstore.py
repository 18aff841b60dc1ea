"""Talks to git without ever touching what is not ours.

Covered: the user's hooks, fsmonitor, signing, filters, gc, fetches and prompts never run; variables
that point git at another repository are dropped; a commit holds only the given changes; in the
index only their entries move, and only if the commit succeeds; nothing in the work tree is written.
Not covered: a user's own git command in the few milliseconds between our index entry and our
commit would take our lines into its commit; a `git gc --prune=now` in those milliseconds may take
what we store, as it does with any git.
"""

import contextlib
import hashlib
import os
import re
import select
import struct
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple

from amas_code.events import ToolError

NOBODY = "Amas Code <amas@localhost>"
PREFIX = "[amas] "
SUBJECT = 100  # characters at most in the first line of a commit's message
OPTIONS = (
    "--no-replace-objects",
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0"),
    *("-c", "protocol.allow=never", "-c", "core.safecrlf=false", "-c", "user.useConfigOnly=true"),
    *("-c", "log.showSignature=false"),
    *("-c", "merge.conflictStyle=merge", "-c", "i18n.logOutputEncoding=utf-8"),
)
SETTINGS = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
SETTINGS["GIT_ALLOW_PROTOCOL"] = "none"  # no program that a remote names; stronger than -c
MOST_KEPT = 1_000_000  # bytes
PATIENCE = 300.0  # seconds for one git; more and it hangs
# Of the user's own GIT_ variables these stay: who they are, and where their settings lie.
KEPT = (
    "GIT_AUTHOR_",
    "GIT_COMMITTER_",
    "GIT_CONFIG",
    "GIT_EXEC_PATH",
    "GIT_CEILING_",
    "GIT_DISCOVERY_",
)


class GitError(Exception):
    """Git, or the state of the repository, does not allow it. The message is the reason."""


class Conflict(ToolError):
    """The user's own lines and the agent's overlap; nothing was changed."""


class Entry(NamedTuple):
    """A file as a commit or the index holds it."""

    mode: str  # "100644"
    blob: str


Entries = dict[str, Entry | None]  # by name; None: no such entry
Process = subprocess.Popen[bytes]
TREE = "40000"  # the mode of a directory


def run(
    args: Sequence[str],
    cwd: Path | str,
    data: bytes = b"",
    ok: Collection[int] = (0,),
    held: tuple[int, ...] = (),
) -> subprocess.CompletedProcess[bytes]:
    """Run git away from the terminal. Raises GitError if it is missing or fails.

    `held` are open files it keeps open, so that a lock on them outlives us as long as it runs.
    """
    with beside([args], cwd, held) as (process,):
        return finished(process, data, ok)


@contextlib.contextmanager
def beside(
    commands: Iterable[Sequence[str]], cwd: Path | str, held: tuple[int, ...] = ()
) -> Iterator[list[Process]]:
    """Start several, which run at the same time. None is left at the end, however that comes."""
    with contextlib.ExitStack() as stack:
        running = list[Process]()
        try:
            for args in commands:
                running.append(stack.enter_context(_started(args, cwd, held)))
            yield running
        except BaseException:
            for process in running:
                process.kill()
            raise


def _started(args: Sequence[str], cwd: Path | str, held: tuple[int, ...]) -> Process:
    try:
        return subprocess.Popen(
            ["git", *OPTIONS, *args],
            cwd=cwd,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=held,
        )
    except FileNotFoundError as error:
        gone = error.filename != "git"
        raise GitError(f"{cwd} is gone" if gone else "git is not installed") from None


def finished(
    process: Process, data: bytes = b"", ok: Collection[int] = (0,)
) -> subprocess.CompletedProcess[bytes]:
    """Give it the rest of its input and wait for its end. Raises GitError if it fails."""
    assert isinstance(process.args, list)
    command = process.args[len(OPTIONS) + 1]
    try:
        said, errors = process.communicate(data, PATIENCE)
    except subprocess.TimeoutExpired:
        raise GitError(f"git {command} did not end") from None
    if process.returncode not in ok:
        why = errors.decode(errors="replace").strip().partition("\n")[0]
        why = why.removeprefix("fatal: ").removeprefix("error: ")
        raise GitError(why or f"git {command} failed")
    return subprocess.CompletedProcess(process.args, process.returncode, said, errors)


def environment() -> dict[str, str]:
    """That of amas, without what would point git at another repository."""
    own = {k: v for k, v in os.environ.items() if k[:4] != "GIT_" or k.startswith(KEPT)}
    return own | SETTINGS


def merge(mine: bytes | None, base: bytes | None, theirs: bytes | None) -> bytes | None:
    """`mine`, with what turned `base` into `theirs` done to it as well. None: no file.

    Raises Conflict with both versions of the lines that overlap, GitError if git is missing.
    """
    if mine == base:
        return theirs
    if theirs in (base, mine):
        return mine
    if mine is None or base is None or theirs is None:
        raise Conflict("one of the two has the file, the other does not")
    if b"\0" in mine + base + theirs:
        raise Conflict("a binary file that both changed")
    labels = ("-L", "yours", "-L", "base", "-L", "amas")
    with tempfile.TemporaryDirectory(prefix="amas-") as folder:
        for name, data in (("yours", mine), ("base", base), ("amas", theirs)):
            Path(folder, name).write_bytes(data)
        args = ("merge-file", "-p", *labels, "yours", "base", "amas")
        done = run(args, folder, ok=range(128))  # it ends with the number of conflicts
    if done.returncode:
        raise Conflict(_overlaps(done.stdout))
    return done.stdout


def _overlaps(merged: bytes) -> str:
    found = re.findall(rb"^<{7} yours\r?\n.*?^>{7} amas\r?$", merged, re.DOTALL | re.MULTILINE)
    return b"\n".join(found).decode(errors="replace").replace("\r", "")


class Repo:
    """The git work tree that holds `root`; where there is none, `missing` says why."""

    def __init__(self, root: Path):
        self.held: tuple[int, ...] = ()  # see run()
        self.top, self.missing, self._author = root, "", ""
        self.folder: Path | None = None  # .git; each linked work tree has its own
        self.format = "sha1"  # of the names of objects
        self.kept: dict[str, bytes] = {}  # by name: trees and commits of late
        try:
            self.top = Path(self._line("rev-parse", "--show-toplevel"))
            asked = self._line("rev-parse", "--show-object-format", "--absolute-git-dir")
            self.format, _, folder = asked.partition("\n")
            self.format = "sha256" if self.format == "sha256" else "sha1"  # an old git knows none
            self.folder = Path(folder)
        except GitError as error:
            self.missing = str(error)

    @contextlib.contextmanager
    def objects(self, branch: str) -> Iterator["Objects"]:
        """Those of the branch's newest commit; git is asked only for what is not known yet."""
        with contextlib.ExitStack() as stack:

            def reader() -> Process:
                return stack.enter_context(beside([("cat-file", "--batch")], self.top))[0]

            if sum(map(len, self.kept.values())) > MOST_KEPT:
                self.kept.clear()
            tip = self._loose(branch)
            yield Objects(reader, self.format, self.kept, tip if tip in self.kept else branch)

    def made(self, why: str) -> str | None:
        """The last commit if it is the one that `commit` makes of this."""
        with contextlib.suppress(GitError):
            sha, _, subject = self._line("log", "-1", "--format=%H %s").partition(" ")
            return sha if subject == first_line(why) else None
        return None

    def fold(self) -> tuple[list[str], str]:
        """Make one commit of our unpushed commits at the tip of the branch.

        Returns their hashes, newest first, and that of the new one. Index and files stay as they
        are: the new commit holds what the newest held.
        """
        branch, head = self._tip(self.idle_branch())
        ours = self._ours_at_tip(head) if head else []
        if len(ours) < 2:
            raise GitError("the branch does not end in two or more unpushed [amas] commits")
        lines = "\n".join(f"- {subject.removeprefix(PREFIX)}" for _, _, subject in reversed(ours))
        message = f"{PREFIX}{len(ours)} changes folded into one\n\n{lines}"
        tree = self._line("rev-parse", f"{head}^{{tree}}")
        data = commit_text(tree, ours[-1][1], self.who(), os.fsencode(message))
        new = self.put(data, "-t", "commit")
        self.git("update-ref", "-m", "amas: fold", branch, new, head)
        return [sha for sha, _, _ in ours], new

    # -- what is there ------------------------------------------------------------------------

    def git(self, *args: str, data: bytes = b"", ok: Collection[int] = (0,)) -> bytes:
        return run(args, self.top, data, ok, self.held).stdout

    def _line(self, *args: str, data: bytes = b"") -> str:
        return os.fsdecode(self.git(*args, data=data)).removesuffix("\n")

    def _branch(self) -> str:
        """The full name of the current one."""
        assert self.folder
        with contextlib.suppress(OSError):
            kind, _, name = (self.folder / "HEAD").read_bytes().strip().partition(b" ")
            if kind == b"ref:" and not name.endswith(b"/.invalid"):  # else git alone knows
                return os.fsdecode(name)
        if name := self.git("symbolic-ref", "-q", "HEAD", ok=(0, 1)).strip():
            return os.fsdecode(name)
        raise GitError("detached HEAD")

    def _loose(self, branch: str) -> str:
        """Its newest commit, if a file of its own tells; "" where only git knows."""
        assert self.folder
        with contextlib.suppress(OSError):
            return os.fsdecode((self.folder / branch).read_bytes().strip())
        return ""

    def is_at(self, branch: str, head: str) -> bool:
        """Whether this is the current branch, and its newest commit."""
        return self._tip(self._branch()) == (branch, head)

    def _tip(self, branch: str) -> tuple[str, str]:
        """The branch and its commit, which is "" if it has none yet."""
        said = self.git("rev-parse", "-q", "--verify", f"{branch}^0", ok=(0, 1))
        return branch, os.fsdecode(said).strip()

    def idle_branch(self) -> str:
        """The current branch, if this is no bad moment for a commit."""
        if self.folder is None:
            raise GitError(self.missing)
        for name, what in BUSY.items():
            if (self.folder / name).exists():
                raise GitError(f"a {what} is under way")
        patience = time.monotonic() + 0.3  # an editor that asks for the status is done by then
        while (self.folder / "index.lock").exists():
            if time.monotonic() > patience:
                raise GitError("another git is at work, or one crashed and left index.lock behind")
            time.sleep(0.02)
        return self._branch()

    def name(self, path: Path) -> str:
        """The path as git names it. Raises GitError if the file is not this repository's."""
        if not path.is_relative_to(self.top):
            raise GitError(f"{path} is outside the repository")
        name = path.relative_to(self.top)
        if ".git" in name.parts:
            raise GitError(f"{name} belongs to git itself")
        for folder in list(name.parents)[:-1]:
            if (self.top / folder / ".git").exists():
                raise GitError(f"{name} is in a submodule or another repository")
        return name.as_posix()

    def put(self, data: bytes, *how: str) -> str:
        """Store an object, and return its name."""
        return self._line("hash-object", "-w", "--stdin", *how, data=data)

    def stage(self, entries: Entries) -> None:
        """Set or remove entries of the index, all or none; never in the place of other entries."""
        args: list[str] = []
        for name, entry in entries.items():
            args += ["--cacheinfo", f"{entry.mode},{entry.blob},{name}"] if entry else []
        gone = [name for name, entry in entries.items() if not entry]
        if entries:
            self.git("update-index", "--add", *args, "--force-remove", "--", *gone)

    def _ours_at_tip(self, head: str) -> list[tuple[str, str, str]]:
        """Our unpushed commits from the tip down to the first other one: hash, parent, subject."""
        options = ("--no-show-signature", "--first-parent", "--max-count=1000", "-z")
        log = self.git("log", *options, "--format=%H%n%P%n%s", head, "--not", "--remotes")
        ours = []
        for record in names_in(log):
            sha, parents, subject = record.split("\n", 2)
            if not subject.startswith(PREFIX) or " " in parents:
                break
            ours.append((sha, parents, subject))
        return ours

    def who(self) -> str:
        """The user's own identity with the time, else ours."""
        if not self._author:
            self._author = NOBODY
            with contextlib.suppress(GitError):
                self._author = self._line("var", "GIT_AUTHOR_IDENT").rsplit(" ", 2)[0]
        return f"{self._author} {time.time():.0f} {time.strftime('%z')}"


class Objects:
    """Objects of a repository as `cat-file --batch` tells them, and new ones that are not stored.

    `head` and `tree` are those of a branch: "" if it has no commit yet. `kept` is shared by all
    that are made one after another; nothing in it can be out of date, as names tell contents.
    """

    def __init__(
        self, start: Callable[[], Process], algorithm: str, kept: dict[str, bytes], tip: str
    ):
        self._start, self.algorithm, self.kept = start, algorithm, kept
        self.added: dict[str, tuple[str, bytes]] = {}  # by name: kind, contents
        self._folders: dict[str, dict[str, Entry]] = {"": {}}  # by the name of their tree
        self.head, commit = (tip, kept[tip]) if tip in kept else self._read(tip) or ("", b"tree \n")
        self.tree = commit[5 : commit.index(b"\n")].decode()

    def find(self, path: str) -> Entry | None:
        """What the branch's commit has there."""
        folder, _, name = path.rpartition("/")
        above = self.find(folder) if folder else Entry(TREE, self.tree)
        return self._entries(above.blob).get(name) if above and above.mode == TREE else None

    def data(self, name: str | None) -> bytes | None:
        """What an object holds."""
        if name is None:
            return None
        if name in self.added:
            return self.added[name][1]
        if found := self._read(name):
            return found[1]
        raise GitError(f"{name} is missing in the repository")

    def add(self, kind: str, data: bytes) -> str:
        name = object_name(kind, data, self.algorithm)
        self.added[name] = kind, data
        if kind != "blob":
            self.kept[name] = data
        return name

    def add_tree(self, tree: str, entries: Entries) -> str:
        """A directory with these entries set or removed; "" if nothing is left in it."""
        rows, below = Entries(self._entries(tree)), dict[str, Entries]()
        for path, entry in entries.items():
            name, _, rest = path.partition("/")
            if rest:
                below.setdefault(name, {})[rest] = entry
            else:
                rows[name] = entry
        for name, inner in below.items():
            old = rows.get(name)
            new = self.add_tree(old.blob if old else "", inner)
            rows[name] = Entry(TREE, new) if new else None
        left = [(os.fsencode(name), entry) for name, entry in rows.items() if entry]
        left.sort(key=lambda row: row[0] + b"/" * (row[1].mode == TREE))
        lines = (b"%s %s\0%s" % (mode.encode(), n, bytes.fromhex(b)) for n, (mode, b) in left)
        return self.add("tree", b"".join(lines)) if left else ""

    def pack(self, *kinds: str) -> bytes:
        """What was added of these kinds, as `unpack-objects` takes it."""
        added = [(kind, data) for kind, data in self.added.values() if kind in kinds]
        parts = [struct.pack(">4sII", b"PACK", 2, len(added))]
        for kind, data in added:
            size, byte = len(data) >> 4, KINDS[kind] << 4 | len(data) & 15
            while size:
                parts.append(bytes([byte | 128]))
                size, byte = size >> 7, size & 127
            parts += [bytes([byte]), zlib.compress(data, 0)]
        pack = b"".join(parts)
        return pack + hashlib.new(self.algorithm, pack).digest()

    def _entries(self, tree: str) -> dict[str, Entry]:
        if tree not in self._folders:
            data = self.kept[tree] = self.kept.get(tree) or self.data(tree) or b""
            length = len(tree) // 2
            rows = re.findall(rb"([0-7]+) ([^\0]+)\0(.{%d})" % length, data, re.DOTALL)
            folder = self._folders[tree] = {
                os.fsdecode(name): Entry(mode.lstrip(b"0").decode(), blob.hex())
                for mode, name, blob in rows
            }
            size = sum(len(mode + name) + length + 2 for mode, name, _ in rows)
            if size != len(data) or len(folder) != len(rows):
                raise GitError(f"the directory {tree} is damaged")
        return self._folders[tree]

    @cached_property
    def _reader(self) -> Process:
        return self._start()

    def _read(self, name: str) -> tuple[str, bytes] | None:
        """The name of an object and what it holds. Raises GitError if git fails or hangs."""
        assert self._reader.stdin and self._reader.stdout
        with contextlib.suppress(BrokenPipeError):
            os.write(self._reader.stdin.fileno(), os.fsencode(f"{name}\n"))
        if not select.select([self._reader.stdout], [], [], PATIENCE)[0]:
            raise GitError("git cat-file did not end")
        return read_object(self._reader.stdout)


def commit_text(tree: str, parent: str, who: str, message: bytes) -> bytes:
    """A commit as git stores it; without parent if that is ""."""
    parents = f"parent {parent}\n" * bool(parent)
    return os.fsencode(f"tree {tree}\n{parents}author {who}\ncommitter {who}\n\n") + message + b"\n"


def object_name(kind: str, data: bytes, algorithm: str) -> str:
    """What git calls an object that holds this."""
    return hashlib.new(algorithm, b"%s %d\0" % (kind.encode(), len(data)) + data).hexdigest()


def read_object(stream: IO[bytes]) -> tuple[str, bytes] | None:
    """The next that a `cat-file --batch` tells of: its name and what it holds; None if missing.

    Raises GitError if the two do not belong together, or git ended.
    """
    facts = stream.readline().decode().split()
    if facts[-1:] == ["missing"]:
        return None
    if len(facts) != 3:
        raise GitError("git cat-file failed")
    data = stream.read(int(facts[2]))
    stream.read(1)
    name, kind = facts[:2]
    if object_name(kind, data, "sha256" if len(name) == 64 else "sha1") != name:
        raise GitError("what git gave back is not what was stored")
    return name, data


def first_line(why: str) -> str:
    subject = PREFIX + why
    return subject if len(subject) <= SUBJECT else subject[: SUBJECT - 1] + "…"


def joined(names: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def names_in(listing: bytes) -> list[str]:
    """The names that end with a NUL each."""
    return os.fsdecode(listing).split("\0")[:-1]


BUSY = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
}
KINDS = {"commit": 1, "tree": 2, "blob": 3}  # as packs have them
