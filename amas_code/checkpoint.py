"""Makes every edit a checkpoint: logged before it is written, committed alone, undone safely.

What commands did is known by snapshots, and can be undone as well.
"""

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from amas_code.events import Edit, ToolError
from amas_code.gitstore import GitError, Repo
from amas_code.landing import Landing
from amas_code.oplog import Cause, Change, Log, Op, Record, mode, one_line
from amas_code.replay import Plan, Steps, planned
from amas_code.signals import uninterrupted
from amas_code.snapshots import Effects, Snapshots

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

    def land(self, edits: Sequence[Edit], why: str, turn: int = 0) -> Op:
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
            return self._landing.carry_out(Cause("edit", why, self.session, turn), changes)

    def before_command(self, command: str, turn: int = 0) -> Record:
        """Note how all is before a command. Raises GitError or OSError if that is not possible."""
        with self._log.locked() as lock:
            self._repo.held = (lock,)
            return self._snapshots.begin(Cause("command", f"ran {command}", self.session, turn))

    def after_command(self, begun: Record) -> Effects:
        """Log what the command changed. Raises GitError or OSError, then that is not known."""
        with self._alone():
            return self._snapshots.end(begun)

    def undo(self, n: int = 1) -> Ops:
        """Take back the newest n. Raises Conflict, as `undoing` does."""
        return self.carry_out(self.undoing(n))

    def undoing(self, n: int | None = 1, since: int = 0, commands: bool = True) -> Plan:
        """What it would be to take back the newest n; what the user changed since then stays.

        since: only what came of this turn and later ones; commands: theirs, too.
        Raises Conflict if something is in the same lines.
        """
        live = [*self._log.stacks(self.session)[0].values()][::-1]
        wanted = [op for op in live if op.get("turn", 0) >= since]
        wanted = [op for op in wanted if commands or op["kind"] != "command"]
        return self._planned([("undo", op) for op in wanted[:n]])

    def redo(self, n: int = 1) -> Ops:
        """Do again what was undone last, unless something new was edited since. Raises Conflict."""
        return self.carry_out(self.redoing(n))

    def redoing(self, n: int = 1) -> Plan:
        _, undone = self._log.stacks(self.session)
        return self._planned([("redo", op) for op in [*undone.values()][::-1][:n]])

    def restoring(self, ref: str) -> Plan:
        """What would bring back what was live right after this op or mark. Raises Conflict."""
        last = self._log.find(ref)
        (now, _), (then, _) = self._log.stacks(), self._log.stacks(last=last)
        steps = [("undo", op) for id, op in reversed(now.items()) if id not in then]
        return self._planned(steps + [("redo", op) for id, op in then.items() if id not in now])

    def restore(self, ref: str) -> Ops:
        return self.carry_out(self.restoring(ref))

    def narrowed(self, plan: Plan, only: Collection[Path]) -> Plan:
        """The same, but other files stay as they are."""
        names = frozenset(self._log.name(path) for path in only)
        return self._planned(self._records(plan), names)

    def carry_out(self, plan: Plan) -> Ops:
        """Do what was planned, if it is still what was looked at. Raises ToolError if not."""
        if not plan.steps:
            return []
        with self._alone():
            if self._planned(self._records(plan), plan.only) != plan:
                raise ToolError("Nothing was changed: the files are not as they were just now.")
            done = Ops()
            for kind, op, changes in plan.steps:
                cause = Cause(kind, f"{kind}: {op.why}", self.session, op.turn, op.id)
                try:
                    done.append(self._landing.carry_out(cause, changes))
                except ToolError as why:
                    before = "".join(f"Done: {each.why}. Then it ended: " for each in done[-1:])
                    raise ToolError(f"{before}{why}") from why
            return done

    def save(self, name: str) -> Op:
        """Name the present point, for restore."""
        name = one_line(name)
        if not name or name.isdecimal():
            raise ToolError("Give the checkpoint a name that is not a number.")
        with self._alone():
            return self._landing.carry_out(Cause("mark", name, self.session))

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
            done = [said for op in cut_short if (said := self._recovered(op))]
            self._snapshots.tidy()
            return done

    def _recovered(self, op: Record) -> str:
        if op["kind"] != "command":
            return self._landing.finish(op)
        if self._snapshots.is_running(op):
            return ""
        try:
            done = self._snapshots.end(op).op
        except (GitError, OSError) as error:
            return f"A crash cut short what {op['why']}; what that changed is not known: {error}"
        if done is None:
            return ""
        many = f"{len(done.paths)} file{'s' * (len(done.paths) != 1)} changed"
        return f"A crash cut short what {op['why']}. Since then {many}, some perhaps by you: /undo."

    def list(self) -> Ops:
        """All that was carried out, oldest first."""
        return self._log.ops()

    def changes(self) -> Edits:
        """What the session's live edits come to, file by file, as the files are now."""
        return self._log.net(self.session)

    def _planned(self, steps: Steps, only: frozenset[str] | None = None) -> Plan:
        return planned(self._log, steps, only, self._real)

    def _records(self, plan: Plan) -> Steps:
        """The steps that can still be taken."""
        live, all = self._log.stacks()[0], self._log.records()
        return [
            (s.kind, all[s.op.id]) for s in plan.steps if (s.op.id in live) == (s.kind == "undo")
        ]

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
        return Log(git / "amas", self.root, in_git=True)

    @cached_property
    def _snapshots(self) -> Snapshots:
        return Snapshots(self._log, self._repo)

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
        real = Path(os.path.realpath(path.parent)) / path.name
        if real.is_symlink() or (path.is_relative_to(self.root) and real != path):
            raise ToolError(
                f"{path} is a link or behind one; edit {os.path.realpath(real)} itself."
            )
        return real
