"""The scripted model server: driven by real litellm, and by plain HTTP to send what is wrong."""

import copy
import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from amas_code.answer import close
from tests.server import (
    EXAMPLE,
    PROTOCOLS,
    Reply,
    Server,
    Tokens,
    answer,
    bad_key,
    call,
    context_exceeded,
    cut,
    empty,
    end_early,
    error,
    fail_midway,
    from_yaml,
    html,
    overloaded,
    raw_call,
    route,
    say,
    stall,
    truncated,
)

EVERY = pytest.mark.parametrize("protocol", PROTOCOLS)
DEADLINE = 20.0

ASKED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is in a.py?"},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "todo_read",
            "description": "Read the list.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]


class Heard(NamedTuple):
    """A whole stream, put together."""

    text: str
    thought: str
    calls: list[dict]
    finish: str | None
    usage: Any
    chunks: list
    stream: Any


@pytest.fixture(scope="module")
def litellm() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        # Without it the import asks the net for prices.
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        import litellm
    litellm.suppress_debug_info = True
    return litellm


def ask(litellm: Any, server: Server, protocol: str, messages: list = ASKED) -> Any:
    return litellm.completion(
        **route(protocol, server.url),
        messages=messages,
        tools=copy.deepcopy(TOOLS),  # litellm changes them on the way to Gemini
        stream=True,
        stream_options={"include_usage": True},
        max_retries=0,
        timeout=DEADLINE,
    )


def hear(litellm: Any, server: Server, protocol: str, messages: list = ASKED) -> Heard:
    stream = ask(litellm, server, protocol, messages)
    chunks = list(stream)
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    finishes = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason]
    usages = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
    return Heard(
        "".join(delta.content or "" for delta in deltas),
        "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas),
        gathered(deltas),
        finishes[-1] if finishes else None,
        usages[-1] if usages else None,
        chunks,
        stream,
    )


def gathered(deltas: list) -> list[dict]:
    """The tool calls; a new name is a new call, whatever its index says."""
    calls: list[dict] = []
    for part in (part for delta in deltas for part in delta.tool_calls or []):
        if part.function.name:
            function = {"name": part.function.name, "arguments": ""}
            id_ = part.id or f"made_{len(calls)}"
            calls.append({"id": id_, "type": "function", "function": function})
        calls[-1]["function"]["arguments"] += part.function.arguments or ""
    return calls


def asked_for(heard: Heard) -> list[tuple[str, dict]]:
    functions = [one["function"] for one in heard.calls]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def answered(heard: Heard) -> list[dict]:
    """The conversation with every call of it answered."""
    said = {"role": "assistant", "content": heard.text or None, "tool_calls": heard.calls}
    results = [{"role": "tool", "tool_call_id": one["id"], "content": "ok"} for one in heard.calls]
    return [*ASKED, said, *results]


def failure(litellm: Any, protocol: str, reply: Any) -> Any:
    """What litellm raises; where the error comes while iterating, the one it wraps."""
    with Server([reply], protocol) as server, pytest.raises(Exception) as caught:
        hear(litellm, server, protocol)
    return getattr(caught.value, "original_exception", None) or caught.value


def post(url: str, body: Any) -> tuple[int, str]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read().decode()


# What is streamed


@EVERY
def test_text_arrives_in_the_pieces_asked_for(litellm: Any, protocol: str) -> None:
    with Server([say("Hello wörld", chunk=3)], protocol) as server:
        heard = hear(litellm, server, protocol)
    assert heard.text == "Hello wörld"
    assert heard.finish == "stop"
    pieces = [chunk.choices[0].delta.content for chunk in heard.chunks if chunk.choices]
    assert [piece for piece in pieces if piece] == ["Hel", "lo ", "wör", "ld"]


@EVERY
def test_a_tool_call_arrives_beside_text(litellm: Any, protocol: str) -> None:
    with Server([answer("Looking.", call("read_file", path="a.py"))], protocol) as server:
        heard = hear(litellm, server, protocol)
    assert heard.text == "Looking."
    assert asked_for(heard) == [("read_file", {"path": "a.py"})]
    assert heard.finish == "tool_calls"


@EVERY
def test_two_calls_arrive_in_order_and_their_results_are_accepted(
    litellm: Any, protocol: str
) -> None:
    both = answer(call("read_file", path="a.py"), call("todo_read"))
    with Server([both, say("Done.")], protocol) as server:
        first = hear(litellm, server, protocol)
        second = hear(litellm, server, protocol, answered(first))
    assert asked_for(first) == [("read_file", {"path": "a.py"}), ("todo_read", {})]
    assert second.text == "Done."
    assert len(server.requests) == 2
    assert {request.protocol for request in server.requests} == {protocol}


@EVERY
def test_reasoning_arrives_apart_from_the_text(litellm: Any, protocol: str) -> None:
    reply = answer("Yes.", call("read_file", path="a.py"), thought="Is it? It is.")
    with Server([reply, say("Done.")], protocol) as server:
        heard = hear(litellm, server, protocol)
        hear(litellm, server, protocol, answered(heard))
    assert heard.thought == "Is it? It is."
    assert heard.text == "Yes."


@EVERY
def test_usage_is_what_the_reply_says(litellm: Any, protocol: str) -> None:
    with Server([say("Hi.", usage=Tokens(1000, 20, cached=900))], protocol) as server:
        usage = hear(litellm, server, protocol).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (1000, 20)
    if protocol != "ollama":  # it has no cache to tell of
        assert usage.prompt_tokens_details.cached_tokens == 900


@EVERY
def test_usage_follows_the_size_of_the_request(litellm: Any, protocol: str) -> None:
    with Server([say("x" * 400)], protocol) as server:
        usage = hear(litellm, server, protocol).usage
    assert usage.prompt_tokens == server.requests[0].size // 4
    assert usage.completion_tokens == 100


@EVERY
def test_a_stream_may_hold_nothing(litellm: Any, protocol: str) -> None:
    with Server([empty()], protocol) as server:
        heard = hear(litellm, server, protocol)
    assert (heard.text, heard.calls, heard.finish) == ("", [], "stop")


@EVERY
def test_the_token_limit_is_the_reason_to_stop(litellm: Any, protocol: str) -> None:
    with Server([truncated("I was about to")], protocol) as server:
        heard = hear(litellm, server, protocol)
    assert (heard.text, heard.finish) == ("I was about to", "length")


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_bad_arguments_arrive_as_written(litellm: Any, protocol: str) -> None:
    with Server([truncated(raw_call("read_file", '{"path": "a'))], protocol) as server:
        heard = hear(litellm, server, protocol)
    assert heard.calls[0]["function"]["arguments"] == '{"path": "a'
    assert heard.finish == "length"


@EVERY
def test_a_web_page_instead_of_a_stream_has_no_content(litellm: Any, protocol: str) -> None:
    with Server([html()], protocol) as server:
        heard = hear(litellm, server, protocol)
    assert (heard.text, heard.calls, heard.usage) == ("", [], None)


# How it fails


@EVERY
@pytest.mark.parametrize(
    ("reply", "name", "status"),
    [
        (error(400), "BadRequestError", 400),
        (error(401), "AuthenticationError", 401),
        (bad_key(), "AuthenticationError", 401),
        (error(404), "NotFoundError", 404),
        (error(429), "RateLimitError", 429),
        (error(500), "InternalServerError", 500),
    ],
)
def test_an_error_becomes_the_exception_litellm_has_for_it(
    litellm: Any, protocol: str, reply: Any, name: str, status: int
) -> None:
    problem = failure(litellm, protocol, reply)
    assert (type(problem).__name__, problem.status_code) == (name, status)


@EVERY
def test_being_overloaded_is_an_error_of_the_server(litellm: Any, protocol: str) -> None:
    assert failure(litellm, protocol, overloaded()).status_code in (500, 503)


@EVERY
def test_a_conversation_too_long_is_told_as_such(litellm: Any, protocol: str) -> None:
    problem = failure(litellm, protocol, context_exceeded())
    if protocol == "ollama":  # litellm has no rule for it
        assert type(problem) is litellm.BadRequestError
        assert "exceeds the available context size" in str(problem)
    else:
        assert type(problem) is litellm.ContextWindowExceededError


@EVERY
def test_retry_after_comes_through(litellm: Any, protocol: str) -> None:
    problem = failure(litellm, protocol, error(429, retry_after=7))
    assert problem.litellm_response_headers["retry-after"] == "7"


@EVERY
def test_the_message_and_the_headers_may_be_chosen(litellm: Any, protocol: str) -> None:
    problem = failure(litellm, protocol, error(500, "the cat sat on it", headers={"X-Cat": "1"}))
    assert "the cat sat on it" in str(problem)
    assert problem.litellm_response_headers["x-cat"] == "1"


@EVERY
@pytest.mark.parametrize("after", ["start", 0, 4, "text", "call"])
def test_a_dropped_connection_raises(litellm: Any, protocol: str, after: str | int) -> None:
    problem = failure(litellm, protocol, cut(after))
    assert problem.status_code == 500
    assert "disconnected" in str(problem) or "onnection" in str(problem)


@EVERY
def test_what_came_before_the_drop_was_delivered(litellm: Any, protocol: str) -> None:
    said = []
    with (
        Server([cut(8)], protocol) as server,
        pytest.raises(litellm.exceptions.MidStreamFallbackError),
    ):
        for chunk in ask(litellm, server, protocol):
            said.append(chunk.choices[0].delta.content or "")
    assert "".join(said) == EXAMPLE.text[:8]


@EVERY
def test_a_drop_in_a_call_leaves_no_whole_call(litellm: Any, protocol: str) -> None:
    deltas = []
    with (
        Server([cut("call")], protocol) as server,
        pytest.raises(litellm.exceptions.MidStreamFallbackError),
    ):
        for chunk in ask(litellm, server, protocol):
            deltas.append(chunk.choices[0].delta)
    for one in gathered(deltas):
        with pytest.raises(ValueError):
            json.loads(one["function"]["arguments"])


@pytest.mark.parametrize("protocol", ["openai", "anthropic", "ollama"])
def test_a_stream_that_ends_early_raises_nothing_but_has_no_reason(
    litellm: Any, protocol: str
) -> None:
    with Server([end_early("text")], protocol) as server:
        heard = hear(litellm, server, protocol)
    assert heard.text == EXAMPLE.text[: len(heard.text)] != EXAMPLE.text
    assert heard.stream.received_finish_reason is None


@EVERY
def test_an_error_in_the_stream_raises(litellm: Any, protocol: str) -> None:
    problem = failure(litellm, protocol, fail_midway("text", message="the cat sat on it"))
    assert "the cat sat on it" in str(problem)


@EVERY
def test_a_stalled_stream_goes_on_when_released(litellm: Any, protocol: str) -> None:
    gate = threading.Event()
    with Server([stall(gate)], protocol) as server:
        stream = ask(litellm, server, protocol)
        said = next(stream).choices[0].delta.content or ""
        gate.set()
        said += "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    assert said == EXAMPLE.text
    assert server.requests[0].answered is not None


def test_a_client_that_leaves_a_stalled_stream_is_noticed(litellm: Any) -> None:
    with Server([stall(threading.Event())]) as server:
        stream = ask(litellm, server, "openai")
        next(stream)
        close(stream)
        assert server.requests[0].gone.wait(DEADLINE)


# The script


def test_a_script_may_be_a_function_of_the_request(litellm: Any) -> None:
    def echo(body: dict) -> Reply:
        return say(body["messages"][-1]["content"])

    with Server(echo, "openai") as server:
        assert hear(litellm, server, "openai").text == "What is in a.py?"


def test_a_script_that_runs_out_fails_the_test(litellm: Any) -> None:
    with pytest.raises(AssertionError, match="script exhausted"), Server() as server:
        status, body = post(
            f"{server.url}/v1/chat/completions", {"stream": True, "messages": [USER]}
        )
        assert (status, "script exhausted" in body) == (500, True)


def test_a_mistake_in_the_script_fails_the_test() -> None:
    def broken(body: dict) -> Reply:
        raise LookupError("no such line")

    lost = pytest.raises(OSError)
    with pytest.raises(AssertionError, match="no such line"), Server(broken) as server, lost:
        post(f"{server.url}/v1/chat/completions", {"stream": True, "messages": [USER]})


def test_a_failing_test_is_not_hidden_by_the_servers_errors() -> None:
    with pytest.raises(KeyError), Server() as server:
        server.errors.append("something else")
        raise KeyError("the test's own")


def test_requests_are_kept_as_they_came(litellm: Any) -> None:
    with Server([say("Hi.")]) as server:
        hear(litellm, server, "anthropic")
    request = server.requests[0]
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == "test-key"
    assert request.body["system"] == [{"type": "text", "text": "Be brief."}]
    assert request.answered is not None and request.answered >= request.time


def test_the_models_are_listed() -> None:
    with Server(models=("small", "large")) as server:
        lists = [fetch(f"{server.url}{path}") for path in ("/v1/models", "/api/tags")]
        shown = json.loads(post(f"{server.url}/api/show", {"model": "small"})[1])
        version = fetch(f"{server.url}/api/version")
    assert [model["id"] for model in lists[0]["data"]] == ["small", "large"]
    assert [model["name"] for model in lists[1]["models"]] == ["small", "large"]
    assert "tools" in shown["capabilities"]
    assert version["version"]


def fetch(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=DEADLINE) as response:
        return json.load(response)


# What is wrong with a request

USER = {"role": "user", "content": "Hi."}
OPENAI, ANTHROPIC, OLLAMA = "/v1/chat/completions", "/v1/messages", "/api/chat"
GEMINI = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"


def calls(*ids: str, arguments: str = "{}") -> dict:
    function = {"name": "read_file", "arguments": arguments}
    made = [{"id": id_, "type": "function", "function": function} for id_ in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(id_: str) -> dict:
    return {"role": "tool", "tool_call_id": id_, "content": "ok"}


def tool(parameters: Any, name: str = "read_file") -> dict:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def chat(*messages: dict, **more: Any) -> dict:
    return {"model": "m", "stream": True, "messages": list(messages), **more}


def claude(*messages: dict, **more: Any) -> dict:
    return chat(*messages, max_tokens=100, **more)


def blocks(role: str, *content: dict) -> dict:
    return {"role": role, "content": list(content)}


USE = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "ok"}
FUNCTION_CALL = {"functionCall": {"name": "f", "args": {}}}
FUNCTION_RESPONSE = {"functionResponse": {"name": "f", "response": {}}}


def contents(*parts: tuple[str, list]) -> dict:
    return {"contents": [{"role": role, "parts": list_} for role, list_ in parts]}


@pytest.mark.parametrize(
    ("path", "body", "fault"),
    [
        (OPENAI, b"{", "not a JSON object"),
        (OPENAI, b"[]", "not a JSON object"),
        (OPENAI, {**chat(USER), "stream": False}, "stream is not true"),
        (OPENAI, chat(), "neither the user's"),
        (OPENAI, chat(USER, {"role": "assistant", "content": "Hi."}), "neither the user's"),
        (OPENAI, chat(USER, {"role": "system", "content": "x"}, USER), "not the first"),
        (OPENAI, chat({"role": "bot", "content": "x"}, USER), "unknown role 'bot'"),
        (OPENAI, chat({**USER, "time": 3}), "unknown keys ['time']"),
        (OPENAI, chat({"role": "user", "content": 3}), "content is int"),
        (OPENAI, chat({"role": "user", "content": [{"type": "video"}]}), "content parts"),
        (OPENAI, chat(USER, {"role": "assistant", "content": None}, USER), "neither content"),
        (OPENAI, chat(USER, calls("a"), USER), "answers [] to the calls ['a']"),
        (OPENAI, chat(USER, calls("a", "b"), result("a")), "answers ['a'] to the calls ['a', 'b']"),
        (OPENAI, chat(USER, calls("a"), result("a"), result("a")), "answers ['a', 'a']"),
        (OPENAI, chat(USER, calls("a"), USER, result("a")), "answers ['a'] to the calls []"),
        (OPENAI, chat(USER, result("a")), "answers ['a'] to the calls []"),
        (OPENAI, chat(USER, calls("a")), "the last calls have no answer"),
        (OPENAI, chat(USER, calls("a", arguments="{"), result("a")), "not a JSON object"),
        (OPENAI, chat(USER, calls(), USER), "an empty list of tool calls"),
        (OPENAI, chat(USER, tools=[tool({"type": "string"})]), "not of type object"),
        (OPENAI, chat(USER, tools=[tool({"type": "object"})]), "without properties"),
        (OPENAI, chat(USER, tools=[tool({}, "a b")]), "not a valid name"),
        (OPENAI, chat(USER, tools=[tool({}), tool({})]), "defined twice"),
        (
            OPENAI,
            chat(USER, tools=[tool({"type": "object", "properties": {}, "required": ["x"]})]),
            "requires ['x']",
        ),
        (
            OPENAI,
            chat(USER, tools=[tool({"type": "object", "properties": {"x": {"type": "array"}}})]),
            "read_file.x: an array without items",
        ),
        (ANTHROPIC, chat(USER), "max_tokens is missing"),
        (ANTHROPIC, claude(USER, USER), "where 'assistant' is due"),
        (ANTHROPIC, claude(USER, blocks("assistant", USE), USER), "answers [] to the calls ['a']"),
        (ANTHROPIC, claude(blocks("user", RESULT)), "answers ['a'] to the calls []"),
        (
            ANTHROPIC,
            claude(
                USER,
                blocks("assistant", USE),
                blocks("user", {"type": "text", "text": "x"}, RESULT),
            ),
            "tool results are not first",
        ),
        (ANTHROPIC, claude(blocks("user", {"type": "text", "text": " "})), "an empty text block"),
        (
            ANTHROPIC,
            claude(USER, blocks("assistant", {"type": "thinking", "thinking": "x"}), USER),
            "without its signature",
        ),
        (
            ANTHROPIC,
            claude(
                USER,
                blocks("assistant", {"type": "thinking", "thinking": "x", "signature": "y"}),
                USER,
            ),
            "a thinking block was changed",
        ),
        (ANTHROPIC, claude(USER, tools=[{"name": "f"}]), "not of type object"),
        (GEMINI, contents(("user", [])), "no parts"),
        (GEMINI, contents(("user", [{"text": "x"}]), ("model", [{"text": "y"}])), "the model's"),
        (
            GEMINI,
            contents(("model", [FUNCTION_CALL] * 2), ("user", [FUNCTION_RESPONSE])),
            "answers ['f'] to the calls ['f', 'f']",
        ),
        (
            GEMINI,
            contents(
                ("model", [{**FUNCTION_CALL, "thoughtSignature": "y"}]),
                ("user", [FUNCTION_RESPONSE]),
            ),
            "belongs to another call",
        ),
        (GEMINI.partition("?")[0], contents(("user", [{"text": "x"}])), "not streamed"),
        (OLLAMA, chat(USER, calls("a"), result("a")), "not a whole tool call"),
        (OLLAMA, chat(USER, result("a")), "answers ['call'] to the calls []"),
        (OLLAMA, chat({"role": "user", "content": []}), "content is not a string"),
        ("/v2/chat", {}, "no such path"),
    ],
)
def test_a_wrong_request_is_refused_and_fails_the_test(path: str, body: Any, fault: str) -> None:
    server = Server([say("never")])
    with server:
        status, _ = post(server.url + path, body)
        errors, server.errors = server.errors, []
    assert status in (400, 404)
    assert fault in "\n".join(errors)


def test_wrong_requests_fail_the_with_block() -> None:
    with pytest.raises(AssertionError, match="stream is not true"), Server() as server:
        post(server.url + OPENAI, {**chat(USER), "stream": False})


def test_a_request_of_another_protocol_is_an_error() -> None:
    wrong = pytest.raises(AssertionError, match="not a request of ollama")
    with wrong, Server([say("Hi.")], "ollama") as server:
        post(server.url + OPENAI, chat(USER))


# On its own


@pytest.mark.parametrize(
    ("entry", "reply"),
    [
        ({"say": "Hello.", "chunk": 2}, say("Hello.", chunk=2)),
        ({"say": "Hi.", "usage": [10, 2, 5]}, say("Hi.", usage=Tokens(10, 2, 5))),
        (
            {"say": "x", "calls": [{"read_file": {"path": "a"}}], "thought": "y"},
            answer("x", call("read_file", path="a"), thought="y"),
        ),
        ({"calls": [{"todo_read": {}}]}, call("todo_read")),
        ({"cut": "call"}, cut("call")),
        ({"end_early": 3, "say": "Hello."}, end_early(3, say("Hello."))),
        ({"stall": 1.5}, stall(1.5)),
        ({"error": 429, "retry_after": 2}, error(429, retry_after=2)),
        ({"context_exceeded": None}, context_exceeded()),
        ({"html": None}, html()),
    ],
)
def test_a_script_may_be_written_in_yaml(entry: dict, reply: Any) -> None:
    assert from_yaml(entry) == reply


def run_alone(folder: Path, script: str, body: dict) -> tuple[int, str, str]:
    """One request to the script in a process of its own: exit status, answer, stderr."""
    (folder / "script.yaml").write_text(script, encoding="utf-8")
    options = ["--script", str(folder / "script.yaml"), "--log", str(folder / "log.jsonl")]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.server", *options],
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = post(process.stdout.readline().strip() + OPENAI, body)[1]
        process.send_signal(signal.SIGTERM)
        return process.wait(DEADLINE), said, process.communicate()[1]
    finally:
        process.kill()


def test_alone_it_prints_its_url_and_keeps_a_log(tmp_path: Path) -> None:
    status, said, errors = run_alone(tmp_path, "- say: Hello.\n  chunk: 99\n", chat(USER))
    assert (status, errors) == (0, "")
    assert "Hello." in said
    assert json.loads((tmp_path / "log.jsonl").read_text())["body"]["messages"] == [USER]


def test_alone_it_exits_1_on_a_wrong_request(tmp_path: Path) -> None:
    status, _, errors = run_alone(tmp_path, "- say: Hello.\n", chat())
    assert status == 1
    assert "the last message" in errors
