"""Checkpoints on real repositories: the agent's lines come and go, the user's are never touched."""

import json
import os
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from amas_code import gitstore
from amas_code.checkpoint import Checkpoints
from amas_code.events import Edit, ToolError
from amas_code.gitstore import Conflict
from amas_code.oplog import Op

BASE = "".join(f"line {i}\n" for i in range(30))
USER = ("-c", "user.name=u", "-c", "user.email=u@e")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A user without any settings of git."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in [name for name in os.environ if name.startswith(("GIT_AUTHOR", "GIT_COMMITTER"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


@pytest.fixture
def repo(tmp_path):
    return project(tmp_path / "repo")


def project(root: Path, *options: str) -> Path:
    root.mkdir()
    git(root, "init", "-q", "-b", "main", *options)
    (root / "a.txt").write_text(BASE)
    (root / "b.txt").write_text("b\n")
    (root / ".gitignore").write_text("*.ign\n")
    commit_all(root, "init")
    return root


def git(repo: Path, *args: str, check: bool = True) -> str:
    done = subprocess.run(["git", *args], cwd=repo, check=check, capture_output=True)
    return os.fsdecode(done.stdout)


def commit_all(repo: Path, message: str) -> None:
    git(repo, "add", "-A")
    git(repo, *USER, "commit", "-qm", message)


def status(repo: Path) -> str:
    return git(repo, "status", "--porcelain", "-uall")


def head(repo: Path) -> str:
    return git(repo, "rev-parse", "HEAD")


def edit(path: Path, after: bytes | str | None) -> Edit:
    data = after.encode() if isinstance(after, str) else after
    return Edit(path, path.read_bytes() if path.exists() else None, data)


def land(checkpoints: Checkpoints, name: str, after: bytes | str | None, why: str = "edit") -> Op:
    return checkpoints.land([edit(checkpoints.root / name, after)], why)


def change(path: Path, old: str, new: str) -> None:
    """The user's own edit."""
    path.write_text(path.read_text().replace(f"{old}\n", f"{new}\n"))


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        text = text.replace(f"{old}\n", f"{new}\n")
    return text


EDITED = changed(BASE, ("line 3", "LINE 3"))


def users_things(repo: Path, ours: set[str]) -> tuple:
    """All that is the user's: bytes, index, stash, configuration."""
    files = {
        path.relative_to(repo).as_posix(): path.read_bytes()
        for path in repo.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }
    others = [f":!{name}" for name in ours]
    return (
        {name: data for name, data in files.items() if name not in ours},
        git(repo, "stash", "list"),
        git(repo, "diff", "--cached", "--", ".", *others),
        (repo / ".git/config").read_text(),
    )


# -- what is committed --------------------------------------------------------------------------


def test_a_commit_holds_only_the_agents_edit(repo):
    (repo / "b.txt").write_text("user dirty\n")
    (repo / "untracked.txt").write_text("u\n")
    (repo / "x.ign").write_text("i\n")
    (repo / "staged.txt").write_text("s\n")
    git(repo, "add", "staged.txt")
    before = users_things(repo, {"a.txt"})
    op = land(Checkpoints(repo), "a.txt", EDITED, "edit a.txt: shout")
    assert op.commit == head(repo).strip() and op.private is None
    assert git(repo, "log", "-1", "--format=%s") == "[amas] edit a.txt: shout\n"
    assert git(repo, "show", "--name-only", "--format=", "HEAD").split() == ["a.txt"]
    assert users_things(repo, {"a.txt"}) == before
    assert sorted(status(repo).splitlines()) == [" M b.txt", "?? untracked.txt", "A  staged.txt"]


def test_several_edits_are_one_op_and_one_commit(repo):
    checkpoints = Checkpoints(repo)
    edits = [edit(repo / "a.txt", EDITED), edit(repo / "new.py", "1\n"), edit(repo / "b.txt", None)]
    op = checkpoints.land(edits, "edit three files")
    assert op.paths == ("a.txt", "new.py", "b.txt")
    assert git(repo, "rev-list", "--count", "HEAD") == "2\n"
    assert status(repo) == ""
    checkpoints.undo()
    assert (repo / "a.txt").read_text() == BASE and (repo / "b.txt").read_text() == "b\n"
    assert not (repo / "new.py").exists() and status(repo) == ""


def test_the_users_lines_in_the_same_file_stay_uncommitted(repo):
    path = repo / "a.txt"
    change(path, "line 25", "USER 25")
    checkpoints = Checkpoints(repo)
    assert land(checkpoints, "a.txt", changed(path.read_text(), ("line 3", "LINE 3"))).commit
    assert git(repo, "show", "HEAD:a.txt") == EDITED
    assert git(repo, "diff", "--cached") == ""
    checkpoints.undo()
    assert path.read_text() == changed(BASE, ("line 25", "USER 25"))
    checkpoints.redo()
    assert path.read_text() == changed(EDITED, ("line 25", "USER 25"))


def test_what_is_staged_in_the_same_file_stays_staged(repo):
    path = repo / "a.txt"
    change(path, "line 10", "STAGED 10")
    git(repo, "add", "a.txt")
    change(path, "line 25", "USER 25")
    land(Checkpoints(repo), "a.txt", changed(path.read_text(), ("line 3", "LINE 3")))
    staged, unstaged = git(repo, "diff", "--cached", "-U0"), git(repo, "diff", "-U0")
    assert "+STAGED 10" in staged and "LINE 3" not in staged and "USER" not in staged
    assert "+USER 25" in unstaged and "LINE 3" not in unstaged


def test_edits_over_the_users_uncommitted_lines_are_not_committed(repo):
    change(repo / "a.txt", "line 3", "USER 3")
    checkpoints, was = Checkpoints(repo), head(repo)
    op = land(checkpoints, "a.txt", EDITED)
    assert op.commit is None and "changes of yours" in op.private and head(repo) == was
    checkpoints.undo()
    assert (repo / "a.txt").read_text() == changed(BASE, ("line 3", "USER 3"))


def test_a_staged_deletion_stays_staged(repo):
    git(repo, "rm", "-q", "--cached", "a.txt")
    op = land(Checkpoints(repo), "a.txt", EDITED)
    assert op.private and git(repo, "diff", "--cached", "--name-status") == "D\ta.txt\n"


def test_the_users_untracked_file_is_never_committed(repo):
    (repo / "notes.txt").write_text("mine\n")
    checkpoints, was = Checkpoints(repo), head(repo)
    op = land(checkpoints, "notes.txt", "mine\nagent\n")
    assert "never committed" in op.private
    assert head(repo) == was and status(repo) == "?? notes.txt\n"
    checkpoints.undo()
    assert (repo / "notes.txt").read_text() == "mine\n"


def test_a_new_file_the_user_staged_is_not_committed_for_him(repo):
    (repo / "notes.txt").write_text("mine\n")
    git(repo, "add", "notes.txt")
    assert "never committed" in land(Checkpoints(repo), "notes.txt", "mine\nagent\n").private
    assert git(repo, "show", ":notes.txt") == "mine\n"


def test_an_ignored_file_is_never_committed(repo):
    checkpoints, was = Checkpoints(repo), head(repo)
    assert land(checkpoints, "secret.ign", "k\n").private == "secret.ign is ignored by git"
    assert head(repo) == was
    checkpoints.undo()
    assert not (repo / "secret.ign").exists()


def test_a_file_in_place_of_a_directory_does_not_remove_what_is_committed_there(repo):
    (repo / "d").mkdir()
    (repo / "d/x").write_text("x\n")
    commit_all(repo, "d")
    (repo / "d/x").unlink()
    (repo / "d").rmdir()
    assert land(Checkpoints(repo), "d", "now a file\n").private
    assert git(repo, "ls-tree", "-r", "--name-only", "HEAD", "d") == "d/x\n"


@pytest.mark.parametrize("staged", [False, True])
def test_a_directory_in_place_of_a_file_does_not_remove_what_is_committed_there(repo, staged):
    (repo / "b.txt").unlink()
    if staged:
        git(repo, "rm", "-q", "--cached", "b.txt")
    index = git(repo, "ls-files", "-s")
    assert land(Checkpoints(repo), "b.txt/x", "below\n").private
    assert git(repo, "ls-tree", "--name-only", "HEAD", "b.txt") == "b.txt\n"
    assert git(repo, "ls-files", "-s") == index


def test_a_staged_file_is_not_replaced_by_a_directory_of_its_name(repo):
    (repo / "d").write_text("mine\n")
    git(repo, "add", "d")
    (repo / "d").unlink()
    assert land(Checkpoints(repo), "d/x", "below\n").private
    assert git(repo, "show", ":d") == "mine\n"


def test_without_commits_there_is_the_private_log_only(repo):
    checkpoints, was = Checkpoints(repo, commit=False), head(repo)
    assert land(checkpoints, "a.txt", EDITED).private == "checkpoint_on_edit is false"
    assert head(repo) == was and status(repo) == " M a.txt\n"
    checkpoints.undo()
    assert status(repo) == ""


def test_the_log_is_in_no_ref_that_a_push_would_take(repo):
    land(Checkpoints(repo), "secret.ign", "password\n")
    refs = git(repo, "for-each-ref", "--format=%(refname)").split()
    assert refs == ["refs/heads/main"] and status(repo) == ""
    assert (repo / ".git/amas").stat().st_mode & 0o077 == 0


def test_the_author_is_the_users_identity_else_ours(repo):
    author = ("log", "-1", "--format=%an <%ae> %cn <%ce>")
    land(Checkpoints(repo), "a.txt", EDITED)
    assert git(repo, *author) == "Amas Code <amas@localhost> Amas Code <amas@localhost>\n"
    git(repo, "config", "user.name", "Zoë")
    git(repo, "config", "user.email", "z@e")
    land(Checkpoints(repo), "a.txt", BASE)
    assert git(repo, *author) == "Zoë <z@e> Zoë <z@e>\n"


def test_a_subject_is_one_line_of_at_most_100_characters(repo):
    land(Checkpoints(repo), "a.txt", EDITED, "edit a.txt: \x1b[31mred\n\nand " + "long " * 40)
    subject = git(repo, "log", "-1", "--format=%B").rstrip("\n")
    assert len(subject) == 100 and subject.isprintable()
    assert subject.startswith("[amas] edit a.txt: [31mred and long")


# -- undo and redo ------------------------------------------------------------------------------


def test_create_and_delete_are_undone_and_redone(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "new/dir/n.py", "1\n", "create")
    land(checkpoints, "b.txt", None, "delete")
    assert status(repo) == "" and not (repo / "b.txt").exists()
    assert [op.why for op in checkpoints.undo(2)] == ["undo: delete", "undo: create"]
    assert (repo / "b.txt").read_text() == "b\n" and not (repo / "new/dir/n.py").exists()
    assert status(repo) == "" and git(repo, "diff", "HEAD~4") == ""
    assert [op.why for op in checkpoints.redo(5)] == ["redo: create", "redo: delete"]
    assert not (repo / "b.txt").exists() and (repo / "new/dir/n.py").exists()
    assert checkpoints.redo() == []


def test_undo_keeps_the_users_later_edits_and_commits(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "a.txt", EDITED)
    change(repo / "a.txt", "line 20", "USER 20")
    (repo / "b.txt").write_text("user b\n")
    git(repo, "add", "b.txt")
    git(repo, *USER, "commit", "-qm", "user work")
    checkpoints.undo()
    assert (repo / "a.txt").read_text() == changed(BASE, ("line 20", "USER 20"))
    assert (repo / "b.txt").read_text() == "user b\n"
    assert git(repo, "log", "-2", "--format=%s") == "[amas] undo: edit\nuser work\n"
    assert git(repo, "show", "HEAD:a.txt") == BASE and status(repo) == " M a.txt\n"


def test_undo_after_a_push_adds_a_commit_and_rewrites_none(repo, tmp_path):
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    git(repo, "remote", "add", "origin", str(tmp_path / "remote.git"))
    checkpoints = Checkpoints(repo)
    land(checkpoints, "a.txt", EDITED, "edit a.txt: shout")
    git(repo, "push", "-q", "-u", "origin", "main")
    pushed = head(repo)
    checkpoints.undo()
    assert git(repo, "rev-parse", "HEAD^") == pushed
    assert git(repo, "log", "-2", "--format=%s").split("\n")[:2] == [
        "[amas] undo: edit a.txt: shout",
        "[amas] edit a.txt: shout",
    ]
    git(repo, "push", "-q")  # a fast-forward
    assert (repo / "a.txt").read_text() == BASE and status(repo) == ""


def test_undo_refuses_where_the_user_changed_the_same_lines_and_shows_both(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "a.txt", EDITED)
    change(repo / "a.txt", "LINE 3", "MINE 3")
    was = head(repo)
    with pytest.raises(Conflict, match=r"(?s)a\.txt.*MINE 3.*line 3"):
        checkpoints.undo()
    assert (repo / "a.txt").read_text() == changed(BASE, ("line 3", "MINE 3"))
    assert head(repo) == was and [op.kind for op in checkpoints.list()] == ["edit"]


def test_undo_of_several_changes_nothing_at_all_if_one_overlaps(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "a.txt", EDITED)
    land(checkpoints, "b.txt", "agent\n")
    change(repo / "a.txt", "LINE 3", "MINE 3")
    with pytest.raises(Conflict):
        checkpoints.undo(2)
    assert (repo / "b.txt").read_text() == "agent\n" and len(checkpoints.list()) == 2


def test_undo_never_removes_a_new_file_the_user_went_on_with(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "new.py", "1\n")
    change(repo / "new.py", "1", "1\nmine")
    with pytest.raises(Conflict):
        checkpoints.undo()
    assert (repo / "new.py").read_text() == "1\nmine\n"


def test_a_new_edit_ends_redo(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "a.txt", EDITED)
    checkpoints.undo()
    land(checkpoints, "b.txt", "agent\n")
    assert checkpoints.redo() == []


def test_undo_is_of_this_session_only(repo):
    one, two = Checkpoints(repo, "one"), Checkpoints(repo, "two")
    land(one, "a.txt", EDITED)
    assert two.undo() == [] and (repo / "a.txt").read_text() == EDITED
    assert [op.session for op in one.list()] == ["one"]
    assert len(Checkpoints(repo).undo()) == 1 and one.undo() == []
    assert len(one.redo()) == 1 and (repo / "a.txt").read_text() == EDITED


def test_list_tells_what_is_live(repo):
    checkpoints = Checkpoints(repo)
    assert checkpoints.list() == []
    first = land(checkpoints, "a.txt", EDITED, "one")
    assert first == checkpoints.list()[0]
    land(checkpoints, "b.txt", "agent\n", "two")
    checkpoints.undo()
    seen = [(op.id, op.kind, op.why, op.live) for op in Checkpoints(repo).list()]
    assert seen == [
        ("1", "edit", "one", True),
        ("2", "edit", "two", False),
        ("3", "undo", "undo: two", True),
    ]


def test_restore_by_id_is_itself_redoable_and_survives_gc(repo):
    checkpoints = Checkpoints(repo)
    ids = [land(checkpoints, "a.txt", changed(BASE, ("line 3", f"V{i}"))).id for i in range(4)]
    assert len(checkpoints.restore(ids[1])) == 2
    assert (repo / "a.txt").read_text() == changed(BASE, ("line 3", "V1"))
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")
    Checkpoints(repo).redo(2)
    assert (repo / "a.txt").read_text() == changed(BASE, ("line 3", "V3"))


def test_restore_by_name_brings_back_what_was_live_there(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "a.txt", EDITED)
    mark = checkpoints.save("before the\nrewrite")
    assert mark.kind == "mark" and mark.why == "before the rewrite"
    checkpoints.undo()
    land(checkpoints, "b.txt", "agent\n")
    checkpoints.restore("before the rewrite")
    assert (repo / "a.txt").read_text() == EDITED and (repo / "b.txt").read_text() == "b\n"
    assert checkpoints.restore(mark.id) == []


@pytest.mark.parametrize("name", ["", " \n", "12"])
def test_a_mark_needs_a_name_that_cannot_be_an_id(repo, name):
    with pytest.raises(ToolError, match="name"):
        Checkpoints(repo).save(name)


def test_restore_of_an_unknown_checkpoint_says_so(repo):
    with pytest.raises(ToolError, match="/checkpoint list"):
        Checkpoints(repo).restore("7")


# -- all or nothing -----------------------------------------------------------------------------


def test_a_file_changed_since_it_was_read_is_not_written(repo):
    stale = edit(repo / "a.txt", EDITED)
    (repo / "a.txt").write_text("mine\n")
    checkpoints = Checkpoints(repo)
    with pytest.raises(ToolError, match=r"a\.txt changed on disk .* read it again"):
        checkpoints.land([edit(repo / "b.txt", "agent\n"), stale], "two")
    assert (repo / "a.txt").read_text() == "mine\n" and (repo / "b.txt").read_text() == "b\n"
    assert checkpoints.list() == [] and checkpoints.recover() == []


def test_if_one_file_cannot_be_written_none_is(repo):
    checkpoints = Checkpoints(repo)
    edits = [edit(repo / "b.txt", None), edit(repo / "a.txt/below", "no\n")]
    with pytest.raises(ToolError, match="Nothing was changed"):
        checkpoints.land(edits, "two")
    assert (repo / "b.txt").read_text() == "b\n" and status(repo) == ""
    assert checkpoints.list() == [] and checkpoints.recover() == []


def test_two_edits_of_one_file_in_one_call_are_refused(repo):
    edits = [edit(repo / "a.txt", EDITED), edit(repo / "a.txt", "other\n")]
    with pytest.raises(ToolError, match="one edit"):
        Checkpoints(repo).land(edits, "twice")
    assert (repo / "a.txt").read_text() == BASE


def test_links_are_neither_written_through_nor_replaced(repo, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f.txt").write_text("mine\n")
    (repo / "file").symlink_to(repo / "a.txt")
    (repo / "folder").symlink_to(outside)
    (repo / "dangling").symlink_to(outside / "none")
    checkpoints = Checkpoints(repo)
    for name in ("file", "folder/f.txt", "folder/new.txt", "dangling"):
        with pytest.raises(ToolError, match="link"):
            land(checkpoints, name, "agent\n")
    assert (repo / "file").is_symlink() and (repo / "a.txt").read_text() == BASE
    assert [path.name for path in outside.iterdir()] == ["f.txt"]
    assert (outside / "f.txt").read_text() == "mine\n"


def test_undo_refuses_a_file_that_became_a_link(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "b.txt", "agent\n")
    (repo / "b.txt").rename(repo / "c.txt")
    (repo / "b.txt").symlink_to("c.txt")
    with pytest.raises(ToolError, match="link"):
        checkpoints.undo()
    assert (repo / "c.txt").read_text() == "agent\n" and (repo / "b.txt").is_symlink()


def test_a_project_reached_through_a_link_works(repo, tmp_path):
    (tmp_path / "alias").symlink_to(repo)
    checkpoints = Checkpoints(tmp_path / "alias")
    op = checkpoints.land([edit(tmp_path / "alias/a.txt", EDITED)], "edit")
    assert op.commit and op.paths == ("a.txt",)


def test_a_file_outside_the_project_is_logged_and_undone(repo, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("mine\n")
    checkpoints = Checkpoints(repo)
    op = checkpoints.land([edit(other, "agent\n")], "edit")
    assert op.paths == (str(other),) and "outside" in op.private
    checkpoints.undo()
    assert other.read_text() == "mine\n"


# -- what git must not do -----------------------------------------------------------------------


def test_no_hook_no_signing_and_no_monitor_ever_runs(repo, tmp_path):
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 >> {ran}\nexit 1\n")
    program.chmod(0o755)
    hooks = (
        "pre-commit prepare-commit-msg commit-msg post-commit post-rewrite post-checkout "
        "reference-transaction post-index-change fsmonitor-watchman"
    )
    for hook in hooks.split():
        (repo / ".git/hooks").mkdir(exist_ok=True)
        (repo / ".git/hooks" / hook).symlink_to(program)
    for key in ("gpg.program", "core.fsmonitor", "core.editor", "core.pager", "log.showSignature"):
        git(repo, "config", key, "true" if key.endswith("ture") else str(program))
    git(repo, "config", "commit.gpgSign", "true")
    checkpoints = Checkpoints(repo)
    assert land(checkpoints, "a.txt", EDITED).commit
    assert checkpoints.undo()[0].commit and checkpoints.redo()[0].commit
    checkpoints.squash()
    assert not ran.exists()


def test_files_behind_a_filter_are_logged_only_and_the_filter_never_runs(repo, tmp_path):
    ran = tmp_path / "ran"
    (repo / ".gitattributes").write_text("*.big filter=lfs -text\n")
    commit_all(repo, "attributes")
    git(repo, "config", "filter.lfs.clean", f"touch {ran}; cat")
    git(repo, "config", "filter.lfs.required", "true")
    checkpoints = Checkpoints(repo)
    op = land(checkpoints, "model.big", b"\0\1")
    assert op.private == "model.big goes through the filter lfs"
    checkpoints.undo()
    assert not ran.exists() and not (repo / "model.big").exists()


def test_variables_that_redirect_git_are_ignored(repo, tmp_path, monkeypatch):
    other = project(tmp_path / "other")
    was, index = head(other), git(other, "ls-files", "-s")
    with monkeypatch.context() as env:
        env.setenv("GIT_DIR", str(other / ".git"))
        env.setenv("GIT_WORK_TREE", str(other))
        env.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
        assert land(Checkpoints(repo), "a.txt", EDITED).commit
    assert head(other) == was and git(other, "ls-files", "-s") == index
    assert git(repo, "log", "-1", "--format=%s") == "[amas] edit\n" and status(repo) == ""


# -- states and kinds of repositories -----------------------------------------------------------


def stop_in(repo: Path, state: str) -> None:
    """Bring the repository into the middle of something."""
    if state in ("merge", "rebase", "cherry-pick"):
        git(repo, "checkout", "-qb", "other")
        (repo / "b.txt").write_text("other\n")
        commit_all(repo, "other")
        git(repo, "checkout", "-q", "main")
        (repo / "b.txt").write_text("main\n")
        commit_all(repo, "main")
        git(repo, *USER, state, "other", check=False)
    elif state == "bisect":
        git(repo, "bisect", "start")
    elif state == "detached HEAD":
        git(repo, "checkout", "-q", "--detach")
    else:
        (repo / ".git" / state).touch()


@pytest.mark.parametrize(
    "state", ["merge", "rebase", "cherry-pick", "bisect", "detached HEAD", "index.lock"]
)
def test_in_the_middle_of_something_only_the_private_log_is_written(repo, state):
    stop_in(repo, state)
    was = head(repo), status(repo)
    checkpoints = Checkpoints(repo)
    op = land(checkpoints, "a.txt", EDITED)
    assert op.commit is None and state in op.private
    assert head(repo) == was[0]
    checkpoints.undo()
    assert (repo / "a.txt").read_text() == BASE
    assert status(repo) == was[1]


def test_a_locked_branch_leaves_the_index_as_it_was(repo):
    (repo / ".git/refs/heads/main.lock").touch()
    op = land(Checkpoints(repo), "a.txt", EDITED)
    assert op.private and git(repo, "diff", "--cached") == "" and status(repo) == " M a.txt\n"


def test_the_first_commit_of_a_repository_may_be_ours(tmp_path):
    root = tmp_path / "r"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "mine.txt").write_text("u\n")
    (root / "staged.txt").write_text("s\n")
    git(root, "add", "staged.txt")
    checkpoints = Checkpoints(root)
    assert land(checkpoints, "n.py", "1\n").commit
    assert git(root, "show", "--name-only", "--format=", "HEAD").split() == ["n.py"]
    assert sorted(status(root).splitlines()) == ["?? mine.txt", "A  staged.txt"]
    checkpoints.undo()
    assert not (root / "n.py").exists() and (root / "mine.txt").exists()


def test_a_linked_work_tree_has_its_own_checkpoints(repo, tmp_path):
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", str(linked), "-b", "side")
    was = head(repo)
    assert land(Checkpoints(linked), "a.txt", EDITED).commit == head(linked).strip()
    assert head(repo) == was and status(repo) == "" and status(linked) == ""
    assert Checkpoints(repo).list() == [] and Checkpoints(repo).undo() == []


def test_files_in_a_submodule_or_a_repository_inside_are_logged_only(repo, tmp_path):
    library = project(tmp_path / "library")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib")
    commit_all(repo, "lib")
    project(repo / "nested")
    checkpoints, was = Checkpoints(repo), status(repo)
    for name in ("lib/a.txt", "nested/a.txt"):
        assert "another repository" in land(checkpoints, name, EDITED).private
    checkpoints.undo(2)
    assert status(repo) == was and (repo / "lib/a.txt").read_text() == BASE
    assert Checkpoints(repo / "lib").root.name == "lib"


def test_sha256_repositories_work(tmp_path):
    root = project(tmp_path / "r", "--object-format=sha256")
    change(root / "a.txt", "line 25", "USER 25")
    checkpoints = Checkpoints(root)
    after = changed((root / "a.txt").read_text(), ("line 3", "LINE 3"))
    assert len(land(checkpoints, "a.txt", after).commit) == 64
    assert git(root, "show", "HEAD:a.txt") == EDITED
    assert checkpoints.undo()[0].commit and status(root) == " M a.txt\n"


def test_a_split_index_works(repo):
    git(repo, "update-index", "--split-index")
    checkpoints = Checkpoints(repo)
    assert land(checkpoints, "a.txt", EDITED).commit and checkpoints.undo()[0].commit
    assert status(repo) == ""


def test_a_sparse_checkout_keeps_what_it_leaves_out(repo):
    for name in ("in", "out"):
        (repo / name).mkdir()
        (repo / name / "f.txt").write_text("f\n")
    commit_all(repo, "folders")
    git(repo, "sparse-checkout", "set", "in")
    checkpoints = Checkpoints(repo)
    assert land(checkpoints, "in/f.txt", "agent\n").commit
    land(checkpoints, "out/f.txt", "agent\n")
    assert git(repo, "show", "HEAD:out/f.txt") == "f\n"
    land(checkpoints, "out/new.txt", "agent\n")
    assert set(git(repo, "ls-tree", "-r", "--name-only", "HEAD").split()) >= {
        "out/f.txt",
        "in/f.txt",
    }
    checkpoints.undo(3)
    assert (repo / "in/f.txt").read_text() == "f\n" and not (repo / "out/f.txt").exists()


def test_a_file_marked_to_be_left_alone_is_not_committed(repo):
    git(repo, "update-index", "--assume-unchanged", "a.txt")
    assert "marked" in land(Checkpoints(repo), "a.txt", EDITED).private
    assert git(repo, "ls-files", "-v", "a.txt") == "h a.txt\n"


def test_a_project_that_is_a_folder_of_a_repository_works(repo):
    (repo / "sub").mkdir()
    checkpoints = Checkpoints(repo / "sub")
    op = land(checkpoints, "n.py", "1\n")
    assert op.paths == ("n.py",) and op.commit
    assert git(repo, "show", "--name-only", "--format=", "HEAD").split() == ["sub/n.py"]
    checkpoints.undo()
    assert status(repo) == ""


@pytest.mark.parametrize(
    "name",
    [
        "naïve 文件.txt",
        "tab\t'q\"\\.txt",
        "two\nlines.txt",
        ":(top)x.txt",
        "-x",
        '"x"',
        "sp/*[a].py",
    ],
)
def test_any_file_name_works(repo, name):
    checkpoints = Checkpoints(repo)
    assert land(checkpoints, name, "1\n").commit
    assert land(checkpoints, name, "2\n").commit
    assert land(checkpoints, name, None).commit
    assert status(repo) == ""
    checkpoints.undo(2)
    assert (repo / name).read_text() == "1\n" and status(repo) == ""
    checkpoints.undo()
    assert not (repo / name).exists() and status(repo) == ""


def test_line_endings_are_converted_as_the_user_set_them(repo):
    git(repo, "config", "core.autocrlf", "true")
    git(repo, "config", "core.safecrlf", "true")
    crlf = BASE.replace("\n", "\r\n").encode()
    (repo / "a.txt").write_bytes(crlf)
    checkpoints = Checkpoints(repo)
    assert land(checkpoints, "a.txt", crlf.replace(b"line 7", b"L7")).commit
    assert git(repo, "show", "HEAD:a.txt") == BASE.replace("line 7", "L7")
    checkpoints.undo()
    assert (repo / "a.txt").read_bytes() == crlf and git(repo, "diff", "HEAD", "--stat") == ""


def test_other_encodings_and_keywords_are_converted_as_the_user_set_them(repo):
    (repo / ".gitattributes").write_text("*.u16 working-tree-encoding=UTF-16LE\n*.c ident\n")
    (repo / "x.u16").write_bytes("one\ntwo\n".encode("utf-16-le"))
    (repo / "k.c").write_text("/* $Id$ */\nint a;\n")
    commit_all(repo, "attributes")
    (repo / "k.c").unlink()
    git(repo, "checkout", "-q", "k.c")  # with the keyword filled in
    checkpoints = Checkpoints(repo)
    assert land(checkpoints, "x.u16", "one\nTWO\n".encode("utf-16-le")).commit
    assert land(checkpoints, "k.c", (repo / "k.c").read_text().replace("int a", "int b")).commit
    assert git(repo, "show", "HEAD:x.u16") == "one\nTWO\n"
    assert git(repo, "show", "HEAD:k.c") == "/* $Id$ */\nint b;\n"
    checkpoints.undo(2)
    assert (repo / "x.u16").read_bytes() == "one\ntwo\n".encode("utf-16-le")
    assert git(repo, "diff", "HEAD") == "" and git(repo, "diff", "HEAD~4") == ""


def test_directories_are_written_as_git_writes_them(repo):
    for name in ("lib/x", "lib.d/x", "lib-d/x", "lib/in/ner/x", "lib0", "Lib", "library/x"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text("x\n")
    (repo / "link").symlink_to("a.txt")
    commit_all(repo, "folders")
    checkpoints = Checkpoints(repo)
    assert land(checkpoints, "lib/in/ner/y", "y\n").commit
    for name in ("lib.py", "lib/in-a/b/c/d", "lib-a", "lib/in.py", "z/z"):
        assert land(checkpoints, name, "new\n").commit
        assert git(repo, "write-tree") == git(repo, "rev-parse", "HEAD^{tree}")
    for name in ("lib/in/ner/x", "lib/in/ner/y", "z/z", "lib-d/x", "lib/x"):
        assert land(checkpoints, name, None).commit
        assert git(repo, "write-tree") == git(repo, "rev-parse", "HEAD^{tree}")
    assert git(repo, "ls-tree", "--name-only", "HEAD", "lib-d", "z", "lib/in") == ""
    git(repo, "fsck", "--strict")


def test_the_last_file_of_all_can_be_deleted(tmp_path):
    root = tmp_path / "r"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    checkpoints = Checkpoints(root)
    assert land(checkpoints, "d/n.py", "1\n").commit and land(checkpoints, "d/n.py", None).commit
    assert git(root, "ls-tree", "-r", "HEAD") == "" and status(root) == ""
    checkpoints.undo()
    assert git(root, "ls-tree", "-r", "--name-only", "HEAD") == "d/n.py\n"


def test_modes_are_kept_and_come_back_with_the_file(repo):
    script = repo / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    commit_all(repo, "script")
    checkpoints = Checkpoints(repo)
    land(checkpoints, "run.sh", "#!/bin/sh\necho\n")
    land(checkpoints, "run.sh", None)
    checkpoints.undo()
    assert os.access(script, os.X_OK) and script.read_text() == "#!/bin/sh\necho\n"
    assert git(repo, "ls-tree", "HEAD", "run.sh").startswith("100755") and status(repo) == ""


def test_a_mode_the_user_changed_stays_uncommitted(repo):
    (repo / "a.txt").chmod(0o755)
    land(Checkpoints(repo), "a.txt", EDITED)
    assert git(repo, "ls-tree", "HEAD", "a.txt").startswith("100644")
    assert "new mode 100755" in git(repo, "diff") and "LINE 3" not in git(repo, "diff", "-U0")


def test_binary_files_are_undone_whole_or_not_at_all(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "x.bin", bytes(range(256)))
    land(checkpoints, "x.bin", bytes(range(255, -1, -1)))
    checkpoints.undo()
    assert (repo / "x.bin").read_bytes() == bytes(range(256))
    checkpoints.redo()
    (repo / "x.bin").write_bytes(b"\0mine")
    with pytest.raises(Conflict, match="binary"):
        checkpoints.undo()
    assert (repo / "x.bin").read_bytes() == b"\0mine"


# -- no repository ------------------------------------------------------------------------------


def test_without_a_repository_undo_works_and_the_project_stays_clean(home, tmp_path):
    root = home / "plain"
    root.mkdir()
    (root / "a.txt").write_text(BASE)
    checkpoints = Checkpoints(root, state=tmp_path / "state")
    op = land(checkpoints, "a.txt", EDITED)
    assert op.commit is None and "not a git repository" in op.private
    change(root / "a.txt", "line 20", "USER 20")
    Checkpoints(root, state=tmp_path / "state").undo()
    assert (root / "a.txt").read_text() == changed(BASE, ("line 20", "USER 20"))
    assert [path.name for path in root.iterdir()] == ["a.txt"]
    with pytest.raises(ToolError, match="not a git repository"):
        checkpoints.squash()


def test_undo_reaches_back_beyond_git_init(home, tmp_path):
    root = home / "plain"
    root.mkdir()
    land(Checkpoints(root, state=tmp_path / "state"), "a.txt", EDITED)
    git(root, "init", "-q", "-b", "main")
    commit_all(root, "init")
    checkpoints = Checkpoints(root, state=tmp_path / "state")
    assert land(checkpoints, "a.txt", BASE).commit
    assert len(checkpoints.undo(2)) == 2 and not (root / "a.txt").exists()


def test_two_projects_without_a_repository_have_their_own_logs(tmp_path):
    logs = []
    for parent in ("one", "two"):
        root = tmp_path / parent / "same-name"
        root.mkdir(parents=True)
        checkpoints = Checkpoints(root, state=tmp_path / "state")
        land(checkpoints, "a.txt", "agent\n")
        logs.append(checkpoints.list())
    assert [len(log) for log in logs] == [1, 1]


def test_without_git_edits_land_and_are_undone(repo, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    checkpoints = Checkpoints(repo, state=tmp_path / "state")
    assert land(checkpoints, "a.txt", EDITED).private == "git is not installed"
    checkpoints.undo()
    assert (repo / "a.txt").read_text() == BASE
    checkpoints.redo()
    change(repo / "a.txt", "line 20", "USER 20")
    with pytest.raises(Conflict, match="git is not installed"):
        checkpoints.undo()
    assert (repo / "a.txt").read_text() == changed(EDITED, ("line 20", "USER 20"))


# -- squash -------------------------------------------------------------------------------------


def test_squash_folds_only_the_agents_commits_since_the_users_last(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "a.txt", EDITED, "too old")
    (repo / "b.txt").write_text("user\n")
    commit_all(repo, "user work")
    ops = [land(checkpoints, f"n{i}.py", "1\n", f"edit {i}") for i in range(3)]
    (repo / "staged.txt").write_text("s\n")
    git(repo, "add", "staged.txt")
    before = users_things(repo, set()), status(repo), git(repo, "rev-parse", "HEAD^{tree}")
    said = checkpoints.squash()
    assert "3" in said and ops[-1].commit[:10] in said
    assert git(repo, "log", "--format=%s").splitlines() == [
        "[amas] 3 changes folded into one",
        "user work",
        "[amas] too old",
        "init",
    ]
    assert git(repo, "log", "-1", "--format=%b").split("\n")[:3] == [
        f"- edit {i}" for i in range(3)
    ]
    assert before == (
        users_things(repo, set()),
        status(repo),
        git(repo, "rev-parse", "HEAD^{tree}"),
    )
    assert {op.commit for op in checkpoints.list()[1:]} == {head(repo).strip()}
    checkpoints.undo(3)
    assert not list(repo.glob("n*.py"))


def test_squash_never_rewrites_what_was_pushed(repo, tmp_path):
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    git(repo, "remote", "add", "origin", str(tmp_path / "remote.git"))
    checkpoints = Checkpoints(repo)
    land(checkpoints, "n0.py", "1\n")
    land(checkpoints, "n1.py", "1\n")
    git(repo, "push", "-q", "origin", "main")
    pushed = head(repo)
    with pytest.raises(ToolError, match="unpushed"):
        checkpoints.squash()
    land(checkpoints, "n2.py", "1\n")
    land(checkpoints, "n3.py", "1\n")
    checkpoints.squash()
    assert git(repo, "rev-parse", "HEAD~1") == pushed


def test_squash_with_nothing_to_fold_says_so(repo):
    land(Checkpoints(repo), "a.txt", EDITED)
    was = head(repo)
    with pytest.raises(ToolError, match="two or more"):
        Checkpoints(repo).squash()
    assert head(repo) == was


# -- what happens to the repository meanwhile ----------------------------------------------------


def test_the_user_may_repack_collect_and_pack_refs_between_edits(repo):
    checkpoints = Checkpoints(repo)
    for number, tidy in enumerate(
        (("repack", "-adq"), ("gc", "-q", "--prune=now"), ("pack-refs", "--all"), ("prune",))
    ):
        assert land(checkpoints, "a.txt", f"{number}\n").commit
        assert land(checkpoints, f"d/{number}", "new\n").commit
        git(repo, *tidy)
    git(repo, "reset", "-q", "--hard", "HEAD~3")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")  # our newest commits are gone
    assert land(checkpoints, "b.txt", "after\n").commit
    assert git(repo, "show", "HEAD:a.txt") == "2\n" and status(repo) == ""
    git(repo, "fsck", "--strict")


def test_what_the_user_commits_and_checks_out_between_edits_is_built_upon(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "d/one", "1\n")
    (repo / "d/mine").write_text("mine\n")
    commit_all(repo, "mine")
    assert land(checkpoints, "d/two", "2\n").commit
    git(repo, "checkout", "-q", "-b", "other", "HEAD~2")
    assert land(checkpoints, "d/three", "3\n").commit
    git(repo, *USER, "commit", "-q", "--amend", "-m", "mine now")
    assert land(checkpoints, "d/four", "4\n").commit
    assert git(repo, "ls-tree", "--name-only", "HEAD:d").split() == ["four", "one", "three"]
    git(repo, "checkout", "-q", "main")
    assert land(checkpoints, "d/five", "5\n").commit
    assert git(repo, "ls-tree", "--name-only", "HEAD:d").split() == ["five", "mine", "one", "two"]
    assert status(repo) == ""
    git(repo, "fsck", "--strict")


def test_two_sessions_build_on_each_others_commits(repo):
    one, two = Checkpoints(repo, "one"), Checkpoints(repo, "two")
    for number in range(3):
        assert land(one, f"d/one{number}", "1\n").commit
        assert land(two, f"d/two{number}", "2\n").commit
    assert len(git(repo, "ls-tree", "--name-only", "HEAD:d").split()) == 6
    one.undo(3)
    assert len(git(repo, "ls-tree", "--name-only", "HEAD:d").split()) == 3 and status(repo) == ""


def standing_in(folder: Path, monkeypatch, command: str, instead: str) -> None:
    """A git that does something else where this command is called."""
    folder.mkdir(exist_ok=True)
    real = shutil.which("git")
    program = folder / "git"
    program.write_text(
        f'#!/bin/sh\ncase " $* " in *" {command} "*) {instead};; esac\nexec {real} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


COMMANDS = ["cat-file", "ls-files", "check-attr", "unpack-objects", "update-index", "update-ref"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_git_that_dies_costs_the_commit_and_not_the_edit(repo, tmp_path, monkeypatch, command):
    (repo / "staged").write_text("s\n")
    git(repo, "add", "staged")
    checkpoints, was, index = Checkpoints(repo), head(repo), git(repo, "ls-files", "-s")
    with monkeypatch.context() as patch:
        standing_in(tmp_path / "bin", patch, command, "kill -9 $$")
        op = land(checkpoints, "a.txt", EDITED)
    assert op.commit is None and op.private and (repo / "a.txt").read_text() == EDITED
    assert head(repo) == was and git(repo, "ls-files", "-s") == index
    assert not (repo / ".git/index.lock").exists()
    checkpoints.undo()
    assert land(checkpoints, "a.txt", EDITED).commit


@pytest.mark.parametrize("command", ["cat-file", "check-attr"])
def test_a_git_that_hangs_costs_the_commit_and_not_the_edit(repo, tmp_path, monkeypatch, command):
    checkpoints = Checkpoints(repo)
    assert checkpoints.list() == []  # it has looked at the repository
    standing_in(tmp_path / "bin", monkeypatch, command, "exec sleep 100")
    monkeypatch.setattr(gitstore, "PATIENCE", 0.3)
    assert land(checkpoints, "a.txt", EDITED).private == f"git {command} did not end"
    assert (repo / "a.txt").read_text() == EDITED


def test_a_commit_that_comes_in_between_is_kept(repo, tmp_path, monkeypatch):
    tree = git(repo, "rev-parse", "HEAD^{tree}").strip()
    mine = git(repo, *USER, "commit-tree", "-p", "HEAD", "-m", "mine", tree)
    checkpoints = Checkpoints(repo)
    real = shutil.which("git")
    with monkeypatch.context() as patch:
        move = f"{real} update-ref refs/heads/main {mine.strip()}"
        standing_in(tmp_path / "bin", patch, "update-index", move)
        op = land(checkpoints, "a.txt", EDITED)
    assert op.commit is None and head(repo) == mine
    assert (repo / "a.txt").read_text() == EDITED


def test_a_directory_that_git_gives_back_wrongly_is_not_built_upon(repo):
    (repo / "d").mkdir()
    (repo / "d/x").write_text("x\n")
    commit_all(repo, "d")
    was, tree = head(repo), git(repo, "rev-parse", "HEAD:d").strip()
    path = repo / ".git/objects" / tree[:2] / tree[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"tree 0\0"))
    op = land(Checkpoints(repo), "d/y", "y\n")
    assert op.commit is None and head(repo) == was


ALONE = """
import os
from pathlib import Path
from amas_code.checkpoint import Checkpoints
from amas_code.events import Edit

path = Path.cwd() / "a.txt"
assert Checkpoints(Path.cwd()).land([Edit(path, path.read_bytes(), b"x")], "edit").commit
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("alone", end="")
"""


def test_no_git_goes_on_after_an_edit(repo):
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=repo, capture_output=True, text=True)
    assert done.stdout == "alone", done.stderr


# -- crashes, signals, other processes ----------------------------------------------------------

CHILD = """
import os, signal, sys
from pathlib import Path
from amas_code.checkpoint import Checkpoints
from amas_code.events import Edit

calls, number = int(sys.argv[1]), int(sys.argv[2])
made = 0

def strike(frame, event, arg):
    global made
    made += 1
    if made == calls:
        os.kill(os.getpid(), number)

root = Path.cwd()
before = (root / "a.txt").read_bytes()
edits = [
    Edit(root / "a.txt", before, before.replace(b"line 3\\n", b"LINE 3\\n")),
    Edit(root / "new.py", None, b"1\\n"),
]
checkpoints = Checkpoints(root)
checkpoints.list()
sys.setprofile(strike)
checkpoints.land(edits, "edit")
checkpoints.undo()
checkpoints.redo()
sys.setprofile(None)
print(made)
"""


def struck(repo: Path, calls: int, number: int) -> subprocess.CompletedProcess:
    """Land, undo, redo in a process that gets the signal at its `calls`-th call of a function."""
    command = [sys.executable, "-c", CHILD, str(calls), str(int(number))]
    return subprocess.run(command, cwd=repo, capture_output=True, text=True)


def check_recovery(repo: Path, points: int) -> set[str]:
    """Crash at so many moments, recover from each. Returns how the sentences on it began."""
    (repo / "b.txt").write_text("dirty\n")
    whole = struck(repo, 0, signal.SIGKILL)
    assert whole.returncode == 0, whole.stderr
    total = int(whole.stdout)
    Checkpoints(repo).undo()
    sentences = set()
    for point in range(1, points + 1):
        died = struck(repo, point * total // (points + 1), signal.SIGKILL)
        assert died.returncode == -signal.SIGKILL
        checkpoints = Checkpoints(repo)
        sentences |= {said.partition(" what")[0] for said in checkpoints.recover()}
        edited = (repo / "a.txt").read_text() == EDITED
        assert edited or (repo / "a.txt").read_text() == BASE
        assert edited == (repo / "new.py").exists()
        assert (repo / "b.txt").read_text() == "dirty\n"
        assert checkpoints.recover() == [] and status(repo) == " M b.txt\n"
        assert edited == any(op.live for op in checkpoints.list() if op.kind == "edit")
        assert checkpoints.list()[-1].commit == head(repo).strip()
        checkpoints.undo()
        assert (repo / "a.txt").read_text() == BASE and not (repo / "new.py").exists()
        assert status(repo) == " M b.txt\n"
    git(repo, "fsck", "--strict")
    return sentences


def test_kill_9_at_any_moment_leaves_the_edit_whole_or_undone(repo):
    assert check_recovery(repo, 12)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kill_9_at_any_of_80_moments_leaves_the_edit_whole_or_undone(repo):
    assert check_recovery(repo, 80) == {"Finished", "Took back"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_until_the_change_is_whole(repo, number):
    total = int(struck(repo, 0, number).stdout)
    for share in (0.1, 0.2, 0.3, 0.6):
        Checkpoints(repo).undo()
        assert struck(repo, int(total * share), number).returncode in (-number, 1)
        assert Checkpoints(repo).recover() == []
        assert status(repo) == ""


def test_recovery_leaves_alone_what_the_user_changed_after_the_crash(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "a.txt", EDITED)
    log = repo / ".git/amas/log.jsonl"
    intent = log.read_bytes().splitlines(keepends=True)[0]
    log.write_bytes(intent)
    (repo / "a.txt").write_text("mine\n")
    assert len(Checkpoints(repo).recover()) == 1
    assert (repo / "a.txt").read_text() == "mine\n" and Checkpoints(repo).list() == []


def test_a_crash_right_after_the_commit_finds_that_commit_again(repo):
    op = land(Checkpoints(repo), "a.txt", EDITED, "edit a.txt: shout")
    log = repo / ".git/amas/log.jsonl"
    intent = log.read_bytes().split(b"\n")[0]
    log.write_bytes(intent + b"\n")
    checkpoints = Checkpoints(repo)
    assert checkpoints.recover() == ["Finished what a crash had cut short: edit a.txt: shout"]
    assert [each.commit for each in checkpoints.list()] == [op.commit]


def test_a_torn_line_at_the_end_of_the_log_does_no_harm(repo):
    land(Checkpoints(repo), "a.txt", EDITED)
    log = repo / ".git/amas/log.jsonl"
    log.write_bytes(log.read_bytes() + json.dumps({"id": "2"}).encode()[:-3])
    assert Checkpoints(repo).recover() == []
    land(Checkpoints(repo), "b.txt", "agent\n")
    assert [op.paths for op in Checkpoints(repo).list()] == [("a.txt",), ("b.txt",)]
    assert len(Checkpoints(repo).undo(2)) == 2 and status(repo) == ""


def test_nothing_to_recover_leaves_nothing_behind(repo):
    assert Checkpoints(repo).recover() == []
    assert not (repo / ".git/amas").exists()


def test_two_processes_in_one_work_tree_do_not_disturb_each_other(repo):
    code = (
        "import sys; from pathlib import Path\n"
        "from amas_code.checkpoint import Checkpoints\n"
        "from amas_code.events import Edit\n"
        "for i in range(6):\n"
        "    path = Path.cwd() / f'f{sys.argv[1]}_{i}.txt'\n"
        "    edit = Edit(path, None, b'x\\n')\n"
        "    op = Checkpoints(Path.cwd(), sys.argv[1]).land([edit], path.name)\n"
        "    assert op.commit, op.private\n"
    )
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen([*command, str(n)], cwd=repo) for n in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    ops = Checkpoints(repo).list()
    assert len({op.id for op in ops}) == 12 and status(repo) == ""
    assert git(repo, "rev-list", "--count", "HEAD") == "13\n"
    assert len(Checkpoints(repo, "0").undo(99)) == 6
    assert len(list(repo.glob("f1_*.txt"))) == 6 and not list(repo.glob("f0_*.txt"))
