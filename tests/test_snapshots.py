"""What commands did can be undone: found by snapshots, merged, or left where it must be."""

import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from amas_code import snapshots
from amas_code.checkpoint import Checkpoints
from amas_code.commands import told
from amas_code.door import covered
from amas_code.events import Action, ToolError
from amas_code.gitstore import GitError
from amas_code.permissions import harmless
from amas_code.snapshots import Effects
from tests.test_checkpoint import BASE, EDITED, change, git, head, home, land, status
from tests.test_checkpoint import project as project_at

__all__ = ["home"]  # a fixture


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return project_at(tmp_path / "repo")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def sh(checkpoints: Checkpoints, command: str) -> Effects:
    """Run a command as the chat does."""
    begun = checkpoints.before_command(command)
    subprocess.run(["bash", "-c", command], cwd=checkpoints.root, check=True)
    return checkpoints.after_command(begun)


def tree(root: Path) -> dict[str, bytes]:
    """All files but those of git and ours."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in (".git", ".amas")]
        for name in names:
            path = Path(folder, name)
            found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def paths(effects: Effects) -> list[str]:
    return sorted(effects.op.paths) if effects.op else []


def test_what_a_command_changed_made_and_deleted_comes_back(repo):
    (repo / "mine.txt").write_text("not tracked\n")
    (repo / "b.txt").write_text("dirty\n")
    before, commit = tree(repo), head(repo)
    checkpoints = Checkpoints(repo)
    done = sh(checkpoints, "sed -i s/3/X/ a.txt; rm b.txt mine.txt; mkdir -p d/e; echo n > d/e/n")
    assert paths(done) == ["a.txt", "b.txt", "d/e/n", "mine.txt"] and done.others == ()
    after = tree(repo)
    checkpoints.undo()
    assert tree(repo) == before
    checkpoints.redo()
    assert tree(repo) == after
    assert head(repo) == commit  # what commands do is not committed, nor is taking it back


def test_a_command_that_changes_nothing_leaves_no_checkpoint(repo):
    checkpoints = Checkpoints(repo)
    assert sh(checkpoints, "touch a.txt; cp a.txt x; rm x") == Effects(None)
    assert checkpoints.list() == [] and checkpoints.undo() == []


def test_the_newest_first_whether_edit_or_command(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "a.txt", EDITED)
    sh(checkpoints, "echo more >> a.txt")
    land(checkpoints, "b.txt", "agent\n")
    assert [op.why for op in checkpoints.undo(2)] == ["undo: edit", "undo: ran echo more >> a.txt"]
    assert (repo / "a.txt").read_text() == EDITED and (repo / "b.txt").read_text() == "b\n"
    assert [op.live for op in checkpoints.list()[:3]] == [True, False, False]


def test_the_users_later_lines_stay_when_a_command_is_undone(repo):
    checkpoints = Checkpoints(repo)
    sh(checkpoints, "sed -i 's/line 3$/LINE 3/' a.txt")
    change(repo / "a.txt", "line 20", "mine")
    checkpoints.undo()
    assert (repo / "a.txt").read_text() == BASE.replace("line 20\n", "mine\n")


def test_a_file_changed_again_in_the_same_lines_is_left_and_the_others_come_back(repo):
    checkpoints = Checkpoints(repo)
    sh(checkpoints, "sed -i 's/line 3$/LINE 3/' a.txt; echo gone > b.txt")
    change(repo / "a.txt", "LINE 3", "mine")
    mine = (repo / "a.txt").read_text()
    plan = checkpoints.undoing()
    assert len(plan.refused) == 1 and "a.txt has changes of yours there" in plan.refused[0]
    assert "mine" in plan.refused[0] and "line 3" in plan.refused[0]
    checkpoints.carry_out(plan)
    assert (repo / "a.txt").read_text() == mine and (repo / "b.txt").read_text() == "b\n"


def test_only_the_files_that_were_picked_come_back(repo):
    checkpoints = Checkpoints(repo)
    sh(checkpoints, "echo x > a.txt; echo x > b.txt")
    checkpoints.carry_out(checkpoints.narrowed(checkpoints.undoing(), [repo / "b.txt"]))
    assert (repo / "a.txt").read_text() == "x\n" and (repo / "b.txt").read_text() == "b\n"


def test_commands_can_be_passed_over(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "a.txt", EDITED)
    sh(checkpoints, "echo x > b.txt")
    checkpoints.carry_out(checkpoints.undoing(commands=False))
    assert (repo / "a.txt").read_text() == BASE and (repo / "b.txt").read_text() == "x\n"


def test_a_plan_is_carried_out_only_on_the_files_that_were_looked_at(repo):
    checkpoints = Checkpoints(repo)
    sh(checkpoints, "echo x > b.txt; echo x >> a.txt")
    plan = checkpoints.undoing()
    (repo / "b.txt").write_text("meanwhile\n")
    with pytest.raises(ToolError, match="not as they were"):
        checkpoints.carry_out(plan)
    assert (repo / "b.txt").read_text() == "meanwhile\n"
    assert (repo / "a.txt").read_text() == BASE + "x\n"
    (repo / "b.txt").write_text("x\n")
    Checkpoints(repo).undo()  # someone else was faster
    with pytest.raises(ToolError, match="not as they were"):
        checkpoints.carry_out(plan)


def test_bytes_stay_whatever_attributes_say(repo):
    odd = b"\xff\xfe one\r\ntwo\n$Id$\r\n"
    (repo / ".gitattributes").write_text("* text=auto eol=lf ident\n*.bin filter=lfs\n")
    (repo / "odd.txt").write_bytes(odd)
    (repo / "x.bin").write_bytes(odd)
    checkpoints = Checkpoints(repo)
    done = sh(checkpoints, "echo > odd.txt; rm x.bin")
    assert paths(done) == ["odd.txt", "x.bin"]
    checkpoints.undo()
    assert (repo / "odd.txt").read_bytes() == odd and (repo / "x.bin").read_bytes() == odd


def test_ignored_files_are_not_looked_at_but_tracked_ones_are(repo):
    (repo / "kept.ign").write_text("tracked\n")
    git(repo, "add", "-f", "kept.ign")
    (repo / ".git/info").mkdir(exist_ok=True)
    (repo / ".git/info/exclude").write_text("*.local\n")
    done = sh(Checkpoints(repo), "echo x > kept.ign; echo x > new.ign; echo x > y.local")
    assert paths(done) == ["kept.ign"]


def test_strange_names_come_back(repo):
    checkpoints = Checkpoints(repo)
    names = ["new\nline", " blank ", "ünï", "-rf", ":(top)x", "quo\"te'", os.fsdecode(b"\xff")]
    for name in names:
        (repo / name).write_text("kept\n")
    before = tree(repo)
    done = sh(checkpoints, "rm -rf ./*")
    assert set(names) < set(paths(done))
    checkpoints.undo()
    assert tree(repo) == before


def test_a_file_that_became_a_folder_is_left_and_can_come_back_later(repo):
    checkpoints = Checkpoints(repo)
    done = sh(checkpoints, "rm a.txt; mkdir a.txt; echo x > a.txt/x; echo x > b.txt")
    assert paths(done) == ["a.txt", "a.txt/x", "b.txt"]
    plan = checkpoints.undoing()
    assert plan.refused == (f"Left as it is: {repo}/a.txt is a directory now.",)
    checkpoints.carry_out(plan)
    assert list((repo / "a.txt").iterdir()) == [] and (repo / "b.txt").read_text() == "b\n"
    checkpoints.redo()
    shutil.rmtree(repo / "a.txt")
    checkpoints.undo()
    assert (repo / "a.txt").read_text() == BASE


def test_links_and_modes_are_told_and_left(repo):
    done = sh(Checkpoints(repo), "ln -s /etc/passwd link; chmod +x b.txt; ln -s . dir")
    assert done.op is None
    assert sorted(done.others) == ["b.txt (its mode)", "dir (a link)", "link (a link)"]


def test_a_folder_replaced_by_a_link_is_never_written_through(repo, tmp_path):
    (repo / "d").mkdir()
    (repo / "d/f").write_text("f\n")
    (tmp_path / "other").mkdir()
    checkpoints = Checkpoints(repo)
    done = sh(checkpoints, f"rm -r d; ln -s {tmp_path}/other d")
    assert paths(done) == ["d/f"] and done.others == ("d (a link)",)
    plan = checkpoints.undoing()
    assert "d/f is a link or behind one" in plan.refused[0]
    checkpoints.carry_out(plan)
    assert list((tmp_path / "other").iterdir()) == []


def test_a_script_that_comes_back_can_be_run(repo):
    (repo / "run.sh").write_text("#!/bin/sh\n")
    (repo / "run.sh").chmod(0o755)
    checkpoints = Checkpoints(repo)
    sh(checkpoints, "rm run.sh")
    checkpoints.undo()
    assert os.access(repo / "run.sh", os.X_OK)


def test_it_needs_no_repository(tmp_path, state):
    root = tmp_path / "plain"
    root.mkdir()
    (root / "f").write_text("f\n")
    checkpoints = Checkpoints(root, state=state)
    assert paths(sh(checkpoints, "rm f; echo n > n")) == ["f", "n"]
    checkpoints.undo()
    assert tree(root) == {"f": b"f\n"}
    assert not (root / ".git").exists()


def test_it_works_with_sha_256_worktrees_and_repositories_inside(tmp_path, home):
    main = project_at(tmp_path / "main", "--object-format=sha256")
    git(main, "worktree", "add", "-q", str(tmp_path / "linked"))
    inner = project_at(tmp_path / "linked/inner")
    checkpoints = Checkpoints(tmp_path / "linked")
    assert paths(sh(checkpoints, "rm a.txt; rm inner/a.txt")) == ["a.txt"]
    checkpoints.undo()
    assert (tmp_path / "linked/a.txt").read_text() == BASE and not (inner / "a.txt").exists()


def test_nothing_of_it_shows_in_the_users_repository(repo):
    (repo / "staged").write_text("s\n")
    git(repo, "add", "staged")
    index = (repo / ".git/index").read_bytes()
    objects, refs = git(repo, "count-objects"), git(repo, "for-each-ref")
    sh(Checkpoints(repo), "echo x > unseen")
    assert (repo / ".git/index").read_bytes() == index
    assert (git(repo, "count-objects"), git(repo, "for-each-ref")) == (objects, refs)
    assert status(repo).splitlines() == ["A  staged", "?? unseen"]


def test_a_command_that_commits_or_switches_branches_is_undone_in_the_files_alone(repo):
    git(repo, "branch", "other")
    land(Checkpoints(repo), "a.txt", EDITED)
    checkpoints = Checkpoints(repo)
    assert paths(sh(checkpoints, "git checkout -q other")) == ["a.txt"]
    checkpoints.undo()
    assert (repo / "a.txt").read_text() == EDITED
    assert git(repo, "branch", "--show-current") == "other\n"


def test_what_the_users_git_threw_away_meanwhile_is_told_and_the_rest_comes_back(repo):
    (repo / "s").write_text("staged once\n")
    git(repo, "add", "s")
    sh(Checkpoints(repo), "echo x > b.txt")
    git(repo, "rm", "-q", "--cached", "s")
    git(repo, "prune", "--expire=now")
    checkpoints = Checkpoints(repo)
    done = sh(checkpoints, "rm s; echo y > b.txt")
    assert paths(done) == ["b.txt"] and done.others == ("s (what was in it is gone)",)
    assert paths(sh(checkpoints, "echo again > s")) == ["s"]
    checkpoints.undo(2)
    assert (repo / "b.txt").read_text() == "x\n" and not (repo / "s").exists()


def test_what_an_edit_landed_meanwhile_is_no_effect_of_the_command(repo):
    one, two = Checkpoints(repo, "one"), Checkpoints(repo, "two")
    begun = one.before_command("make")
    land(two, "a.txt", EDITED)
    (repo / "b.txt").write_text("made\n")
    assert paths(one.after_command(begun)) == ["b.txt"]
    one.undo()
    assert (repo / "a.txt").read_text() == EDITED and (repo / "b.txt").read_text() == "b\n"


def test_two_commands_at_the_same_time_are_both_known(repo):
    one, two = Checkpoints(repo, "one"), Checkpoints(repo, "two")
    first, second = one.before_command("x"), two.before_command("y")
    assert Checkpoints(repo).recover() == []  # both still run
    (repo / "b.txt").write_text("made\n")
    assert paths(two.after_command(second)) == ["b.txt"]
    assert paths(one.after_command(first)) == ["b.txt"]


@pytest.mark.parametrize("name, value", [("MOST_FILES", 3), ("MOST_BYTES", 20)])
def test_a_project_too_large_is_told(repo, monkeypatch, name, value):
    monkeypatch.setattr(snapshots, name, value)  # a limit, to make it cheap to reach
    for number in range(5):
        (repo / f"{number}").write_text("more\n")
    said: list[str] = []

    def run(action: Action) -> str:
        return "(exit status 0)"

    do = covered(run, Checkpoints(repo), said.append)
    action = Action("1", 1, "run", "shell_command", {"command": "make"})
    assert [do(action), do(action)] == ["(exit status 0)"] * 2
    assert len(said) == 1 and "/undo will not cover what commands do here: more than" in said[0]


def test_a_file_too_large_is_told_and_the_others_are_covered(repo, monkeypatch):
    monkeypatch.setattr(snapshots, "LARGEST", 1000)
    (repo / "big").write_bytes(b"x" * 2000)
    checkpoints = Checkpoints(repo)
    assert sh(checkpoints, "echo x > b.txt").others == ()
    done = sh(checkpoints, "echo x >> big; echo y > b.txt")
    assert paths(done) == ["b.txt"] and done.others == ("big (too large)",)


def test_a_large_file_that_becomes_small_is_never_taken_for_a_new_one(repo, monkeypatch):
    monkeypatch.setattr(snapshots, "LARGEST", 1000)
    (repo / "big").write_bytes(b"x" * 2000)
    checkpoints = Checkpoints(repo)
    done = sh(checkpoints, "echo small > big; echo x > b.txt")
    assert paths(done) == ["b.txt"] and any(each.startswith("big (") for each in done.others)
    checkpoints.undo()
    assert (repo / "big").read_text() == "small\n"
    done = sh(checkpoints, "head -c 2000 /dev/zero > big")  # and back: what was in it is known now
    assert done.op is None and any(each.startswith("big (") for each in done.others)
    done = sh(checkpoints, "echo tiny > big")
    assert done.op is None and (repo / "big").read_text() == "tiny\n"


def age(path: Path) -> None:
    """Wait until the file's time of change is well past; no call can set that back."""
    while path.stat().st_ctime > time.time() - 1.2:
        time.sleep(0.1)


def test_a_file_that_comes_out_of_hiding_is_never_taken_for_a_new_one(repo):
    (repo / "secret.ign").write_text("the only copy\n")
    age(repo / "secret.ign")
    checkpoints = Checkpoints(repo)
    done = sh(checkpoints, "rm .gitignore; echo x > new")
    assert paths(done) == [".gitignore", "new"]
    assert done.others == ("secret.ign (what was in it before is not known)",)
    checkpoints.undo()
    assert (repo / "secret.ign").read_text() == "the only copy\n"


def test_a_folder_that_was_moved_is_moved_back(repo):
    (repo / "old").mkdir()
    (repo / "old/f").write_text("f\n")
    age(repo / "old/f")
    before = tree(repo)
    checkpoints = Checkpoints(repo)
    assert paths(sh(checkpoints, "mv old new")) == ["new/f", "old/f"]
    checkpoints.undo()
    assert tree(repo) == before


def test_a_command_of_which_nothing_can_come_back_does_not_block_what_was_before(repo):
    checkpoints = Checkpoints(repo)
    land(checkpoints, "b.txt", "agent\n")
    sh(checkpoints, "sed -i 's/line 3$/LINE 3/' a.txt")
    change(repo / "a.txt", "LINE 3", "mine")
    (op,) = checkpoints.undo()
    assert op.paths == () and told(op) == "Passed over: ran sed -i 's/line 3$/LINE 3/' a.txt"
    checkpoints.undo()
    assert (repo / "b.txt").read_text() == "b\n"


def test_a_file_that_was_hidden_a_moment_ago_is_none_of_the_commands(repo):
    (repo / "k.ign").write_text("made just now\n")
    checkpoints = Checkpoints(repo)
    begun = checkpoints.before_command("x")
    while (repo / "k.ign").stat().st_ctime == checkpoints._snapshots._began(begun):
        begun = checkpoints.before_command("x")  # in the same tick of the clock
    (repo / ".gitignore").unlink()
    assert paths(checkpoints.after_command(begun)) == [".gitignore"]


def test_a_tracked_file_that_is_ignored_stays_covered_after_it_was_gone(repo):
    (repo / "kept.ign").write_text("tracked\n")
    git(repo, "add", "-f", "kept.ign")
    checkpoints = Checkpoints(repo)
    sh(checkpoints, "rm kept.ign")
    sh(checkpoints, "git checkout -q -- kept.ign")
    assert paths(sh(checkpoints, "echo x > kept.ign")) == ["kept.ign"]


def test_bytes_that_git_gives_back_wrongly_are_never_written(repo):
    commit = git(repo, "rev-parse", "HEAD:a.txt").strip()
    checkpoints = Checkpoints(repo)
    begun = checkpoints.before_command("x")
    blob = repo / ".git/objects" / commit[:2] / commit[2:]
    evil = zlib.compress(b"blob 5\0EVIL\n")
    blob.chmod(0o644)
    blob.write_bytes(evil)
    (repo / "a.txt").write_text("changed\n")
    with pytest.raises(GitError, match="not what was stored"):
        checkpoints.after_command(begun)
    assert checkpoints.undo() == []


@pytest.mark.parametrize("again", ["", "; git init -q"])
def test_a_command_that_removes_the_repository_costs_the_undo_alone(repo, again):
    said: list[str] = []
    checkpoints = Checkpoints(repo)
    land(checkpoints, "a.txt", EDITED)
    land(checkpoints, "b.txt", "agent\n")

    def run(action: Action) -> str:
        subprocess.run(action.args["command"], shell=True, cwd=repo, check=True)
        return "(exit status 0)"

    do = covered(run, checkpoints, said.append)
    do(Action("1", 1, "run", "x", {"command": f"rm -rf .git{again}"}))
    assert "is gone, and with it the log that undo needs" in said[0]
    assert do(Action("2", 1, "run", "x", {"command": "touch x"})) == "(exit status 0)" or again
    assert (repo / ".git").exists() == bool(again)  # none of ours is made in its place
    if again:
        land(checkpoints, "a.txt", "more\n")
        checkpoints.undo()
        assert (repo / "a.txt").read_text() == EDITED
    else:
        with pytest.raises(ToolError, match="is gone"):
            land(checkpoints, "a.txt", "more\n")


def test_a_pipe_in_the_place_of_a_file_holds_nothing_up(repo):
    checkpoints = Checkpoints(repo)
    sh(checkpoints, "rm a.txt; mkfifo a.txt; echo x > b.txt")
    plan = checkpoints.undoing()
    assert plan.refused == (f"Left as it is: {repo}/a.txt is no plain file.",)
    checkpoints.carry_out(plan)
    assert (repo / "b.txt").read_text() == "b\n"


def test_a_git_that_hangs_costs_the_undo_and_not_the_command(repo, monkeypatch):
    monkeypatch.setattr(snapshots, "PATIENCE", 0.3)
    (repo / ".gitignore").unlink()
    os.mkfifo(repo / ".gitignore")
    said: list[str] = []
    do = covered(lambda action: "(exit status 0)", Checkpoints(repo), said.append)
    assert do(Action("1", 1, "run", "x", {"command": "make"})) == "(exit status 0)"
    assert said == ["/undo will not cover what commands do here: git hangs."]


def test_a_loop_of_links_in_the_place_of_a_folder_is_left(repo):
    (repo / "d").mkdir()
    (repo / "d/f").write_text("f\n")
    checkpoints = Checkpoints(repo)
    sh(checkpoints, "rm -r d; ln -s d d; echo x > b.txt")
    plan = checkpoints.undoing()
    assert len(plan.refused) == 1 and "d/f" in plan.refused[0]
    checkpoints.carry_out(plan)
    assert (repo / "b.txt").read_text() == "b\n"


def test_a_project_that_was_moved_is_covered_at_its_new_place(repo, tmp_path):
    sh(Checkpoints(repo), "echo x > b.txt")
    repo.rename(tmp_path / "moved")
    checkpoints = Checkpoints(tmp_path / "moved")
    done = sh(checkpoints, "rm a.txt")
    assert paths(done) == ["a.txt"] and done.others == ()
    checkpoints.undo()
    assert (tmp_path / "moved/a.txt").read_text() == BASE


def test_an_undo_that_ends_halfway_says_what_was_done(repo):
    checkpoints = Checkpoints(repo)
    (repo / "d").mkdir()
    (repo / "d/f").write_text("f\n")
    land(checkpoints, "d/f", None, "delete d/f")
    (repo / "d").rmdir()
    (repo / "d").write_text("in the way\n")
    land(checkpoints, "a.txt", EDITED, "edit a.txt")
    with pytest.raises(ToolError, match="Done: undo: edit a.txt. Then it ended: Nothing was"):
        checkpoints.undo(2)
    assert (repo / "a.txt").read_text() == BASE and (repo / "d").read_text() == "in the way\n"


def test_without_git_the_command_runs_and_it_is_told(repo, monkeypatch, tmp_path):
    said: list[str] = []
    monkeypatch.setenv("PATH", str(tmp_path))
    do = covered(lambda action: "(exit status 0)", Checkpoints(repo), said.append)
    assert do(Action("1", 1, "run", "x", {"command": "make"})) == "(exit status 0)"
    assert said == ["/undo will not cover what commands do here: git is not installed."]


def test_a_command_that_is_interrupted_is_known_all_the_same(repo):
    def run(action: Action) -> str:
        (repo / "b.txt").write_text("half\n")
        raise KeyboardInterrupt

    checkpoints = Checkpoints(repo)
    with pytest.raises(KeyboardInterrupt):
        covered(run, checkpoints, print)(Action("1", 1, "run", "x", {"command": "make"}))
    checkpoints.undo()
    assert (repo / "b.txt").read_text() == "b\n"


CRASH = """
import os, signal, sys
from amas_code.checkpoint import Checkpoints
from amas_code.commands import told
checkpoints = Checkpoints(sys.argv[1])
checkpoints.before_command("make")
open(sys.argv[1] + "/b.txt", "w").write("half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_command_cut_short_by_a_crash_can_be_undone(repo):
    done = subprocess.run([sys.executable, "-c", CRASH, str(repo)])
    assert done.returncode == -signal.SIGKILL
    checkpoints = Checkpoints(repo)
    assert checkpoints.recover() == [
        "A crash cut short what ran make. Since then 1 file changed, some perhaps by you: /undo."
    ]
    assert checkpoints.recover() == []
    checkpoints.undo()
    assert (repo / "b.txt").read_text() == "b\n"


def test_a_git_that_was_killed_leaves_no_lock_that_matters(repo):
    checkpoints = Checkpoints(repo)
    sh(checkpoints, "echo x > b.txt")
    (repo / ".git/amas/snapshots/index.lock").touch()
    assert paths(sh(checkpoints, "echo y > b.txt")) == ["b.txt"]


def test_a_snapshot_half_made_is_made_again(repo):
    checkpoints = Checkpoints(repo)
    sh(checkpoints, "echo x > b.txt")
    folder = repo / ".git/amas/snapshots"
    (folder / "index").write_bytes(b"torn")
    (folder / "tree").write_text("torn")
    assert paths(sh(checkpoints, "echo y > b.txt")) == ["b.txt"]
    checkpoints.undo()
    assert (repo / "b.txt").read_text() == "x\n"


def test_a_full_disk_costs_the_undo_and_not_the_command(repo):
    said: list[str] = []
    folder = repo / ".git/amas/snapshots"
    sh(Checkpoints(repo), "echo x > b.txt")
    shutil.rmtree(folder)
    folder.write_text("in the way")
    do = covered(lambda action: "(exit status 0)", Checkpoints(repo), said.append)
    assert do(Action("1", 1, "run", "x", {"command": "make"})) == "(exit status 0)"
    assert len(said) == 1 and "/undo will not cover" in said[0]


def test_the_result_names_what_changed(repo):
    def run(action: Action) -> str:
        subprocess.run(action.args["command"], shell=True, cwd=repo, check=True)
        return "out\n(exit status 0, 0.1 s)"

    do = covered(run, Checkpoints(repo), print)
    asked = Action("1", 1, "run", "shell_command", {"command": "echo x > b.txt; ln -s a.txt l"})
    assert do(asked) == (
        "out\n(exit status 0, 0.1 s; changed 1 file: b.txt; not covered by /undo: l (a link))"
    )
    assert do(asked._replace(args={"command": "true"})) == "out\n(exit status 0, 0.1 s)"


@pytest.mark.parametrize(
    "command, is_harmless",
    [
        ("ls -la src", True),
        ("grep -rn 'foo bar' .", True),
        ("cat a.txt b.txt", True),
        ("", False),
        (" ", False),
        ("lsof", False),
        ("ls; rm x", False),
        ("ls\nrm x", False),
        ("cat a > b", False),
        ("cat $(rm x)", False),
        ("echo `rm x`", False),
        ("./ls", False),
        ("X=1 ls", False),
        ("cat <(rm x)", False),
        ("ls | tee x", False),
        ("ls & rm x", False),
        ("git status", False),
        ("sort -o x y", False),
        ("echo $((x=1))", False),
        ("echo {a,b}", False),
        ("ls \\\nrm", False),
    ],
)
def test_only_what_certainly_changes_nothing_goes_unwatched(command, is_harmless):
    assert harmless(command) == is_harmless


def test_many_loose_objects_are_swept_up(repo, monkeypatch):
    monkeypatch.setattr(snapshots, "MANY_LOOSE", -1)
    checkpoints = Checkpoints(repo)
    for number in range(3):
        sh(checkpoints, f"echo {number} > b.txt")
    checkpoints.undo(3)
    assert (repo / "b.txt").read_text() == "b\n"


CHILD = """
import os, signal, subprocess, sys
from pathlib import Path
from amas_code.checkpoint import Checkpoints
from amas_code.commands import told

calls, made = int(sys.argv[1]), 0

def strike(frame, event, arg):
    global made
    made += 1
    if made == calls:
        os.kill(os.getpid(), signal.SIGKILL)

checkpoints = Checkpoints(Path.cwd())
checkpoints.list()
sys.setprofile(strike)
begun = checkpoints.before_command("make")
Path("b.txt").write_text("made\\n")
Path("new").write_text("made\\n")
Path("a.txt").unlink()
checkpoints.after_command(begun)
checkpoints.undo()
sys.setprofile(None)
print(made)
"""


def struck(repo: Path, calls: int) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", CHILD, str(calls)]
    return subprocess.run(command, cwd=repo, capture_output=True, text=True)


def check_crashes(repo: Path, points: int) -> None:
    """Wherever it dies, the next start takes stock, and undo leads back to how all was."""
    (repo / "mine").write_text("untracked\n")
    before = tree(repo)
    struck(repo, 0)  # the first makes our repository, too
    total = int(struck(repo, 0).stdout)
    for point in range(1, points + 1):
        assert struck(repo, point * total // (points + 1)).returncode == -signal.SIGKILL
        checkpoints = Checkpoints(repo)
        checkpoints.recover()
        assert checkpoints.recover() == []
        if tree(repo) != before:
            checkpoints.undo()
        assert tree(repo) == before
        assert not list((repo / ".git/amas").glob("running-*"))
    assert paths(sh(Checkpoints(repo), "echo x > b.txt")) == ["b.txt"]


def test_kill_9_at_any_moment_of_a_command_loses_nothing(repo):
    check_crashes(repo, 10)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kill_9_at_any_of_60_moments_of_a_command_loses_nothing(repo):
    check_crashes(repo, 60)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_50_000_files_are_watched_and_come_back(tmp_path):
    root = project_at(tmp_path / "large")
    for number in range(50_000):
        folder = root / f"d{number % 500}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.txt").write_text(f"{number}\n")
    git(root, "add", "-A")
    git(root, "-c", "user.name=u", "-c", "user.email=u@e", "commit", "-qm", "large")
    before = tree(root)
    checkpoints = Checkpoints(root)
    assert len(paths(sh(checkpoints, "rm -rf d*; echo x > a.txt"))) == 50_001
    land(checkpoints, "b.txt", "agent\n")
    checkpoints.undo(2)
    assert tree(root) == before and status(root) == ""
