import os
from pathlib import Path

import pytest

from amas_code.events import Action, Edit
from amas_code.permissions import Rules, decide

MODES = ("ask", "auto-edit", "plan")
NEVER, PLAN = "files under .git are never edited", "plan mode only reads"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a file, a link to it, one out of it, and one into its depth; we are in it."""
    root = tmp_path.resolve() / "project"
    (root / "deep/er").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "a.py").touch()
    (root / "link.py").symlink_to(root / "a.py")
    (root / "out").symlink_to(tmp_path)
    (root / "down").symlink_to(root / "deep/er")
    (root / "sub/.git").mkdir(parents=True)
    (root / "hidden").symlink_to(root / ".git")
    monkeypatch.chdir(root)
    return root


def edit(*paths: Path, after: bytes | None = b"new") -> Action:
    return Action("1", 1, "edit", "edit_file", {}, tuple(Edit(path, b"", after) for path in paths))


def read(name: str, **args: str) -> Action:
    return Action("1", 1, "read", name, args)


def run(command: str, name: str = "shell_command") -> Action:
    return Action("1", 1, "run", name, {"command": command})


def verdicts(action: Action, root: Path | None, allow: tuple[str, ...] = ()) -> list[str]:
    """What is decided in the modes ask, auto-edit, plan."""
    return [decide(action, Rules(mode, allow, root)) for mode in MODES]


def test_edits_in_the_project_go_unasked_in_auto_edit_alone(root: Path) -> None:
    for path in ("a.py", "new/file.txt", ".gitignore", "docs/.github.md"):
        ask, auto, plan = verdicts(edit(root / path), root)
        assert (ask, auto) == ("ask", "allow"), path
        assert plan.startswith(PLAN)


@pytest.mark.parametrize(
    "path",
    [".git/config", ".git", "sub/.git/hooks/pre-commit", ".GIT/config", "hidden/config"],
)
def test_git_s_own_files_are_never_edited(root: Path, path: str) -> None:
    assert verdicts(edit(root / path), root) == [NEVER] * 3
    assert verdicts(edit(root / "a.py", root / path), root) == [NEVER] * 3
    assert verdicts(edit(root / path), None) == [NEVER] * 3


@pytest.mark.parametrize(
    "path",
    (".amas/config.yaml", ".amas/x/y", "AGENTS.md", "agents.md", "docs/CLAUDE.md")
    + (".envrc", "sub/.envrc", ".vscode/tasks.json", ".idea/a.xml", "my.code-workspace")
    + (".github/workflows/ci.yml", ".GitHub/x", ".gitlab-ci.yml", ".circleci/config.yml")
    + ("Jenkinsfile", ".husky/pre-commit", ".pre-commit-config.yaml"),
)
def test_what_other_programs_obey_asks_in_every_mode(root: Path, path: str) -> None:
    ask, auto, plan = verdicts(edit(root / path), root)
    assert (ask, auto) == ("ask", "ask")
    assert plan.startswith(PLAN)


@pytest.mark.parametrize("path", ["link.py", "out/x.py", "down/x.py", "../x.py", "/etc/hosts"])
def test_links_and_places_outside_the_project_ask_in_every_mode(root: Path, path: str) -> None:
    assert verdicts(edit(Path(os.path.abspath(root / path))), root)[:2] == ["ask", "ask"]


def test_one_file_that_asks_makes_the_whole_edit_ask(root: Path) -> None:
    assert verdicts(edit(root / "a.py", root / ".envrc"), root)[1] == "ask"


def test_deleting_a_file_always_asks(root: Path) -> None:
    assert verdicts(edit(root / "a.py", after=None), root)[:2] == ["ask", "ask"]


def test_in_the_home_directory_every_edit_and_look_at_files_asks(root: Path) -> None:
    assert verdicts(edit(root / "a.py"), None)[:2] == ["ask", "ask"]
    for action in (read("read_file", path="a.py"), read("search_files", pattern="key")):
        assert verdicts(action, None) == ["ask"] * 3
    assert verdicts(read("todo_read"), None) == ["allow"] * 3


def test_reading_the_project_is_free_in_every_mode(root: Path) -> None:
    for path in ("a.py", ".", str(root), "down/x", "new/../a.py"):
        assert verdicts(read("read_file", path=path), root) == ["allow"] * 3, path
    assert verdicts(read("glob_files", pattern="**/*"), root) == ["allow"] * 3


@pytest.mark.parametrize(
    "path", ["..", "/etc/passwd", "~/.ssh/id", "out/secret", "deep/../../secret", "down/../../x"]
)
def test_reading_outside_the_project_asks(root: Path, path: str) -> None:
    for name in ("read_file", "list_files", "search_files"):
        assert verdicts(read(name, path=path, pattern="x"), root) == ["ask"] * 3


def test_a_command_asks_unless_it_is_allowed_to_the_letter(root: Path) -> None:
    allow = ("pytest -q",)
    assert verdicts(run("pytest -q"), root, allow)[:2] == ["allow", "allow"]
    for command in ("pytest -q; rm -rf ~", "pytest", "pytest -qq", " pytest -q", ""):
        assert verdicts(run(command), root, allow)[:2] == ["ask", "ask"], command
    assert verdicts(run("pytest -q"), root, allow)[2].startswith(PLAN)


def test_an_unknown_tool_is_treated_as_a_command(root: Path) -> None:
    assert verdicts(run("", name="launch"), root)[:2] == ["ask", "ask"]
    assert verdicts(run("", name="launch"), root)[2].startswith(PLAN)


def test_what_was_allowed_to_start_may_be_watched_and_ended(root: Path) -> None:
    for name in ("shell_output", "shell_stop"):
        assert verdicts(Action("1", 1, "run", name, {"id": "1"}), root) == ["allow"] * 3
