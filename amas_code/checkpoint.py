"""Makes every edit a checkpoint: logged before it is written, committed alone, undone safely."""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from amas_code.events import Edit, ToolError
from amas_code.gitstore import Conflict, GitError, Repo, merge
from amas_code.landing import Landing
from amas_code.oplog import Change, Log, Op, Record, contents, mode, one_line
from amas_code.signals import uninterrupted

Ops = list[Op]  # where the method list() hides the type's name
Edits = list[Edit]


class Checkpoints:
    """Lands, undoes and lists the edits of one project.

    One process at a time changes things; Ctrl-C waits until a change is whole. `session` narrows
    undo and redo to that session's edits. Without `commit` there is the private log only.
    """

    def __init__(
        self, root: Path, session: str = "", commit: bool = True, state: Path | None = None
    ):
        self.given = Path(os.path.abspath(root))
        self.root = self.given.resolve()
        self.session, self.commit, self.state = session, commit, state or self.root / ".amas"

    def land(self, edits: Sequence[Edit], why: str) -> Op:
        """Write the edits, all or none, as one op and one commit.

        Raises ToolError if a file is not as the edit found it, or cannot be written.
        """
        with self._alone():
            paths = [self._real(edit.path) for edit in edits]
            changes = [
                Change(p, e.before, e.after, mode(p)) for p, e in zip(paths, edits, strict=True)
            ]
            if len(set(paths)) < len(paths):
                raise ToolError("Two edits of one file: make them one edit.")
            return self._landing.carry_out("edit", changes, why, self.session)

    def undo(self, n: int = 1) -> Ops:
        """Take back the newest edits, newest first; what the user changed since then stays.

        Raises Conflict if that is in the same lines; then nothing at all is changed.
        """
        with self._alone():
            live, _ = self._log.stacks(self.session)
            return self._replay([("undo", op) for op in [*live.values()][::-1][:n]])

    def redo(self, n: int = 1) -> Ops:
        """Do again what was undone last, unless something new was edited since. Raises Conflict."""
        with self._alone():
            _, undone = self._log.stacks(self.session)
            return self._replay([("redo", op) for op in [*undone.values()][::-1][:n]])

    def restore(self, ref: str) -> Ops:
        """Bring back what was live right after this op or mark. Raises Conflict, as undo does."""
        with self._alone():
            last = self._log.find(ref)
            (now, _), (then, _) = self._log.stacks(), self._log.stacks(last=last)
            steps = [("undo", op) for id, op in reversed(now.items()) if id not in then]
            return self._replay(steps + [("redo", op) for id, op in then.items() if id not in now])

    def save(self, name: str) -> Op:
        """Name the present point, for restore."""
        name = one_line(name)
        if not name or name.isdecimal():
            raise ToolError("Give the checkpoint a name that is not a number.")
        with self._alone():
            return self._landing.carry_out("mark", [], name, self.session)

    def squash(self) -> str:
        """Fold the unpushed [amas] commits at the tip of the branch into one; say what was done."""
        with self._alone():
            try:
                old, new = self._repo.fold()
            except GitError as error:
                raise ToolError(f"Nothing was folded: {error}.") from None
            folded = [op["id"] for op in self._log.records().values() if op.get("commit") in old]
            for id in folded:
                self._log.add({"id": id, "commit": new})
        return (
            f"Folded {len(old)} [amas] commits into {new[:10]}. Your files, what you staged and "
            f"/undo are as before; `git branch NAME {old[0][:10]}` keeps the single commits."
        )

    def recover(self) -> list[str]:
        """Finish or take back what a crash cut short; a sentence for the user on each."""
        if not self._log.folder.exists():
            return []
        with self._alone():
            cut_short = [op for op in self._log.records().values() if op["state"] == "intent"]
            return [self._landing.finish(op) for op in cut_short]

    def list(self) -> Ops:
        """All that was carried out, oldest first."""
        return self._log.ops()

    def changes(self) -> Edits:
        """What the session's live edits come to, file by file, as the files are now."""
        return self._log.net(self.session)

    # -- undo and redo -------------------------------------------------------------------------

    def _replay(self, steps: Sequence[tuple[str, Record]]) -> Ops:
        """Undo or redo on the files as they are now: all worked out first, then carried out."""
        now: dict[Path, bytes | None] = {}
        plan = []
        for kind, op in steps:
            changes = [self._replayed(kind, change, now) for change in self._log.changes(op)]
            changes = [change for change in changes if change.before != change.after]
            plan.append((kind, changes, f"{kind}: {op['why']}", self.session, op["id"]))
        return [self._landing.carry_out(*step) for step in plan]

    def _replayed(self, kind: str, change: Change, now: dict[Path, bytes | None]) -> Change:
        path, before, after, old_mode = change
        mine = now[path] if path in now else contents(self._real(path))
        base, theirs = (after, before) if kind == "undo" else (before, after)
        try:
            now[path] = merge(mine, base, theirs)
        except (Conflict, GitError) as overlap:
            what = f"Nothing was changed: {self._log.name(path)} has changes of yours there"
            raise Conflict(f"{what}.\n{overlap}") from None
        return Change(path, mine, now[path], mode(path) or old_mode)

    # -- where things are ----------------------------------------------------------------------

    @cached_property
    def _repo(self) -> Repo:
        return Repo(self.root)

    @cached_property
    def _log(self) -> Log:
        """In the git directory; under the state directory if there is none, or it began there."""
        key = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        aside = self.state / "checkpoints" / f"{self.root.name}-{key}"
        git = self._repo.folder
        if git is None or aside.exists() or not os.access(git, os.W_OK):
            return Log(aside, self.root)
        return Log(git / "amas", self.root)

    @cached_property
    def _landing(self) -> Landing:
        return Landing(self._log, self._repo, self.commit)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One writer at a time; the kernel lets the next in when we and our git are gone."""
        with self._log.locked() as lock, uninterrupted():
            self._repo.held = (lock,)
            yield

    def _real(self, path: Path) -> Path:
        """The file's own place. Raises ToolError if it is a link, or behind one in the project."""
        path = Path(os.path.normpath(path))
        if path.is_relative_to(self.given):
            path = self.root / path.relative_to(self.given)
        real = path.parent.resolve() / path.name
        if real.is_symlink() or (path.is_relative_to(self.root) and real != path):
            raise ToolError(f"{path} is a link or behind one; edit {real.resolve()} itself.")
        return real
