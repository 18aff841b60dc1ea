"""One task from the command line to its end, by the real program with a scripted model."""

import json
import os
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path

import pytest

from amas_code.session import listed
from tests.conftest import AMAS, git, to
from tests.server import (
    PROTOCOLS,
    Break,
    Server,
    Tokens,
    answer,
    bad_key,
    call,
    error,
    route,
    say,
)

FIX = [
    call("read_file", path="calc.py"),
    call("edit_file", path="calc.py", old_str="return a - b", new_str="return a + b"),
    say("Grüße: it adds now.", delay=0.0),
]


def prompt_of(server: Server, request: int = 0) -> str:
    """What the user's message of a request says."""
    [message] = [m for m in server.requests[request].body["messages"] if m["role"] == "user"][:1]
    return message["content"]


def variables(protocol: str, url: str) -> dict[str, str]:
    """The environment that makes amas talk to a server over this wire."""
    return {f"AMAS_{name.upper()}": value for name, value in route(protocol, url).items()}


def results(server: Server) -> list[str]:
    """What the model was told of its calls, as of its last request."""
    return [m["content"] for m in server.requests[-1].body["messages"] if m["role"] == "tool"]


def assert_calm(done: subprocess.CompletedProcess) -> None:
    for text in (done.stdout, done.stderr):
        assert "Traceback" not in text and "Exception ignored" not in text, text


# What goes over the wire


def unmarked(value: object) -> object:
    """Without Anthropic's cache marks, which are no part of what is cached."""
    if isinstance(value, dict):
        return {key: unmarked(each) for key, each in value.items() if key != "cache_control"}
    return [unmarked(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_request_extends_the_last_one_byte_for_byte(amas, protocol: str) -> None:
    """So that the provider has read all but the end of it already."""
    both = answer(call("read_file", path="calc.py"), call("list_files"))
    with Server([*FIX[:2], both, say("Done.")], protocol) as server:
        amas("fix", AMAS_YES="1", **variables(protocol, server.url))
        bodies = [unmarked(request.body) for request in server.requests]
    said = [json.dumps(body.pop("contents", None) or body.pop("messages")) for body in bodies]
    assert len(said) == 4
    for before, after in pairwise(said):
        assert after.startswith(before[:-1])
    assert len({json.dumps(body) for body in bodies}) == 1  # the system prompt, tools, all else


def test_anthropic_is_told_what_to_keep_in_its_cache(amas) -> None:
    """The system prompt with the tools before it, all of the last request, all of this one."""
    with Server(FIX, "anthropic") as server:
        amas("fix", AMAS_YES="1", **variables("anthropic", server.url))
        body, earlier = server.requests[-1].body, server.requests[-2].body
    marked = [n for n, message in enumerate(body["messages"]) if "cache_control" in str(message)]
    assert "cache_control" in body["system"][-1]
    assert marked == [len(earlier["messages"]) - 1, len(body["messages"]) - 1]
    assert str(body).count("cache_control") == 3  # at most four are taken


# What comes out where


def test_a_task_is_done_shown_and_left(amas, project: Path) -> None:
    with Server(FIX) as server:
        done = amas("fix", "@calc.py", **to(server.url), AMAS_YES="1")
        assert "fix @calc.py" in prompt_of(server)
        assert "return a - b" in prompt_of(server)  # the file that was mentioned
    assert done.returncode == 0, done.stderr
    for shown in ("read_file calc.py", "return a + b", "Grüße: it adds now.", "1 file changed"):
        assert shown in done.stdout
    assert "\x1b" not in done.stdout
    assert "return a + b" in (project / "calc.py").read_text()
    assert git(project, "log", "-1", "--format=%s").startswith("[amas] edit calc.py: fix")


def test_print_gives_only_the_answer_and_the_pipe_joins_the_prompt(amas, tmp_path: Path) -> None:
    """In a world where nothing can be kept and no letter is beyond ASCII."""
    world = {"HOME": os.devnull, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with Server(FIX) as server:
        done = amas("-p", "do this", stdin="@calc.py\nlook", **to(server.url), **world)
        assert prompt_of(server).startswith("do this")
        assert prompt_of(server).endswith("@calc.py\nlook")  # a pipe mentions no files
        assert "needs the user's consent and nobody is there to ask" in results(server)[1]
    assert done.stdout == "Gr??e: it adds now.\n"
    assert "read_file calc.py" in done.stderr
    assert done.returncode == 4
    assert_calm(done)


def test_json_is_one_object_that_says_what_was_refused(amas, project: Path) -> None:
    script = [
        call("shell_command", command="touch ran"),
        say("Not run.", usage=Tokens(9, 3)),
    ]
    with Server(script) as server:
        done = amas("--output-format", "json", "--allow", "touch", "go", **to(server.url))
    assert done.returncode == 4
    assert not (project / "ran").exists()
    found = json.loads(done.stdout)
    assert sorted(found) == sorted(
        ["type", "is_error", "result", "session_id", "num_turns", "duration_ms", "usage"]
        + ["total_cost_usd"]
    )
    assert (found["type"], found["is_error"], found["num_turns"]) == ("result", True, 2)
    assert found["result"].startswith("Not ")
    assert found["usage"]["output_tokens"] >= 3
    assert found["session_id"] == listed(project / ".amas/sessions")[0].id


def test_stream_json_is_an_event_a_line_and_only_that(amas, project: Path) -> None:
    script = [
        answer(call("shell_command", command="echo one"), call("shell_command", command="echo 2")),
        say("Both ran."),
    ]
    with Server(script) as server:
        env = {"AMAS_ALLOW": "echo three\necho one", **to(server.url)}
        done = amas("--output-format", "stream-json", "go", **env)
    assert done.returncode == 4  # one of the two was not allowed
    lines = [json.loads(line) for line in done.stdout.strip().split("\n")]
    assert [lines[0]["type"], lines[-1]["type"]] == ["init", "result"]
    assert lines[0]["session_id"] == lines[-1]["session_id"]
    assert [line["ok"] for line in lines if line["type"] == "ended"] == [True, False]
    assert "one" in next(line for line in lines if line["type"] == "ended")["result"]


def test_a_session_goes_on_where_it_was_left(amas, project: Path) -> None:
    with Server([say("First."), say("Second.")]) as server:
        first = amas("one", AMAS_PRINT="1", **to(server.url))
        [session] = listed(project / ".amas/sessions")
        second = amas("-c", "-p", "two", **to(server.url))
        said = [m["content"] for m in server.requests[1].body["messages"]]
    assert (first.stdout, second.stdout) == ("First.\n", "Second.\n")
    assert f"Resumed {session.id}: one" in second.stderr
    assert said[2:] == ["First.", "two"]
    assert len(listed(project / ".amas/sessions")) == 1


# How it ends


@pytest.mark.parametrize(
    "limit, code",
    [
        ({"AMAS_MAX_TURNS": "2"}, 5),
        ({"AMAS_MAX_COST": "0.000001", "AMAS_MODEL": "openai/gpt-4o-mini"}, 6),
    ],
)
def test_a_limit_ends_the_run_with_its_status(amas, limit: dict, code: int) -> None:
    """The script has no end of its own."""
    with Server(lambda body: call("list_files", depth=len(body["messages"]))) as server:
        done = amas("--output-format", "json", "go", **(to(server.url) | limit))
        assert len(server.requests) <= 2
    assert done.returncode == code
    assert "limit" in json.loads(done.stdout)["result"]


def test_the_time_limit_ends_a_model_that_says_nothing(amas) -> None:
    endless = say("Never.")._replace(broken=Break("start", "wait", 600.0))
    with Server(lambda body: endless) as server:
        done = amas("-p", "go", "--max-time", "0.5", **to(server.url))
    assert (done.returncode, done.stdout) == (6, "")
    assert "max_time" in done.stderr


def test_a_refused_key_and_a_refused_request_say_so(amas) -> None:
    with Server([bad_key()]) as server:
        done = amas("-p", "go", **to(server.url))
    assert (done.returncode, done.stdout) == (3, "")
    assert "amas config" in done.stderr
    nothing = amas("--output-format", "json", "go", AMAS_MODEL="nosuch/model")
    assert nothing.returncode == 1
    assert json.loads(nothing.stdout)["is_error"] is True  # and nothing of the library's beside it
    assert_calm(nothing)


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return state.stdout.strip()[:1] not in ("", "Z")


def wait_for(what) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_commands_too_and_keeps_the_session(
    project: Path, env: dict, number: int, code: int
) -> None:
    command = "echo $$ > pid; exec sleep 600"
    with Server([call("shell_command", command=command, timeout=600)]) as server:
        arguments = ["--output-format", "json", "--allow", command, "go"]
        process = subprocess.Popen(
            [*AMAS, *arguments],
            cwd=project,
            env=env | to(server.url),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        pid = project / "pid"
        wait_for(lambda: pid.exists() and pid.read_text().strip())
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert json.loads(out)["is_error"] is True
    assert "Traceback" not in err
    wait_for(lambda: not alive(int(pid.read_text())))
    [session] = listed(project / ".amas/sessions")
    assert session.prompt.startswith("go")
    assert json.loads(out)["session_id"] == session.id


def test_a_reader_that_goes_away_ends_the_run(project: Path, env: dict) -> None:
    """As with `amas -p … | head -0`."""
    for arguments in (["-p"], ["--output-format", "stream-json"]):
        with Server([say("Nobody hears this.")]) as server:
            read, write = os.pipe()
            os.close(read)
            done = subprocess.run(
                [*AMAS, *arguments, "go"],
                cwd=project,
                env=env | to(server.url),
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=subprocess.PIPE,
                text=True,
            )
            os.close(write)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


# Whom it talks to


def test_a_local_ollama_is_asked_where_there_is_no_key(amas) -> None:
    with Server([say("Local.")], protocol="ollama", models=("qwen3", "gemma")) as server:
        done = amas("-p", "go", OLLAMA_HOST=server.url.removeprefix("http://"))
        assert server.requests[0].body["model"] == "qwen3"
    assert (done.returncode, done.stdout) == (0, "Local.\n")


def test_a_proxy_is_honoured(amas) -> None:
    with Server([say("By proxy.")]) as server:
        done = amas("-p", "go", HTTP_PROXY=server.url, **to("http://model.invalid"))
        assert server.requests[0].path == "http://model.invalid/v1/chat/completions"
    assert done.stdout == "By proxy.\n"


def test_a_fallback_at_another_provider_never_sees_the_first_one_s_key(amas) -> None:
    with Server([error(404)]) as first, Server([say("Here.")], protocol="anthropic") as second:
        done = amas(
            *("-p", "go"),
            AMAS_FALLBACK_MODEL="anthropic/claude-sonnet-4-5",
            ANTHROPIC_API_KEY="other-key",
            ANTHROPIC_API_BASE=second.url,
            **to(first.url),
        )
        assert first.requests[0].headers["authorization"] == "Bearer test-key"
        assert "test-key" not in json.dumps(second.requests[0].headers)
        assert second.requests[0].headers["x-api-key"] == "other-key"
    assert done.stdout == "Here.\n"
    assert "anthropic/claude-sonnet-4-5" in done.stderr
