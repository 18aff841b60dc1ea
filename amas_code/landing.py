"""Lands a change so that it is whole or not there: intent, files, commit, outcome."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from amas_code.events import ToolError
from amas_code.gitstore import (
    TREE,
    Conflict,
    Entries,
    Entry,
    GitError,
    Objects,
    Process,
    Repo,
    beside,
    commit_text,
    finished,
    first_line,
    joined,
    merge,
    names_in,
    object_name,
)
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
            return commit(self.repo, changes, op["why"]), None
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


def commit(repo: Repo, changes: Sequence[Change], why: str) -> str:
    """Commit these changes and nothing else on the current branch, and stage them likewise.

    They are replayed on what is committed and on what is staged, so the user's own lines in
    the same files stay as they were. Returns the commit's hash. Raises GitError if it would
    not be right; then nothing has changed.
    """
    branch = repo.idle_branch()
    named = {repo.name(change.path): change for change in changes}
    asked = [
        ("--literal-pathspecs", "ls-files", "-s", "-v", "-z", "--", *named),
        ("check-attr", "-z", "--stdin", "filter", "working-tree-encoding"),
        ("unpack-objects", "-q"),
        ("unpack-objects", "-q"),
        ("update-ref", "-m", "amas: edit", "-z", "--stdin"),
        *[("check-ignore", "-z", "--stdin")] * any(change.before is None for change in changes),
    ]
    with (
        beside(asked, repo.top, repo.held) as (index, attributes, blobs, all, update, *ignored),
        repo.objects(branch) as objects,
    ):
        draft = Draft(repo, objects, _encoded(attributes, named))
        committed = {name: objects.find(name) for name in named}
        staged = _staged(index, named)
        _check_new({n: c for n, c in named.items() if not committed[n]}, objects, *ignored)
        entries, stage = Entries(), Entries()
        for name, change in named.items():
            old = committed[name], staged.get(name)
            entries[name], stage[name] = draft.replayed(name, change, *old)
        if entries == committed:
            raise GitError("the last commit holds it already")
        made = draft.commit(entries, why)
        finished(blobs, objects.pack("blob"))
        repo.stage({n: entry for n, entry in stage.items() if entry != staged.get(n)})
        try:  # no sooner, and the blobs again: `git gc --prune=now` takes what nothing refers to
            finished(all, objects.pack("blob", "tree", "commit"))
            finished(update, _order(branch, made, objects.head))
        except GitError:
            if repo.is_at(branch, objects.head):
                repo.stage({name: staged.get(name) for name in stage})
            raise
        return made


class Draft:
    """A commit in the making: the changes replayed, as objects that are not stored yet."""

    def __init__(self, repo: Repo, objects: Objects, encoded: Collection[str]):
        self.repo, self.objects, self.encoded = repo, objects, encoded

    def replayed(
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

    def commit(self, entries: Entries, why: str) -> str:
        tree = self.objects.add_tree(self.objects.tree, entries) or self.objects.add("tree", b"")
        message = first_line(why).encode(errors="replace")
        text = commit_text(tree, self.objects.head, self.repo.who(), message)
        return self.objects.add("commit", text)

    def _base(self, name: str, before: bytes | None, was: str | None) -> str | None:
        """The blob of what was there before; mostly the committed one, then nothing is stored."""
        if before is not None and was == object_name("blob", before, self.objects.algorithm):
            return was
        return self._clean(name, before)

    def _clean(self, name: str, data: bytes | None) -> str | None:
        """Store contents as git would: line endings and encoding as the user has set them."""
        if data is None:
            return None
        if b"\r" in data or b"$Id" in data or name in self.encoded:  # else git changes no byte
            return self.repo.put(data, f"--path={name}")
        return self.objects.add("blob", data)

    def _merged(self, mine: str | None, base: str | None, theirs: str | None) -> str | None:
        """merge() on blobs; in the usual case nothing is read."""
        if mine == base:
            return theirs
        if theirs in (base, mine):
            return mine
        new = merge(*map(self.objects.data, (mine, base, theirs)))
        return None if new is None else self.objects.add("blob", new)


def _encoded(asked: Process, names: Collection[str]) -> set[str]:
    """The files that git has in another encoding. Raises GitError if one goes through a filter.

    A filter is a program, and that of Git LFS needs a server: known before one could run.
    """
    said = finished(asked, joined(names)).stdout.split(b"\0")
    facts = [
        (os.fsdecode(name), attribute, value.decode(errors="replace"))
        for name, attribute, value in zip(said[0::3], said[1::3], said[2::3], strict=False)
        if value not in (b"unspecified", b"unset")
    ]
    for name, attribute, value in facts:
        if attribute == b"filter":
            raise GitError(f"{name} goes through the filter {value}")
    return {name for name, _, _ in facts}


def _staged(asked: Process, names: Collection[str]) -> Entries:
    """What the index has under these names."""
    rows = [record.partition("\t") for record in names_in(finished(asked).stdout)]
    for facts, _, name in rows:
        if name not in names:
            raise GitError(f"{name} is staged where a file is now")
        if not facts.startswith("H "):
            raise GitError(f"{name} is unmerged, or marked as one git shall not look at")
    return {name: Entry(*facts.split()[1:3]) for facts, _, name in rows}


def _order(branch: str, new: str, old: str) -> bytes:
    """To `update-ref`: make this the branch's newest commit, if the old one is that still."""
    return os.fsencode(f"update {branch}\0{new}\0{old or '0' * len(new)}\0")


def _check_new(new: dict[str, Change], objects: Objects, *ignored: Process) -> None:
    """What is not committed yet may be now only if the agent alone made it."""
    for name, change in new.items():
        if change.before is not None:
            raise GitError(f"{name} was never committed")
        for folder in list(Path(name).parents)[:-1]:
            entry = objects.find(folder.as_posix())
            if entry and entry.mode != TREE:
                raise GitError(f"{folder} is no directory in the last commit")
    names = joined(f"./{name}" for name in new)  # one that begins with ":" is special
    for process in ignored:
        for name in names_in(finished(process, names, ok=(0, 1)).stdout):
            raise GitError(f"{name.removeprefix('./')} is ignored by git")
