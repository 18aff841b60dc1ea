"""What the tools answer the model, and what they refuse."""

import os
import time
from pathlib import Path

import pytest

from amas_code import door, tools
from amas_code.events import Action, Edit, ToolError
from amas_code.schema import fitted, schema
from amas_code.shell import Shell
from amas_code.workspace import Workspace


@pytest.fixture
def work(project: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.chdir(project)
    return Workspace(project, Shell(), [])


def test_a_file_is_read_with_its_lines_numbered(work: Workspace) -> None:
    assert tools.read_file(work, "calc.py").split("\n")[0] == "     1\tdef add(a, b):"
    part = tools.read_file(work, "calc.py", 2, 2)
    assert part == "     2\t    return a - b\n(lines 2-2 of 2)"


def test_a_long_file_is_read_in_windows_to_its_end(work: Workspace) -> None:
    Path("long.txt").write_text("".join(f"line {n} {'x' * 90}\n" for n in range(1, 1501)))
    seen, start = "", 1
    while True:
        text = tools.read_file(work, "long.txt", start)
        assert len(text) <= tools.WINDOW + 100
        seen += text
        if "reads on" not in text:
            break
        start = int(text.rpartition("start_line=")[2].split()[0])
    assert all(f"line {n} " in seen for n in range(1, 1501))
    assert work.knows_all(Path("long.txt").resolve(), Path("long.txt").read_bytes())


@pytest.mark.parametrize(
    "path, says",
    [
        ("calk.py", "Did you mean calc.py"),
        ("nothing/here.txt", "There is no file"),
        (".", "is a directory"),
        ("binary", "binary"),
        ("latin", "not valid UTF-8"),
    ],
)
def test_what_cannot_be_read_is_said_clearly(work: Workspace, path: str, says: str) -> None:
    Path("binary").write_bytes(b"\x7fELF\0\0")
    Path("latin").write_bytes("naïve".encode("latin-1"))
    with pytest.raises(ToolError, match=says):
        tools.read_file(work, path)


def test_reading_beyond_the_end_and_an_empty_file(work: Workspace) -> None:
    with pytest.raises(ToolError, match="only 2 lines"):
        tools.read_file(work, "calc.py", 9)
    Path("empty").touch()
    assert "empty" in tools.read_file(work, "empty")


def test_a_line_without_end_does_not_fill_the_window(work: Workspace) -> None:
    Path("min.js").write_text("x" * 200_000 + "\nend\n")
    text = tools.read_file(work, "min.js")
    assert "200000 characters" in text and text.rstrip().endswith("end") and len(text) < 10_000
    with pytest.raises(ToolError, match="read it first"):
        tools.write_file(work, "min.js", "what was never shown is not replaced")


def test_files_are_listed_and_found_without_what_git_ignores(work: Workspace) -> None:
    Path(".gitignore").write_text("*.log\nnode_modules/\n")
    for name in ("src/a.py", "src/deep/er/b.py", "x.log", "node_modules/m/i.js"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("find me\n")
    os.utime("src/a.py", (time.time() - 100,) * 2)
    listing = tools.list_files(work)
    assert "src/a.py" in listing and "src/deep/ (1 files)" in listing
    assert ".log" not in listing and "node_modules" not in listing
    assert tools.list_files(work, "src") == "a.py\ndeep/er/ (1 files)" or "a.py" in listing
    assert tools.glob_files(work, "**/*.py").split("\n")[-1] == "src/a.py"
    assert tools.glob_files(work, "src/*.{py,c}") == "src/a.py"
    assert tools.glob_files(work, "*.rs") == "(no file matches)"
    found = tools.search_files(work, "find m.")
    assert "src/a.py:1:find me" in found and "x.log" not in found
    assert tools.search_files(work, "find", "src/deep") == "src/deep/er/b.py:1:find me"
    assert tools.search_files(work, "find", "src/a.py") == "src/a.py:1:find me"
    assert tools.search_files(work, "find", include="a.*") == "src/a.py:1:find me"
    assert tools.search_files(work, "nowhere") == "(nothing found)"
    with pytest.raises(ToolError, match="regular expression"):
        tools.search_files(work, "(")


def test_a_search_does_not_follow_a_link_out_of_the_project(work: Workspace, home: Path) -> None:
    (home / "secret.txt").write_text("find me\n")
    Path("link.txt").symlink_to(home / "secret.txt")
    Path("out").symlink_to(home)
    assert tools.search_files(work, "find me") == "(nothing found)"


def test_a_search_is_the_same_without_ripgrep(work: Workspace, monkeypatch) -> None:
    Path("a -b.txt").write_text("one\ntwo one\n")
    Path("bin").write_bytes(b"one\0")
    with_it = tools.search_files(work, r"\bone\b")
    monkeypatch.setenv("PATH", os.defpath.replace("/usr/bin", "/nowhere"))
    without = tools.search_files(work, r"\bone\b")
    assert with_it == without == "a -b.txt:1:one\na -b.txt:2:two one"


def test_a_file_is_not_written_over_unread(work: Workspace) -> None:
    with pytest.raises(ToolError, match="read it first"):
        tools.write_file(work, "calc.py", "new")
    tools.read_file(work, "calc.py", 1, 1)
    with pytest.raises(ToolError, match="read it first"):
        tools.write_file(work, "calc.py", "new")
    tools.read_file(work, "calc.py")
    assert tools.write_file(work, "calc.py", "new")[0].after == b"new"
    Path("calc.py").write_text("changed since\n")
    with pytest.raises(ToolError, match="read it first"):
        tools.write_file(work, "calc.py", "new")


def test_what_the_model_wrote_it_need_not_read_again(work: Workspace) -> None:
    (edit,) = tools.create_file(work, "new.py", "a = 1\n")
    Path("new.py").write_bytes(edit.after or b"")
    work.landed((edit,))
    assert tools.write_file(work, "new.py", "a = 2\n")[0].before == b"a = 1\n"
    with pytest.raises(ToolError, match="exists"):
        tools.create_file(work, "new.py", "")


def test_an_unread_file_is_edited_only_on_an_exact_match(work: Workspace) -> None:
    assert tools.edit_file(work, "calc.py", "a - b", "a + b")[0].after.endswith(b"a + b\n")
    with pytest.raises(ToolError, match="read it first"):
        tools.edit_file(work, "calc.py", "return a - b ", "return a + b")
    tools.read_file(work, "calc.py")
    (edit,) = tools.edit_file(work, "calc.py", "return a - b \n", "return a + b\n")
    assert edit.after == b"def add(a, b):\n    return a + b\n" and "indentation" in edit.note


def test_a_file_that_changed_is_told_from_one_never_read(work: Workspace) -> None:
    tools.read_file(work, "calc.py")
    Path("calc.py").write_text("def add(a, b):\n    return a - b  # wrong\n")
    (edit,) = tools.edit_file(work, "calc.py", "a - b", "a + b")
    assert edit.note == "line 2; the file had changed since you read it"
    with pytest.raises(ToolError, match="it changed since you read it; read it again"):
        tools.edit_file(work, "calc.py", "return  a - b", "return a + b")
    tools.read_file(work, "calc.py")
    assert tools.edit_file(work, "calc.py", "a - b", "a + b")[0].note == "line 2"


def test_an_edit_of_an_unread_or_changed_file_does_not_make_it_read(work: Workspace) -> None:
    for _ in range(2):
        old = Path("calc.py").read_text().split()[-1]
        (edit,) = tools.edit_file(work, "calc.py", f"a - {old}", f"a - {old}b")
        Path("calc.py").write_bytes(edit.after or b"")
        work.landed((edit,))
        with pytest.raises(ToolError, match="read"):
            tools.write_file(work, "calc.py", "new")
        tools.read_file(work, "calc.py")
        Path("calc.py").write_text("# another line\n" + Path("calc.py").read_text())


def test_a_forgotten_new_str_deletes_nothing() -> None:
    parameters = schema(tools.edit_file)["function"]["parameters"]
    with pytest.raises(ToolError, match="Missing: new_str"):
        fitted({"path": "calc.py", "old_str": "a - b"}, parameters)


def test_an_edit_tool_writes_nothing(work: Workspace) -> None:
    before = Path("calc.py").read_bytes()
    tools.edit_file(work, "calc.py", "a - b", "a + b")
    tools.delete_file(work, "calc.py")
    tools.apply_patch(work, "*** Delete File: calc.py")
    assert Path("calc.py").read_bytes() == before


def test_the_todo_list_is_kept(work: Workspace) -> None:
    tools.todo_write(work, ["[x] read", "[>] mend"])
    assert tools.todo_read(work) == "[x] read\n[>] mend"


def test_background_commands_are_read_and_stopped(work: Workspace) -> None:
    started = tools.shell_command(work, "echo up; sleep 60", background=True)
    assert "1" in started
    deadline = time.monotonic() + 10
    while "up" not in started and time.monotonic() < deadline:
        started += tools.shell_output(work, "1")
    assert "up" in started
    assert tools.shell_output(work) == "1 echo up; sleep 60"
    tools.shell_stop(work, "1")
    assert "nothing runs" in tools.shell_output(work)
    work.shell.close()
    with pytest.raises(ToolError, match="9"):
        tools.shell_output(work, "9")


PARAMETERS = schema(tools.shell_command)["function"]["parameters"]


def test_a_tool_is_described_by_its_signature_and_docstring() -> None:
    described = schema(tools.shell_command)["function"]
    assert described["name"] == "shell_command" and "work" not in described["parameters"]
    assert PARAMETERS["required"] == ["command"]
    assert PARAMETERS["properties"]["timeout"]["type"] == "integer"
    items = schema(tools.todo_write)["function"]["parameters"]["properties"]["items"]
    assert items["items"] == {"type": "string"}


@pytest.mark.parametrize(
    "args, says",
    [
        ({}, "Missing: command"),
        ({"command": 1}, "must be of type string"),
        ({"command": "a", "timeout": "soon"}, "must be of type integer"),
        ({"command": "a", "timeout": True}, "must be of type integer"),
        ({"command": "a", "wait": 1}, "No parameter wait; there are command"),
        ({"invalid_json": "{x"}, "not one JSON object"),
        ({"cut_off": "…"}, "cut off"),
    ],
)
def test_arguments_that_do_not_fit_are_explained(args: dict, says: str) -> None:
    with pytest.raises(ToolError, match=says):
        fitted(args, PARAMETERS)


def test_numbers_in_quotes_are_understood() -> None:
    given = {"command": "a", "timeout": "5", "background": "True"}
    assert fitted(given, PARAMETERS) == {"command": "a", "timeout": 5, "background": True}
    assert fitted({"command": "a", "timeout": 5.0}, PARAMETERS)["timeout"] == 5


def test_the_door_tells_the_model_what_was_done(work: Workspace) -> None:
    landed = []
    carry_out = door.act(work, tools.handlers(work), lambda action: landed.append(action) or [])
    edit = Edit(Path("calc.py").resolve(), b"a", b"b", "line 1")
    said = carry_out(Action("1", 1, "edit", "edit_file", {}, (edit,)))
    assert said == "Changed calc.py (line 1)." and landed
    assert carry_out(Action("2", 1, "read", "todo_read", {})) == "(the list is empty)"
    assert tools.kind("read_file") == "read" and tools.kind("from_elsewhere") == "run"


def test_handlers_and_schemas_are_the_same_tools() -> None:
    assert [tool["function"]["name"] for tool in tools.TOOLS] == list(tools.HANDLERS)
