"""Works out what undo and redo come to on the files as they are now; changes nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from amas_code.events import Edit, ToolError
from amas_code.gitstore import Conflict, GitError, merge
from amas_code.oplog import Change, Log, Op, Record, contents, mode, told

Steps = list[tuple[str, Record]]  # "undo" or "redo", and which op


class Step(NamedTuple):
    """One op to be undone or done again, and what that comes to on the files as they are now."""

    kind: str  # "undo" or "redo"
    op: Op
    changes: tuple[Change, ...]


class Plan(NamedTuple):
    """What would be brought back, to be looked at first."""

    steps: tuple[Step, ...]
    only: frozenset[str] | None = None  # the names of the files to bring back; None: all
    refused: tuple[str, ...] = ()  # files that a command changed and the user since, and how

    def of_commands(self) -> list[Op]:
        """What commands did that would be taken back."""
        return [s.op for s in self.steps if (s.kind, s.op.kind) == ("undo", "command")]

    def edits(self) -> list[Edit]:
        """File by file."""
        changes = [change for step in self.steps for change in step.changes]
        last = {change.path: change.after for change in changes}
        first = {change.path: change.before for change in reversed(changes)}
        edits = (Edit(path, first[path], after) for path, after in last.items())
        return [edit for edit in edits if edit.before != edit.after]


def planned(
    log: Log, steps: Steps, only: frozenset[str] | None, real: Callable[[Path], Path]
) -> Plan:
    """The plan for these steps, one after another.

    Raises Conflict where an edit and what the user did since are in the same lines, ToolError where
    there is a link or a directory now. What a command did is left in such a file, and told.
    """
    now: dict[Path, bytes | None] = {}
    done, refused = [], list[str]()
    for kind, op in steps:
        changes = []
        for change in log.changes(op):
            if only is None or log.name(change.path) in only:
                try:
                    changes.append(replayed(kind, change, now, real))
                except (ToolError, OSError) as why:
                    what = str(why)
                    if isinstance(why, Conflict):
                        what = f"{log.name(change.path)} has changes of yours there.\n{why}"
                    if op["kind"] != "command":
                        kind_of = Conflict if isinstance(why, Conflict) else ToolError
                        raise kind_of(f"Nothing was changed: {what}") from None
                    refused.append(f"Left as it is: {what}")
        really = tuple(change for change in changes if change.before != change.after)
        done.append(Step(kind, told(op), really))
    return Plan(tuple(done), only, tuple(refused))


def replayed(
    kind: str, change: Change, now: dict[Path, bytes | None], real: Callable[[Path], Path]
) -> Change:
    """One file's change, forwards or backwards, on what is in the file `now`."""
    path, before, after, old_mode = change
    if path.is_dir():
        raise ToolError(f"{path} is a directory now.")
    mine = now[path] if path in now else contents(real(path))
    base, theirs = (after, before) if kind == "undo" else (before, after)
    try:
        now[path] = merge(mine, base, theirs)
    except GitError as error:
        raise Conflict(str(error)) from None
    return Change(path, mine, now[path], mode(path) or old_mode)
