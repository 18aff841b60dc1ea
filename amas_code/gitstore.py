"""Talks to git without ever touching what is not ours.

Covered: the user's hooks, fsmonitor, signing, filters, gc, fetches and prompts never run; variables
that point git at another repository are dropped; a commit holds only the given changes; in the
index only their entries move, and only if the commit succeeds; nothing in the work tree is written.
Not covered: a user's own git command in the few milliseconds between our index entry and our
commit would take our lines into its commit.
"""

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from amas_code.events import ToolError
from amas_code.oplog import Change

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
    try:
        done = subprocess.run(
            ["git", *OPTIONS, *args],
            cwd=cwd,
            env=environment(),
            input=data,
            capture_output=True,
            start_new_session=True,
            pass_fds=held,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise GitError(f"git {args[0]} did not end") from None
    except FileNotFoundError as error:
        gone = error.filename != "git"
        raise GitError(f"{cwd} is gone" if gone else "git is not installed") from None
    if done.returncode not in ok:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise GitError(
            said.removeprefix("fatal: ").removeprefix("error: ") or f"git {args[0]} failed"
        )
    return done


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
        try:
            self.top = Path(self._line("rev-parse", "--show-toplevel"))
            self.folder = Path(self._line("rev-parse", "--absolute-git-dir"))
        except GitError as error:
            self.missing = str(error)

    def commit(self, changes: Sequence[Change], why: str) -> str:
        """Commit these changes and nothing else on the current branch, and stage them likewise.

        They are replayed on what is committed and on what is staged, so the user's own lines in
        the same files stay as they were. Returns the commit's hash. Raises GitError if it would
        not be right; then nothing has changed.
        """
        branch, head = self._idle_branch()
        named = {self._name(change.path): change for change in changes}
        self._check_filters(list(named))
        committed, staged = self._committed(head, list(named)), self._staged(list(named))
        self._check_new({n: c for n, c in named.items() if n not in committed}, head)
        commit, stage = Entries(), Entries()
        for name, change in named.items():
            old = committed.get(name), staged.get(name)
            commit[name], stage[name] = self._replayed(name, change, *old)
        if all(entry == committed.get(name) for name, entry in commit.items()):
            raise GitError("the last commit holds it already")
        self._stage({n: entry for n, entry in stage.items() if entry != staged.get(n)})
        try:
            return self._import(branch, head, _subject(why), commit)
        except GitError:
            if self._head() == (branch, head):
                self._stage({name: staged.get(name) for name in stage})
            raise

    def made(self, why: str) -> str | None:
        """The last commit if it is the one that `commit` makes of this."""
        with contextlib.suppress(GitError):
            sha, _, subject = self._line("log", "-1", "--format=%H %s").partition(" ")
            return sha if subject == _subject(why) else None
        return None

    def fold(self) -> tuple[list[str], str]:
        """Make one commit of our unpushed commits at the tip of the branch.

        Returns their hashes, newest first, and that of the new one. Index and files stay as they
        are: the new commit holds what the newest held.
        """
        branch, head = self._idle_branch()
        ours = self._ours_at_tip(head) if head else []
        if len(ours) < 2:
            raise GitError("the branch does not end in two or more unpushed [amas] commits")
        lines = "\n".join(f"- {subject.removeprefix(PREFIX)}" for _, _, subject in reversed(ours))
        message = f"{PREFIX}{len(ours)} changes folded into one\n\n{lines}\n"
        parent = f"parent {ours[-1][1]}\n" if ours[-1][1] else ""
        tree = self._line("rev-parse", f"{head}^{{tree}}")
        text = f"tree {tree}\n{parent}author {self._who()}\ncommitter {self._who()}\n\n{message}"
        new = self._put(os.fsencode(text), "-t", "commit")
        self._git("update-ref", "-m", "amas: fold", branch, new, str(head))
        return [sha for sha, _, _ in ours], new

    # -- what is there ------------------------------------------------------------------------

    def _git(self, *args: str, data: bytes = b"", ok: Collection[int] = (0,)) -> bytes:
        return run(args, self.top, data, ok, self.held).stdout

    def _line(self, *args: str, data: bytes = b"") -> str:
        return os.fsdecode(self._git(*args, data=data)).removesuffix("\n")

    def _head(self) -> tuple[str, str | None]:
        """The branch's full name, and its commit unless it has none yet."""
        args = ("rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
        lines = os.fsdecode(self._git(*args, ok=(0, 128))).splitlines()
        if len(lines) != 2:
            return self._line("symbolic-ref", "-q", "HEAD"), None
        if lines[1] == "HEAD":
            raise GitError("detached HEAD")
        return lines[1], lines[0]

    def _idle_branch(self) -> tuple[str, str | None]:
        """The same, if this is no bad moment for a commit."""
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
        return self._head()

    def _name(self, path: Path) -> str:
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

    def _check_filters(self, names: list[str]) -> None:
        """A filter is a program, and that of Git LFS needs a server: asked before one could run."""
        said = self._git("check-attr", "-z", "--stdin", "filter", data=_joined(names)).split(b"\0")
        for name, value in zip(said[0::3], said[2::3], strict=False):
            if value not in (b"unspecified", b"unset"):
                which = value.decode(errors="replace")
                raise GitError(f"{os.fsdecode(name)} goes through the filter {which}")

    def _committed(self, head: str | None, names: Sequence[str]) -> Entries:
        """What the commit has under these names, and beside them."""
        if head is None or not names:
            return {}
        listing = self._git(
            "--literal-pathspecs", "ls-tree", "-z", "--full-tree", head, "--", *names
        )
        return {name: Entry(mode, blob) for (mode, _, blob), name in _listed(listing)}

    def _staged(self, names: Sequence[str]) -> Entries:
        listing = self._git("--literal-pathspecs", "ls-files", "-s", "-v", "-z", "--", *names)
        rows = _listed(listing)
        for (tag, *_), name in rows:
            if name not in names:
                raise GitError(f"{name} is staged where a file is now")
            if tag != "H":
                raise GitError(f"{name} is unmerged, or marked as one git shall not look at")
        return {name: Entry(mode, blob) for (_, mode, blob, _), name in rows}

    def _check_new(self, new: dict[str, Change], head: str | None) -> None:
        """What is not committed yet may be now only if the agent alone made it."""
        if not new:
            return
        for name, change in new.items():
            if change.before is not None:
                raise GitError(f"{name} was never committed")
        names = _joined(f"./{name}" for name in new)  # a name that begins with ":" is special
        if ignored := self._git("check-ignore", "-z", "--stdin", data=names, ok=(0, 1)):
            name = names_in(ignored)[0].removeprefix("./")
            raise GitError(f"{name} is ignored by git")
        folders = {folder.as_posix() for name in new for folder in list(Path(name).parents)[:-1]}
        for name, entry in self._committed(head, sorted(folders)).items():
            if entry and name in folders and entry.mode != "040000":
                raise GitError(f"{name} is no directory in the last commit")

    # -- what to do ---------------------------------------------------------------------------

    def _replayed(
        self, name: str, change: Change, committed: Entry | None, staged: Entry | None
    ) -> tuple[Entry | None, Entry | None]:
        """The change made to the committed and to the staged version of its file."""
        if committed and not committed.mode.startswith("100"):
            raise GitError(f"{name} is no plain file in the last commit")
        was, is_staged = committed and committed.blob, staged and staged.blob
        before, after = self._base(name, change.before, was), self._clean(name, change.after)
        try:
            blob = self._merged(was, before, after)
            index_blob = self._merged(is_staged, was, blob)
        except Conflict:
            raise GitError(f"{name} has changes of yours there that are not committed") from None
        mode = "100755" if (change.mode or 0) & 0o100 else "100644"
        mode = committed.mode if committed else mode
        commit = Entry(mode, blob) if blob else None
        return commit, Entry(staged.mode if staged else mode, index_blob) if index_blob else None

    def _base(self, name: str, before: bytes | None, was: str | None) -> str | None:
        """The blob of what was there before; mostly the committed one, then no git is run."""
        if before is None or was is None:
            return self._clean(name, before)
        algorithm = "sha256" if len(was) == 64 else "sha1"
        digest = hashlib.new(algorithm, b"blob %d\0" % len(before) + before).hexdigest()
        return was if digest == was else self._clean(name, before)

    def _clean(self, name: str, data: bytes | None) -> str | None:
        """Store contents as git would: line endings and encoding as the user has set them."""
        return None if data is None else self._put(data, f"--path={name}")

    def _put(self, data: bytes, *how: str) -> str:
        return self._line("hash-object", "-w", "--stdin", *how, data=data)

    def _merged(self, mine: str | None, base: str | None, theirs: str | None) -> str | None:
        """merge() on blobs; in the usual case nothing is read."""
        if mine == base:
            return theirs
        if theirs in (base, mine):
            return mine
        new = merge(*map(self._data, (mine, base, theirs)))
        return None if new is None else self._put(new, "--no-filters")

    def _data(self, blob: str | None) -> bytes | None:
        return None if blob is None else self._git("cat-file", "blob", blob)

    # -- doing it -----------------------------------------------------------------------------

    def _stage(self, entries: Entries) -> None:
        """Set or remove entries of the index, all or none; never in the place of other entries."""
        args: list[str] = []
        for name, entry in entries.items():
            args += ["--cacheinfo", f"{entry.mode},{entry.blob},{name}"] if entry else []
        gone = [name for name, entry in entries.items() if not entry]
        if entries:
            self._git("update-index", "--add", *args, "--force-remove", "--", *gone)

    def _import(self, branch: str, head: str | None, message: str, entries: Entries) -> str:
        """One commit by fast-import, which refuses if the branch has moved on from `head`."""
        text = message.encode(errors="replace")
        lines = [f"commit {branch}", "mark :1", f"committer {self._who()}", f"data {len(text)}"]
        stream = os.fsencode("\n".join(lines)) + b"\n" + text + b"\n"
        orders = [f"from {head}"] if head else []
        for name, entry in entries.items():
            quoted = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            what = f"M {entry.mode} {entry.blob}" if entry else "D"
            orders.append(f'{what} "{quoted}"')
        stream += os.fsencode("\n".join([*orders, "get-mark :1", "done", ""]))
        return self._line("fast-import", "--quiet", "--done", data=stream)

    def _ours_at_tip(self, head: str) -> list[tuple[str, str, str]]:
        """Our unpushed commits from the tip down to the first other one: hash, parent, subject."""
        options = ("--no-show-signature", "--first-parent", "--max-count=1000", "-z")
        log = self._git("log", *options, "--format=%H%n%P%n%s", head, "--not", "--remotes")
        ours = []
        for record in names_in(log):
            sha, parents, subject = record.split("\n", 2)
            if not subject.startswith(PREFIX) or " " in parents:
                break
            ours.append((sha, parents, subject))
        return ours

    def _who(self) -> str:
        """The user's own identity with the time, else ours."""
        if not self._author:
            self._author = NOBODY
            with contextlib.suppress(GitError):
                self._author = self._line("var", "GIT_AUTHOR_IDENT").rsplit(" ", 2)[0]
        return f"{self._author} {time.time():.0f} {time.strftime('%z')}"


def _subject(why: str) -> str:
    subject = PREFIX + why
    return subject if len(subject) <= SUBJECT else subject[: SUBJECT - 1] + "…"


def _joined(names: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)


def names_in(listing: bytes) -> list[str]:
    """The names that end with a NUL each."""
    return os.fsdecode(listing).split("\0")[:-1]


def _listed(listing: bytes) -> list[tuple[list[str], str]]:
    """Facts and name of each file that ls-tree or ls-files told."""
    rows = [record.partition("\t") for record in names_in(listing)]
    return [(facts.split(), name) for facts, _, name in rows]


BUSY = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
    "BISECT_LOG": "bisect",
}
