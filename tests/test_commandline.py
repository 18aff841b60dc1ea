"""What the command line itself promises, up to where a model would be asked."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from amas_code.checkpoint import Checkpoints
from amas_code.events import Asked, Edit, Said
from amas_code.session import Journal, place
from tests.conftest import AMAS, git
from tests.server import Server
from tests.terminal import Terminal

NO_TASK = "There is no task: give one, or pipe it in. A chat needs a terminal."
KEYED = {"AMAS_MODEL": "openai/test-model", "AMAS_API_KEY": "k"}


def recorded(project: Path, id: str, prompt: str = "Fix it.") -> str:
    """A session of yesterday."""
    journal = Journal(place(project, project), lambda event: None, id)
    journal.listen(Asked(prompt))
    journal.listen(Said({"role": "user", "content": prompt}))
    return id


def edited(project: Path, text: str = "changed\n") -> Path:
    """calc.py after an edit of ours."""
    path = project / "calc.py"
    edit = Edit(path, path.read_bytes(), text.encode())
    Checkpoints(project, "s", state=project).land([edit], "edit calc.py: Fix it.")
    return path


def assert_calm(done: subprocess.CompletedProcess) -> None:
    for text in (done.stdout, done.stderr):
        assert "Traceback" not in text and "Exception ignored" not in text, text


# Tasks and subcommands


def test_version_and_help_answer_in_any_state(amas) -> None:
    for option, words in (("--version", "amas, version"), ("--help", "--max-turns")):
        done = amas(option, HOME=os.devnull, AMAS_MAX_TURNS="x", AMAS_VERSION="1")
        assert (done.returncode, done.stderr) == (0, "")
        assert words in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["undo", "the last change"],
        ["undo", "0"],
        ["--", "undo"],
        ["checkpoint", "list", "all", "things"],
        ["demo", "of", "the", "parser"],
        ["config", "is", "broken"],
        ["Undo"],
    ],
)
def test_what_does_not_parse_as_a_subcommand_is_a_task(amas, words: list[str]) -> None:
    done = amas(*words)
    assert done.returncode == 3  # a task needs a model, and there is none
    assert "There is no model to ask yet" in done.stderr


def test_undo_and_redo_work_from_anywhere_without_a_key(amas, project: Path, home: Path) -> None:
    path = edited(project)
    before = amas("-C", str(project), "undo", cwd=home)
    assert before.returncode == 0 and before.stderr.startswith("Undo: edit calc.py")
    assert before.stdout.startswith("Undone: edit calc.py")
    assert "return a - b" in path.read_text()
    after = amas("redo", "1", AMAS_DIRECTORY=str(project), cwd=home)
    assert after.stdout.startswith("Done again: edit calc.py")
    assert path.read_text() == "changed\n"
    assert amas("undo").returncode == 0
    assert amas("undo").stdout == "There is nothing to undo.\n"


def test_an_undo_that_would_touch_the_users_lines_says_so_in_a_line(amas, project: Path) -> None:
    path = edited(project)
    path.write_text("mine\n")
    done = amas("undo")
    assert done.returncode == 1
    assert done.stderr.startswith("amas: Nothing was changed")
    assert path.read_text() == "mine\n"
    assert_calm(done)


def test_on_a_terminal_an_undo_is_named_and_asked_about(terminal, project: Path) -> None:
    path = edited(project)
    for key, text in (("n", "changed\n"), ("y", "def add(a, b):\n    return a - b\n")):
        asked = terminal("undo")
        screen = asked.wait("Go ahead?")
        assert "Undo: edit calc.py: Fix it." in screen and path.read_text() == "changed\n"
        asked.send(f"{key}\r")
        assert asked.ended() == 0
        assert path.read_text() == text
    edited(project)
    assert terminal("undo", "--yes").ended() == 0
    assert "return a - b" in path.read_text()


def test_what_a_command_did_is_shown_and_undone_only_with_a_word(
    amas, terminal, project: Path, home: Path
) -> None:
    checkpoints = Checkpoints(project, state=home / ".local/state/amas")
    begun = checkpoints.before_command("make")
    (project / "made").write_text("x\n")
    checkpoints.after_command(begun)
    done = amas("undo")
    assert done.returncode == 4 and "--yes" in done.stderr and "delete made" in done.stderr
    asked = terminal("undo")
    assert "delete made" in asked.wait("Go ahead?")
    asked.send("\r")
    assert asked.ended() == 0 and (project / "made").exists()
    assert "(made)" in amas("undo", "-y").stdout and not (project / "made").exists()
    assert amas("redo").returncode == 0 and (project / "made").exists()


def test_checkpoints_are_listed_and_gone_back_to(amas, project: Path) -> None:
    path = edited(project, "one\n")
    edited(project, "two\n")
    assert amas("checkpoint", "list").stdout == amas("checkpoint").stdout
    rows = amas("checkpoint").stdout.strip().split("\n")
    assert len(rows) == 2
    done = amas("checkpoint", "restore", "1")
    assert (done.returncode, path.read_text()) == (0, "one\n")
    assert amas("checkpoint", "restore").returncode == 2
    unknown = amas("checkpoint", "restore", "nothing-such")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("amas: No checkpoint is called nothing-such")


def test_a_subcommand_never_works_in_another_directory_than_was_asked_for(
    amas, project: Path
) -> None:
    path = edited(project)
    done = amas("-C", str(project / "missing"), "undo")
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    assert path.read_text() == "changed\n"


def test_a_subcommand_tells_its_own_usage(amas) -> None:
    assert amas("undo", "--help").stdout.startswith("Usage: amas undo")


def test_the_demo_answers_itself_without_a_terminal(amas, home: Path) -> None:
    done = amas("demo", cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Undone" in done.stdout
    assert not (home / ".amas").exists()


# Usage, keys, sessions: a line and an exit status


def test_without_a_terminal_a_chat_is_a_usage_error(amas, project: Path, env: dict) -> None:
    for arguments in ([], ["-p"], ["--output-format", "json"], ["resume"], [""], ["  "]):
        done = amas(*arguments)
        assert done.returncode == 2, arguments
        assert NO_TASK in done.stderr
        assert_calm(done)


def test_a_chat_whose_output_goes_elsewhere_is_a_usage_error(project: Path, env: dict) -> None:
    script = f"{' '.join(AMAS)} | cat; exit ${{PIPESTATUS[0]}}"
    with Terminal(["bash", "-c", script], project, env) as screen:
        assert screen.ended() == 2
        assert NO_TASK in screen.all()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bogus", "hi"],
        ["--mode", "yolo", "hi"],
        ["--max-turns", "-1", "hi"],
        ["--max-cost", "-1", "hi"],
        ["--max-cost", "nan", "hi"],
        ["-C", "missing", "hi"],
        ["-C", "calc.py", "hi"],
        ["-m"],
    ],
)
def test_a_wrong_option_is_a_usage_error_in_one_line(amas, arguments: list[str]) -> None:
    done = amas(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("amas: ")
    assert done.stderr.count("\n") == 1


def test_each_option_is_read_from_the_environment_too(amas, project: Path) -> None:
    (project / ".amas").mkdir()
    (project / ".amas/config.yaml").write_text("mode: plan\n")
    assert "not trusted" in amas("hi").stderr
    assert "not trusted" not in amas("hi", AMAS_TRUST="1").stderr
    for variable, value, told in (
        ("AMAS_DIRECTORY", "/nowhere", "does not exist"),
        ("AMAS_OUTPUT_FORMAT", "xml", "xml"),
        ("AMAS_MODE", "yolo", "there is no 'yolo'"),
        ("AMAS_MAX_TURNS", "many", "many"),
        ("AMAS_MAX_COST", "-1", "-1"),
        ("AMAS_MAX_TIME", "soon", "soon"),
        ("AMAS_RESUME", "nothing-such", "no earlier session"),
        ("AMAS_CONTINUE", "1", "no earlier session"),
    ):
        done = amas("hi", **KEYED, **{variable: value})
        assert done.returncode == 2, variable
        assert told in done.stderr
        assert_calm(done)


def test_errors_are_json_where_json_was_asked_for(amas, home: Path) -> None:
    def told(code: int, *arguments: str, **env: str) -> str:
        done = amas(*arguments, **env)
        assert done.returncode == code, done.stderr
        [line] = done.stdout.strip().split("\n")
        answer = json.loads(line)
        assert (answer["type"], answer["is_error"], answer["num_turns"]) == ("result", True, 0)
        assert answer["usage"] == {"input_tokens": 0, "output_tokens": 0, "cached_tokens": 0}
        return answer["result"]

    assert "--bogus" in told(2, "--bogus", "hi", "--output-format", "json")
    assert NO_TASK in told(2, AMAS_OUTPUT_FORMAT="stream-json")
    assert "amas demo" in told(3, "hi", "--output-format", "stream-json")
    assert "no earlier session" in told(2, "-c", "hi", "--output-format=json", **KEYED)
    (home / ".config/amas").mkdir(parents=True)
    (home / ".config/amas/config.yaml").write_text("stream: maybe\n")
    assert "config.yaml: stream" in told(2, "hi", "--output-format", "json")


def test_a_bad_settings_file_stops_the_start_and_is_kept(amas, project: Path) -> None:
    (project / ".amas").mkdir()
    (project / ".amas/config.yaml").write_text("stream: true\nmodel: [\n")
    done = amas("hi", **KEYED)
    assert done.returncode == 2
    assert ".amas/config.yaml: line 3: not valid YAML" in done.stderr
    assert (project / ".amas/config.yaml").read_text() == "stream: true\nmodel: [\n"


def test_without_a_key_five_lines_say_how_to_begin(amas) -> None:
    for env in ({}, {"AMAS_MODEL": "anthropic/claude-sonnet-5"}, {"AMAS_API_KEY": "whose"}):
        done = amas("hi", OLLAMA_HOST="127.0.0.1:1", **env)
        assert (done.returncode, done.stdout) == (3, "")
        assert len(done.stderr.strip().split("\n")) == 5
        for word in ("aistudio.google.com", "amas config", "ollama pull", "amas demo"):
            assert word in done.stderr


def test_without_a_key_the_models_of_a_local_ollama_are_offered(terminal) -> None:
    with Server(models=("qwen3", "gemma")) as server:
        screen = terminal(OLLAMA_HOST=server.url.removeprefix("http://"))
        screen.wait("2  ollama_chat/gemma")
        screen.send("2\r")
        screen.wait("ollama_chat/gemma · /help")
        screen.wait("context ")
        screen.send("\x04")
        assert screen.ended() == 0


def test_an_earlier_session_is_named_by_the_beginning_of_its_id(amas, project: Path) -> None:
    for id in ("20260101-1", "20260101-2"):
        recorded(project, id)
    for arguments, told in (
        (["-r", "nothing"], "amas: No session begins with nothing."),
        (["-r", "2026"], "amas: 2 sessions begin with 2026: 20260101-"),
        (["-r", ""], "amas: which session?"),
        (["-r", "../x"], "amas: No session begins with ../x."),
    ):
        done = amas(*arguments, "go on", **KEYED)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(told)


def test_resume_picks_a_session_on_a_terminal(terminal, project: Path) -> None:
    recorded(project, "20260101-1", "Fix the parser.")
    recorded(project, "20260102-2", "Write the manual.")
    for arguments in (["resume"], ["-r", "?"], ["-r", "20260101"], ["resume", "20260101"]):
        screen = terminal(*arguments, **KEYED)
        if "20260101" not in arguments:
            shown = screen.wait("Number")
            number = next(row for row in shown.split("\n") if "Fix the parser." in row).split()[0]
            screen.send(f"{number}\r")
        screen.wait("Resumed 20260101-1: Fix the parser.")
        screen.wait("context ")
        screen.send("\x04")
        assert screen.ended() == 0
        assert "Go on with: amas -r 20260101-1" in screen.all()


def test_a_project_s_settings_are_asked_about_once_and_again_when_they_change(
    terminal, project: Path
) -> None:
    (project / ".amas").mkdir()
    settings = project / ".amas/config.yaml"

    def start(answer: str) -> str:
        screen = terminal("hi")
        if answer:
            screen.wait("Trust this project's settings?")
            screen.send(f"{answer}\r")
        assert screen.ended() == 3
        return screen.all()

    settings.write_text("api_base: http://127.0.0.1:1\n")
    assert "api_base: 'http://127.0.0.1:1'" in start("n")
    assert "not trusted" in start("n")
    assert "not trusted" not in start("y")
    assert "Trust" not in start("")
    settings.write_text("api_base: http://127.0.0.1:2\n")
    assert "not trusted" in start("n")


def test_trust_given_once_where_nobody_can_be_asked_is_remembered(amas, project: Path) -> None:
    (project / ".amas").mkdir()
    (project / ".amas/config.yaml").write_text("auto_accept: true\n")
    assert "not trusted, so left out: auto_accept" in amas("hi").stderr
    assert "not trusted" not in amas("--trust", "hi").stderr
    assert "not trusted" not in amas("hi").stderr


# Standard input, and a hostile world: a line, never a traceback


def in_shell(project: Path, env: dict, script: str, **more: str) -> subprocess.CompletedProcess:
    """Run a script in which `$amas` is the program."""
    return subprocess.run(
        ["bash", "-c", f"amas='{' '.join(AMAS)}'; {script}"],
        cwd=project,
        env=env | more,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "script",
    [
        "$amas hi < /dev/null",
        "$amas hi <&-",
        "$amas hi <&- >&-",
        "head -c 100000 /dev/urandom | $amas hi",
        "printf '' | $amas hi",
        "$amas hi $'\\xff\\xfe'",
    ],
)
def test_no_kind_of_standard_input_stops_a_task(project: Path, env: dict, script: str) -> None:
    done = in_shell(project, env, script)
    assert done.returncode == 3, done.stderr
    assert "amas demo" in done.stderr
    assert_calm(done)


def test_a_pipe_that_never_speaks_holds_nothing_up(project: Path, env: dict) -> None:
    read, write = os.pipe()
    done = subprocess.run(
        [*AMAS, "hi"], cwd=project, env=env, stdin=read, capture_output=True, text=True, timeout=60
    )
    os.close(read)
    os.close(write)
    assert done.returncode == 3
    assert "Nothing came through standard input" in done.stderr


def test_a_closed_standard_input_is_no_task(project: Path, env: dict) -> None:
    for script in ("$amas <&-", "$amas < /dev/null", "$amas -p <&- >&-", "$amas '' >&-"):
        done = in_shell(project, env, script)
        assert done.returncode == 2, done.stderr
        assert NO_TASK in done.stderr
        assert_calm(done)


def test_closed_streams_break_no_answer(project: Path, env: dict) -> None:
    for script, code in (
        ("$amas --bogus >&-", 2),
        ("$amas --bogus 2>&-", 2),
        ("$amas --bogus <&- >&- 2>&-", 2),
        ("$amas undo >&-", 0),
        ("$amas demo <&- >&- 2>&-", 0),
        ("$amas hi 2>&-", 3),
    ):
        done = in_shell(project, env, f"({script}); exit $?")
        assert done.returncode == code, script
        assert_calm(done)


def test_endless_input_is_refused(project: Path, env: dict) -> None:
    done = in_shell(project, env, "yes | $amas -p hi")
    assert done.returncode == 2
    assert "too much on standard input" in done.stderr


def test_nobody_reading_the_output_is_no_trouble(amas, project: Path, env: dict) -> None:
    edited(project)
    for call in ("$amas checkpoint", "$amas --help", "$amas demo", "$amas --output-format json x"):
        done = in_shell(project, env, f"{call} | head -0; exit ${{PIPESTATUS[0]}}")
        assert done.returncode in (0, 1, 3), done.stderr
        assert_calm(done)


def test_a_directory_that_has_vanished_is_named_in_a_line(
    tmp_path: Path, project: Path, env: dict
) -> None:
    for call in ("hi", "undo", "demo", "-p hi"):
        (tmp_path / "gone").mkdir()
        done = in_shell(
            project, env, f"cd '{tmp_path}/gone'; rmdir '{tmp_path}/gone'; $amas {call}"
        )
        assert done.returncode == 2, done.stderr
        assert "amas: the working directory is gone" in done.stderr
        assert_calm(done)


@pytest.mark.parametrize(
    "world",
    [
        {"HOME": os.devnull},
        {"HOME": ""},
        {"HOME": "relative"},
        {"XDG_STATE_HOME": os.devnull, "XDG_CONFIG_HOME": os.devnull},
        {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii:strict"},
        {"TERM": "dumb"},
        {"PATH": ""},
    ],
    ids=str,
)
def test_a_hostile_environment_gets_a_line_at_worst(amas, tmp_path: Path, world: dict) -> None:
    (tmp_path / "plain").mkdir()
    for arguments in (["undo"], ["grüß …", "-p"], ["-C", str(tmp_path / "plain"), "undo"]):
        done = amas(*arguments, **world)
        assert done.returncode in (0, 1, 3), done.stderr
        assert_calm(done)


def test_a_chat_starts_where_nothing_can_be_kept(terminal, project: Path) -> None:
    screen = terminal(**KEYED, HOME=os.devnull)
    screen.wait("/help")
    screen.wait("context ")
    screen.send("/help\r")
    screen.wait("/undo")
    screen.send("\x04")
    assert screen.ended() == 0
    assert "Traceback" not in screen.all()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_project_that_cannot_be_written_gets_a_line_at_worst(amas, project: Path) -> None:
    edited(project)
    git_directory = project / ".git/amas"
    for path in (project, git_directory):
        path.chmod(0o500)
    try:
        for arguments in (["undo"], ["checkpoint"], ["hi"]):
            done = amas(*arguments)
            assert done.returncode in (0, 1, 3)
            assert_calm(done)
    finally:
        for path in (project, git_directory):
            path.chmod(0o700)


def test_ctrl_c_at_a_question_ends_quietly(terminal) -> None:
    with Server(models=("qwen3", "gemma")) as server:
        screen = terminal(OLLAMA_HOST=server.url)
        screen.wait("Number")
        screen.send("\x03")
        assert screen.ended() == 130
    assert "Traceback" not in screen.all()


def test_ctrl_c_while_input_is_awaited_ends_quietly(project: Path, env: dict) -> None:
    read, write = os.pipe()
    os.write(write, b"begun")
    with subprocess.Popen(
        [*AMAS, "hi"], cwd=project, env=env, stdin=read, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 30
        while waiting_bytes(read) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(2)
        assert process.stderr is not None
        assert process.stderr.read().strip() == "Stopped."
    assert process.returncode == 130
    os.close(read)
    os.close(write)


def waiting_bytes(pipe: int) -> int:
    """How much nobody has read from a pipe yet."""
    import array
    import fcntl
    import termios

    size = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, size)
    return size[0]


def test_the_branch_is_left_as_it_was(amas, project: Path) -> None:
    amas("hi")
    assert git(project, "status", "--porcelain") == ""
