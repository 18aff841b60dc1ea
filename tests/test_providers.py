"""The model side through real litellm: four protocols, and all that goes wrong on a wire.

All of it has to hold with litellm imported slim and, AMAS_SLIM_IMPORT=false, imported whole.
"""

import copy
import itertools
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from amas_code import catalog
from amas_code.answer import Answer
from amas_code.config import Settings
from amas_code.events import ContextExceeded, Cut, Notice, Stopped, Text, Thought, Usage
from amas_code.guards import Guard
from amas_code.keys import Keyring, provider_name
from amas_code.providers import Model
from amas_code.signals import pulse
from amas_code.tools import TOOLS
from amas_code.trouble import explain
from tests.server import (
    EXAMPLE,
    PROTOCOLS,
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
    html,
    overloaded,
    raw_call,
    say,
    stall,
    truncated,
)

EVERY = pytest.mark.parametrize("protocol", PROTOCOLS)
DEADLINE = 20.0  # seconds that anything may take before a test gives up on it
ASKED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is in README.md?"},
]


class Talk:
    """A model of the server's, what it emitted, and what was asked."""

    def __init__(self, url: str, protocol: str = "openai", **settings: Any):
        self.settings = Settings(**{"model": PROTOCOLS[protocol].model} | settings)
        self.settings.slim_import = os.environ.get("AMAS_SLIM_IMPORT") != "false"
        self.keyring = Keyring(Path("nowhere"), {})
        owner, base = provider_name(self.settings.model), url + PROTOCOLS[protocol].api_base
        self.keyring.given = {"api_key": ("test-key", owner), "api_base": (base, owner)}
        self.heard: list = []
        self.model = Model(self.settings, self.keyring, self.heard.append)
        self.model.backoff = 0.0

    def ask(self, messages: list[dict] = ASKED) -> dict:
        return self.model.complete(messages, TOOLS)

    def fails(self, messages: list[dict] = ASKED) -> Cut:
        with pytest.raises(Cut) as caught:
            self.ask(messages)
        return caught.value

    def all(self, kind: type) -> list:
        return [event for event in self.heard if isinstance(event, kind)]

    def text(self) -> str:
        return "".join(event.chunk for event in self.all(Text))

    def notices(self) -> str:
        return "\n".join(event.text for event in self.all(Notice))


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """litellm reads the environment, too."""
    for provider in ("OPENAI", "ANTHROPIC", "GEMINI", "GOOGLE"):
        for name in ("API_KEY", "API_BASE", "BASE_URL"):
            monkeypatch.delenv(f"{provider}_{name}", raising=False)


@pytest.fixture
def interrupting() -> Iterator[None]:
    """Ctrl-C works even where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def answered(messages: list[dict], message: dict, *results: str) -> list[dict]:
    """The conversation after this message and the results of its calls."""
    calls = message.get("tool_calls") or []
    return [
        *messages,
        message,
        *(
            {"role": "tool", "tool_call_id": one["id"], "content": result}
            for one, result in zip(calls, results or itertools.repeat("done"), strict=False)
        ),
    ]


def called(message: dict) -> list[tuple[str, dict]]:
    functions = [one["function"] for one in message.get("tool_calls") or []]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


# What a model says


@EVERY
def test_text_and_calls_arrive_as_they_come(protocol: str) -> None:
    reply = answer("I read.", call("read_file", path="a.py"), thought="Hm, a file.")
    with Server([reply], protocol) as server:
        talk = Talk(server.url, protocol)
        message = talk.ask()
    assert message["content"] == talk.text() == "I read."
    assert len(talk.all(Text)) > 1
    assert "".join(event.chunk for event in talk.all(Thought)) == "Hm, a file."
    assert called(message) == [("read_file", {"path": "a.py"})]


@EVERY
def test_without_streaming_the_text_comes_at_once(protocol: str) -> None:
    with Server([say("One text, many pieces.")], protocol) as server:
        talk = Talk(server.url, protocol, stream=False)
        talk.ask()
    assert talk.all(Text) == [Text("One text, many pieces.")]


@EVERY
def test_two_calls_stay_two_and_their_ids_and_arguments_are_sound(protocol: str) -> None:
    both = answer(call("read_file", path="a.py"), call("read_file", path="b.py"))
    same = answer(call("todo_read"), call("todo_read"))
    with Server([both, same], protocol) as server:
        talk = Talk(server.url, protocol)
        first = talk.ask()
        second = talk.ask(answered(ASKED, first))
    assert called(first) == [("read_file", {"path": "a.py"}), ("read_file", {"path": "b.py"})]
    assert called(second) == [("todo_read", {}), ("todo_read", {})]
    ids = [one["id"] for one in first["tool_calls"] + second["tool_calls"]]
    assert len(set(ids)) == 4


@EVERY
def test_a_request_leaves_conversation_and_tools_as_they_are(protocol: str) -> None:
    """litellm writes into what it is given; what the next request sends must not depend on it."""
    reply = answer(call("read_file", path="a.py"), thought="Hm.")
    with Server([reply, say("Done."), say("Again.")], protocol) as server:
        talk = Talk(server.url, protocol)
        messages = answered(ASKED, talk.ask())
        before, tools = copy.deepcopy(messages), copy.deepcopy(TOOLS)
        talk.ask(messages)
        assert (messages, TOOLS) == (before, tools)
        talk.ask(messages)
    first, second = (request.body for request in server.requests[1:])
    assert first == second


@EVERY
def test_a_signed_thought_goes_back_unchanged(protocol: str) -> None:
    """The server knows its signatures and checks them."""
    reply = answer("Hm.", call("read_file", path="a.py"), thought="First a.py, then we see.")
    with Server([reply, reply, say("Done.")], protocol) as server:
        talk = Talk(server.url, protocol)
        messages = answered(ASKED, talk.ask())
        messages = answered(messages, talk.ask(messages))
        talk.ask(messages)
        sent = json.dumps(server.requests[-1].body)
    signed = {"anthropic": '"signature"', "gemini": '"thoughtSignature"'}
    if protocol in signed:
        assert sent.count(signed[protocol]) == 2


def test_a_redacted_thought_is_kept_too() -> None:
    from litellm.types.utils import Delta

    block: Any = {"type": "redacted_thinking", "data": "sealed"}
    heard = Answer(True, lambda event: None)
    heard.grow(Delta(thinking_blocks=[block]))
    assert heard.signed == [block]


@pytest.mark.parametrize("earlier", PROTOCOLS)
@EVERY
def test_a_conversation_goes_on_with_another_provider(earlier: str, protocol: str) -> None:
    reply = answer("Hm.", call("read_file", path="a.py"), thought="Is it a.py?")
    with Server([reply]) as server:
        messages = answered(ASKED, Talk(server.url, earlier).ask())
    with Server([say("Done.")], protocol) as server:
        assert Talk(server.url, protocol).ask(messages)["content"] == "Done."


@EVERY
def test_a_blank_text_beside_a_call_is_not_kept(protocol: str) -> None:
    """Anthropic refuses a conversation that holds one."""
    with Server([answer(" \n", call("todo_read")), say("Done.")], protocol) as server:
        talk = Talk(server.url, protocol)
        message = talk.ask()
        talk.ask(answered(ASKED, message))
    assert message["content"] is None


@pytest.mark.parametrize("protocol", ["openai", "anthropic", "ollama"])
@pytest.mark.parametrize("name", ["", "functions.read file<|call|>", "x" * 200])
def test_a_name_no_provider_would_take_back_is_mended(protocol: str, name: str) -> None:
    with Server([answer("Hm.", call(name or " ", path="a")), say("Done.")], protocol) as server:
        talk = Talk(server.url, protocol)
        message = talk.ask()
        talk.ask(answered(ASKED, message))
    kept = message["tool_calls"][0]["function"]["name"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", kept)


@EVERY
def test_a_request_leaves_the_conversation_and_the_tools_as_they_are(protocol: str) -> None:
    with Server(
        [answer(call("read_file", path="a"), call("list_files")), say("Done.")], protocol
    ) as server:
        talk = Talk(server.url, protocol)
        messages = answered(ASKED, talk.ask())
        before = json.dumps([messages, TOOLS])
        talk.ask(messages)
    assert json.dumps([messages, TOOLS]) == before


# What it costs


@EVERY
def test_usage_is_what_the_server_says(protocol: str) -> None:
    with Server([say("Hi.", usage=Tokens(1000, 20, cached=900))], protocol) as server:
        talk = Talk(server.url, protocol)
        talk.ask()
    (usage,) = talk.all(Usage)
    assert (usage.model, usage.input, usage.output) == (talk.settings.model, 1000, 20)
    assert usage.cached == (0 if protocol == "ollama" else 900)


@EVERY
def test_without_usage_four_characters_count_as_a_token(protocol: str) -> None:
    """litellm then makes a number up, which leaves out the tools."""
    with Server([say("x" * 400, usage=None)], protocol) as server:
        talk = Talk(server.url, protocol)
        talk.ask()
    (usage,) = talk.all(Usage)
    assert usage.input == len(json.dumps(ASKED + TOOLS)) // 4
    assert (usage.output, usage.cached) == (100, 0)


def cost(model: str, tokens: Tokens) -> float | None:
    protocol = {"anthropic": "anthropic", "ollama_chat": "ollama"}.get(provider_name(model))
    with Server([say("Hi.", usage=tokens)]) as server:
        talk = Talk(server.url, protocol or "openai", model=model)
        talk.ask()
    return talk.all(Usage)[0].cost


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"])
def test_what_was_cached_costs_less(model: str) -> None:
    full, cached = cost(model, Tokens(1000, 20)), cost(model, Tokens(1000, 20, cached=900))
    assert full and cached and 0 < cached < full


def test_an_unknown_price_is_none_and_a_local_model_is_free() -> None:
    assert cost("openai/test-model", Tokens(1000, 20)) is None
    assert cost("ollama_chat/test-model", Tokens(1000, 20)) == 0.0


def test_an_answer_that_broke_off_is_counted_too() -> None:
    with Server([cut(12), say("Done.")]) as server:
        talk = Talk(server.url)
        talk.ask()
    broken, whole = talk.all(Usage)
    assert broken.output == 3 and broken.input > 0
    assert whole.input == server.requests[1].size // 4


# Where it goes wrong


@EVERY
def test_a_wrong_key_is_one_line_and_not_tried_again(protocol: str) -> None:
    with Server([bad_key()], protocol) as server:
        talk = Talk(server.url, protocol)
        stopped = talk.fails()
    assert stopped.code == 3
    assert "the key was not accepted" in str(stopped) and "amas config" in str(stopped)
    assert readable(stopped, talk)


def readable(stopped: Stopped, talk: Talk) -> bool:
    """One line that names the model, with nothing of the library's in it."""
    text = str(stopped)
    noise = ("litellm", "Exception", "Traceback", "b'", '{"', "\n")
    return text.startswith(talk.settings.model) and not any(each in text for each in noise)


@EVERY
def test_an_unknown_model_is_one_line_and_not_tried_again(protocol: str) -> None:
    with Server([error(404)], protocol) as server:
        talk = Talk(server.url, protocol)
        stopped = talk.fails()
    assert "no such model" in str(stopped) and readable(stopped, talk)


def test_an_unknown_provider_is_one_line() -> None:
    talk = Talk(nobody(), model="nonsense/model")
    stopped = talk.fails()
    assert "no such provider" in str(stopped) and readable(stopped, talk)


@EVERY
@pytest.mark.parametrize("status", [400, 403])
def test_a_refusal_is_told_in_the_providers_words(protocol: str, status: int) -> None:
    with Server([error(status, "Your credit balance is too low.")], protocol) as server:
        talk = Talk(server.url, protocol)
        stopped = talk.fails()
    assert "Your credit balance is too low" in str(stopped) and readable(stopped, talk)


@EVERY
def test_without_a_network_it_is_tried_and_told(protocol: str) -> None:
    talk = Talk(nobody(), protocol)
    stopped = talk.fails()
    assert "cannot be reached" in str(stopped) and readable(stopped, talk)
    assert "refused" in str(stopped)
    assert talk.notices().count("Trying again") == 4


@EVERY
@pytest.mark.parametrize("reply", [error(500), overloaded(), error(502, "Bad gateway")])
def test_trouble_at_the_provider_is_waited_out(protocol: str, reply: Any) -> None:
    with Server([reply, reply, say("Done.")], protocol) as server:
        talk = Talk(server.url, protocol)
        assert talk.ask()["content"] == "Done."
    assert talk.notices().count("trouble at the provider") == 2


@EVERY
def test_five_tries_then_the_turn_stops(protocol: str) -> None:
    with Server([error(500)] * 5, protocol) as server:
        talk = Talk(server.url, protocol)
        stopped = talk.fails()
    assert stopped.code == 1 and readable(stopped, talk)
    assert len(server.requests) == 5


@EVERY
def test_too_many_requests_wait_as_long_as_told(protocol: str) -> None:
    reply = error(429, retry_after=0)
    with Server([reply, reply, say("Done.")], protocol) as server:
        talk = Talk(server.url, protocol)
        talk.model.backoff = 1000.0  # would be noticed
        assert talk.ask()["content"] == "Done."
    assert talk.notices().count("too many requests (") == 2
    assert "Trying again in 0 s; Ctrl-C stops." in talk.notices()


@EVERY
def test_a_wait_of_an_hour_is_not_waited(protocol: str) -> None:
    with Server([error(429, retry_after=3600)], protocol) as server:
        talk = Talk(server.url, protocol)
        stopped = talk.fails()
    assert "3600 s" in str(stopped)


@pytest.mark.parametrize("told", ["-1", "nan", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_a_strange_retry_after_does_no_harm(told: str) -> None:
    with Server([error(429, headers={"Retry-After": told}), say("Done.")]) as server:
        assert Talk(server.url).ask()["content"] == "Done."


def test_no_credit_left_is_not_tried_again() -> None:
    """By its status alone it looks like too many requests."""
    import openai

    library, response = (
        Talk("").model.library.get(),
        httpx.Response(429, request=httpx.Request("", "")),
    )
    told = openai.RateLimitError(
        "None left", response=response, body={"code": "insufficient_quota"}
    )
    trouble = explain(library, "openai/test-model", told)
    assert "no credit left" in trouble.text and not trouble.again


def test_gemini_says_in_its_words_how_long_to_wait() -> None:
    library = Talk("").model.library.get()
    told = library.RateLimitError('b\'{"retryDelay": "7s"}\'', llm_provider="", model="")
    assert explain(library, "gemini/test-model", told).wait == 7.0


def test_ctrl_c_ends_a_wait(interrupting: None) -> None:
    with Server([error(429, retry_after=100)]) as server:
        talk = Talk(server.url)
        talk.model.emit = lambda event: soon() if isinstance(event, Notice) else None
        assert talk.fails().code == 130


def ctrl_c() -> None:
    """To the main thread, as a terminal's reaches it: from another one it would not wake it."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def soon() -> None:
    """Ctrl-C from elsewhere, after what is going on now has had time to begin waiting."""
    threading.Timer(0.2, ctrl_c).start()


@EVERY
@pytest.mark.parametrize("after", ["start", 0, 8, "text", "call"])
def test_a_broken_stream_is_asked_for_again_once(protocol: str, after: str | int) -> None:
    with Server([cut(after), say("Done.")], protocol) as server:
        talk = Talk(server.url, protocol)
        message = talk.ask()
    assert message == {"role": "assistant", "content": "Done."}
    assert "Trying again" in talk.notices()


@EVERY
@pytest.mark.parametrize("after", ["text", "call"])
def test_of_a_stream_broken_twice_only_the_text_is_kept(protocol: str, after: str) -> None:
    with Server([cut(after), cut(after)], protocol) as server:
        talk = Talk(server.url, protocol)
        stopped = talk.fails()
    assert stopped.code == 1 and "broke off" in str(stopped) and readable(stopped, talk)
    assert stopped.text and EXAMPLE.text.startswith(stopped.text)
    if after == "call":
        assert stopped.text == EXAMPLE.text


@pytest.mark.parametrize("protocol", ["openai", "anthropic", "ollama"])
@pytest.mark.parametrize("after", ["text", "call"])
def test_a_stream_without_its_end_is_no_answer(protocol: str, after: str) -> None:
    with Server([end_early(after)] * 2, protocol) as server:
        talk = Talk(server.url, protocol)
        stopped = talk.fails()
    assert "broke off" in str(stopped) and stopped.text


def test_a_gemini_stream_without_its_end_runs_only_whole_calls() -> None:
    """litellm says of every such stream that it ended well; but there a call comes in one piece."""
    reply = answer("Both.", call("read_file", path="a.py"), call("read_file", path="b.py"))
    with Server([end_early("call", reply)]) as server:
        assert called(Talk(server.url, "gemini").ask()) == [("read_file", {"path": "a.py"})]


@EVERY
def test_an_error_in_mid_stream_is_told_and_tried_once_more(protocol: str) -> None:
    reply = fail_midway("text", message="We are overloaded today")
    with Server([reply, reply], protocol) as server:
        talk = Talk(server.url, protocol)
        stopped = talk.fails()
    assert "We are overloaded today" in str(stopped) and readable(stopped, talk)
    assert stopped.text and EXAMPLE.text.startswith(stopped.text)


@EVERY
@pytest.mark.parametrize("reply", [html(), empty(), say(" \n")], ids=["html", "empty", "blank"])
def test_an_answer_with_nothing_in_it_is_asked_for_again_once(protocol: str, reply: Any) -> None:
    with Server([reply, say("Done.")], protocol) as server:
        assert Talk(server.url, protocol).ask()["content"] == "Done."
    with Server([reply, reply], protocol) as server:
        talk = Talk(server.url, protocol)
        stopped = talk.fails()
    assert stopped.text == "" and readable(stopped, talk)
    assert "no answer came back" in str(stopped) or "was empty" in str(stopped)


@EVERY
@pytest.mark.parametrize("after", ["start", "text"])
def test_a_stalled_answer_is_given_up(protocol: str, after: str) -> None:
    gate = threading.Event()
    with Server([stall(gate, after=after), say("Done.")], protocol) as server:
        talk = Talk(server.url, protocol, request_timeout=0.5)
        assert talk.ask()["content"] == "Done."
    assert "no answer in time" in talk.notices()


@EVERY
def test_a_conversation_too_long_is_told_as_such(protocol: str) -> None:
    with Server([context_exceeded()], protocol) as server, pytest.raises(ContextExceeded):
        Talk(server.url, protocol).ask()


@EVERY
def test_a_call_cut_off_by_length_is_marked_and_the_rest_accepted(protocol: str) -> None:
    """Ollama and Gemini never begin such a call: they send text, or nothing of it."""
    half = truncated("I write.", raw_call("write_file", '{"path": "a.py", "content": "x = '))
    with Server([half, say("Done.")], protocol) as server:
        talk = Talk(server.url, protocol)
        message = talk.ask()
        user = [] if message.get("tool_calls") else [{"role": "user", "content": "Go on."}]
        talk.ask([*answered(ASKED, message), *user])
    if protocol in ("openai", "anthropic"):
        assert "cut_off" in called(message)[0][1]
    else:
        assert called(message) == [] and "length limit" in talk.notices()


def test_a_call_cut_off_before_its_arguments_is_marked_too() -> None:
    with Server([truncated("Hm.", raw_call("todo_read", ""))]) as server:
        assert "cut_off" in called(Talk(server.url).ask())[0][1]


# Ctrl-C and the time limit


@EVERY
@pytest.mark.parametrize("after", ["start", "text", "call"])
def test_ctrl_c_keeps_the_text_and_hangs_up(interrupting: None, protocol: str, after: str) -> None:
    with Server([stall(threading.Event(), after=after)], protocol) as server:
        talk = Talk(server.url, protocol)
        threading.Thread(target=interrupt_when_stalled, args=(server, talk, after)).start()
        stopped = talk.fails()
        assert server.requests[0].gone.wait(DEADLINE)
    assert stopped.code == 130
    assert bool(stopped.text) == (after != "start") and EXAMPLE.text.startswith(stopped.text)


def interrupt_when_stalled(server: Server, talk: Talk, after: str) -> None:
    deadline = threading.Event()
    for _ in range(1000):
        whole = talk.text() == EXAMPLE.text or (after == "text" and talk.text())
        if server.requests and (after == "start" or whole):
            break
        deadline.wait(0.02)
    deadline.wait(0.1)  # for the last piece before the stall
    ctrl_c()


@EVERY
def test_the_time_limit_ends_a_stalled_answer(protocol: str) -> None:
    with Server([stall(threading.Event())], protocol) as server:
        talk = Talk(server.url, protocol, max_time=0.5)
        guard = Guard(talk.settings, talk.heard.append)
        with pulse(guard.check_time):
            stopped = talk.fails()
        assert server.requests[0].gone.wait(DEADLINE)
    assert stopped.code == 6 and "max_time" in str(stopped)
    assert EXAMPLE.text.startswith(stopped.text)


def test_the_time_limit_ends_a_wait_and_no_fallback_takes_over() -> None:
    with Server([error(429, retry_after=100)]) as server:
        talk = Talk(server.url, max_time=0.5, fallback_model="openai/other")
        guard = Guard(talk.settings, talk.heard.append)
        with pulse(guard.check_time):
            stopped = talk.fails()
    assert stopped.code == 6
    assert len(server.requests) == 1


# Fallbacks and keys


@pytest.mark.parametrize("reply", [error(500), bad_key(), html(), cut("text"), error(404)])
def test_the_fallback_takes_over(reply: Any) -> None:
    def script(body: dict) -> Any:
        return say("Here.") if body["model"] == "third" else reply

    with Server(script) as server:
        talk = Talk(server.url, fallback_model="openai/second, openai/third")
        assert talk.ask()["content"] == "Here."
    assert "Asking openai/second instead." in talk.notices()
    assert "Asking openai/third instead." in talk.notices()


def test_when_no_fallback_answers_the_last_trouble_is_told() -> None:
    with Server([bad_key(), error(404)]) as server:
        stopped = Talk(server.url, fallback_model="openai/second").fails()
    assert str(stopped).startswith("openai/second: no such model")


def test_a_key_goes_to_its_own_provider_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server([bad_key()], "openai") as ours, Server([say("Here.")], "anthropic") as theirs:
        monkeypatch.setenv("ANTHROPIC_API_BASE", theirs.url)
        talk = Talk(ours.url, fallback_model="anthropic/claude-sonnet-4-5")
        talk.keyring.by_name = {"ANTHROPIC_API_KEY": "their-key", "GEMINI_API_KEY": "gem-key"}
        assert talk.ask()["content"] == "Here."
    assert "test-key" in str(ours.requests[0].headers)
    assert "their-key" not in str(ours.requests[0].headers)
    assert "their-key" in str(theirs.requests[0].headers)
    for request in (*ours.requests, *theirs.requests):
        assert "gem-key" not in str(request.headers)
    assert "test-key" not in str(theirs.requests[0].headers)


def test_without_a_key_of_its_own_a_server_of_the_users_gets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Server([say("Here.")]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
        talk = Talk(server.url)
        del talk.keyring.given["api_key"]
        talk.ask()
    assert "from-the-environment" not in str(server.requests[0].headers)


def test_the_short_name_of_ollama_keeps_tools_address_and_context() -> None:
    with Server([answer(call("todo_read"))], "ollama") as server:
        talk = Talk(server.url, "ollama", model="ollama/test-model", ollama_context=9000)
        assert called(talk.ask()) == [("todo_read", {})]
    body = server.requests[0].body
    assert len(body["tools"]) == len(TOOLS) and body["options"]["num_ctx"] == 9000


# What is known of models


def test_the_window_is_the_models_or_the_users_whichever_is_smaller() -> None:
    library = Talk("").model.library.get()
    known = library.model_cost["gpt-4o-mini"]["max_input_tokens"]
    assert catalog.window(library, Settings("openai/gpt-4o-mini", max_context_tokens=9**9)) == known
    assert catalog.window(library, Settings("openai/gpt-4o-mini", max_context_tokens=900)) == 900
    assert catalog.window(library, Settings("openai/test-model", max_context_tokens=900)) == 900
    assert catalog.window(library, Settings("ollama/qwen3", ollama_context=800)) == 800
    assert catalog.window(None, Settings("openai/gpt-4o-mini", max_context_tokens=9**9)) == 9**9


def test_the_models_at_hand_are_those_with_a_key_and_those_of_ollama() -> None:
    with Server(models=("qwen3:8b",)) as server:
        keyring = Keyring(Path("nowhere"), {"ANTHROPIC_API_KEY": "key"})
        keyring.ollama = server.url
        names = catalog.at_hand(Talk("").model.library.get(), keyring)
    assert "ollama_chat/qwen3:8b" in names
    assert {name.split("/")[0] for name in names} == {"anthropic", "ollama_chat"}


def test_where_no_ollama_answers_there_are_no_local_models() -> None:
    keyring = Keyring(Path("nowhere"), {})
    keyring.ollama = nobody()
    assert catalog.ollama_models(keyring) == []
