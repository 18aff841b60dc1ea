"""Lands a change so that it is whole or not there: intent, files, commit, outcome."""

from collections.abc import Sequence

from amas_code.events import ToolError
from amas_code.gitstore import GitError, Repo
from amas_code.oplog import NO_COMMIT, Cause, Change, Log, Op, Record, contents, synced, told


class Landing:
    """Carries changes out for who holds the log's lock. Without `commit` there is the log alone."""

    def __init__(self, log: Log, repo: Repo, commit: bool):
        self.log, self.repo, self.commit = log, repo, commit

    def carry_out(self, cause: Cause, changes: Sequence[Change] = ()) -> Op:
        """Log the intent, write all or none, commit, log the outcome.

        Raises ToolError if a file is not as the change found it, or cannot be written.
        """
        for change in changes:
            if contents(change.path) != change.before:
                name = self.log.name(change.path)
                raise ToolError(f"{name} changed on disk since it was read; read it again.")
        try:
            op = self.log.begin(cause, changes)
        except OSError as error:
            why = f"the log for /undo cannot be written ({error.strerror})"
            raise ToolError(f"Nothing was changed: {why}.") from error
        try:
            with synced(changes) as each:
                for change in changes:
                    change.put(each)
        except (OSError, ToolError) as error:
            self.drop(op, changes)
            names = ", ".join(self.log.name(change.path) for change in changes)
            said = error.strerror if isinstance(error, OSError) else error
            raise ToolError(f"Nothing was changed: {names}: {said}.") from error
        return self.settle(op, changes)

    def settle(self, op: Record, changes: Sequence[Change]) -> Op:
        commit, private = self.committed(op, changes) if changes else (None, None)
        outcome = {"id": op["id"], "state": "done", "commit": commit, "private": private}
        try:
            return told(self.log.add(outcome))
        except OSError as error:  # recover() will finish it
            why = f"the log for /undo cannot be written ({error.strerror})"
            raise ToolError(
                f"The change was made, but {why}; make room before you go on."
            ) from error

    def drop(self, op: Record, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.is_put():
                change.put_back()
        self.log.add({"id": op["id"], "state": "dropped"})

    def committed(self, op: Record, changes: Sequence[Change]) -> tuple[str | None, str | None]:
        """The commit, or why there is none."""
        if not self.commit:
            return None, "checkpoint_on_edit is false"
        if op["of"] and self.log.records()[op["of"]]["kind"] == "command":
            return None, NO_COMMIT
        try:
            return self.repo.commit(changes, op["why"]), None
        except GitError as error:
            return None, str(error)

    def finish(self, op: Record) -> str:
        """Finish or take back what a crash cut short, and say which."""
        try:
            changes = self.log.changes(op)
            for change in changes:
                change.sweep()
            if all(change.is_put() for change in changes):
                if not self.settle(op, changes).commit and (made := self.repo.made(op["why"])):
                    self.log.add({"id": op["id"], "commit": made, "private": None})
                return f"Finished what a crash had cut short: {op['why']}"
            self.drop(op, changes)
        except (OSError, ToolError) as error:
            return f"A crash cut short: {op['why']}; taking it back failed, see to it: {error}"
        return f"Took back what a crash had cut short: {op['why']}"
