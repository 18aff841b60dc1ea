"""The loop: what the model asks for is done or answered, and the conversation stays a sound one."""

import json
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amas_code.agent import Agent
from amas_code.amas import build
from amas_code.compaction import ASK
from amas_code.door import proposed
from amas_code.events import Action, Asked, Began, Cut, Ended, Notice, Said, Stopped, Usage
from amas_code.guards import Guard
from amas_code.places import ours
from amas_code.signals import pulse
from tests.server import (
    PROTOCOLS,
    Server,
    answer,
    call,
    cut,
    error,
    raw_call,
    say,
    stall,
    truncated,
)
from tests.test_providers import DEADLINE, EVERY, Talk, ctrl_c, interrupting, no_keys

__all__ = ["interrupting", "no_keys"]  # fixtures


def note(text: str, times: int = 1, loud: bool = False) -> str:
    """Write something down.

    text: what
    times: how often
    loud: in capitals
    """
    if text == "boom":
        raise RuntimeError("the pen broke")
    return (text.upper() if loud else text) * times


class Loop:
    """An agent with one tool, talking through real litellm to a server of ours."""

    def __init__(self, url: str, protocol: str = "openai", **settings: Any):
        self.talk = Talk(url, protocol, **settings)
        self.talk.model.emit = self.emit
        self.guard = Guard(self.talk.settings, self.emit)
        self.done: list[Action] = []
        self.agent = Agent(
            self.guard.watch_model(self.talk.model.complete),
            {"note": note},
            self.guard.watch_calls(proposed(self.carry_out, {}, self.emit)),
            self.emit,
            [{"role": "system", "content": "You take notes."}],
        )

    def carry_out(self, action: Action) -> str:
        self.done.append(action)
        return note(**action.args)

    def emit(self, event: Any) -> None:
        self.talk.heard.append(event)
        self.guard.listen(event)

    def results(self) -> list[str]:
        return [m["content"] for m in self.agent.messages if m["role"] == "tool"]

    def sound(self) -> bool:
        """Every call has exactly one answer, right after it, and its arguments are JSON."""
        open_calls: list[str] = []
        for message in self.agent.messages:
            if message["role"] == "tool":
                open_calls.remove(message["tool_call_id"])
                continue
            assert not open_calls
            calls = message.get("tool_calls") or []
            open_calls = [one["id"] for one in calls]
            assert all(isinstance(json.loads(one["function"]["arguments"]), dict) for one in calls)
        return not open_calls

    def stops(self, prompt: str = "Go.") -> Stopped:
        with pytest.raises(Stopped) as caught:
            self.agent.turn(prompt)
        assert self.sound()
        return caught.value


def after(protocol: str, *replies: Any, **settings: Any) -> Loop:
    """The loop after a turn in which the model said this, and another to see it goes on."""
    with Server([*replies, say("Done."), say("And again.")], protocol) as server:
        loop = Loop(server.url, protocol, **settings)
        assert loop.agent.turn("Go.") == "Done."
        assert loop.sound()
        assert loop.agent.turn("Again.") == "And again."
    return loop


# What is asked for


@EVERY
def test_calls_are_done_in_order_until_the_model_asks_for_none(protocol: str) -> None:
    both = answer("Two.", call("note", text="a"), call("note", text="b", times=2))
    loop = after(protocol, both, answer(call("note", text="c")))
    assert loop.results() == ["a", "bb", "c"]
    kinds = [type(event) for event in loop.talk.heard if not isinstance(event, Said | Usage)]
    assert kinds[0] is Asked
    assert kinds.count(Began) == kinds.count(Ended) == 3


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize(
    "arguments",
    ['{"text": ', "[1, 2]", '"a"', "null", "a", "{'text': 1}", '{"text": NaN}', "[" * 9999],
)
def test_arguments_that_are_no_json_object_are_answered(protocol: str, arguments: str) -> None:
    loop = after(protocol, answer("Hm.", raw_call("note", arguments)))
    assert "not one JSON object" in loop.results()[0] and not loop.done


@EVERY
def test_an_unknown_tool_is_answered_with_those_there_are(protocol: str) -> None:
    loop = after(protocol, answer("Hm.", call("paint", text="a")))
    assert loop.results() == ["Error: There is no tool paint; choose from note."]


@EVERY
@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"text": 5}, "text must be of type string, not int"),
        ({"text": "a", "times": "many"}, "times must be of type integer"),
        ({"text": "a", "times": True}, "times must be of type integer"),
        ({"text": "a", "loud": "maybe"}, "loud must be of type boolean"),
        ({"text": None}, "text must be of type string"),
        ({"times": 1}, "Missing: text"),
        ({"text": "a", "color": "red"}, "No parameter color"),
    ],
)
def test_wrong_arguments_are_answered(protocol: str, args: dict, why: str) -> None:
    loop = after(protocol, answer("Hm.", call("note", **args)))
    assert why in loop.results()[0] and not loop.done


def test_numbers_and_truths_in_quotes_are_understood() -> None:
    loop = after("openai", answer(call("note", text="a", times="2", loud="true")))
    assert loop.results() == ["AA"]


@EVERY
def test_a_tool_that_breaks_is_answered_and_does_not_end_the_chat(protocol: str) -> None:
    loop = after(protocol, answer("Hm.", call("note", text="boom")))
    assert loop.results() == ["Error: RuntimeError: the pen broke"]


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_a_call_cut_off_by_length_is_not_carried_out_and_the_model_is_told(protocol: str) -> None:
    loop = after(protocol, truncated("Hm.", raw_call("note", '{"text": "a very long')))
    assert "cut off at your length limit" in loop.results()[0] and not loop.done


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_half_a_surrogate_pair_does_not_end_the_conversation(protocol: str) -> None:
    loop = after(protocol, answer("Hm.", call("note", text="a\ud83d")))
    assert loop.results() == ["a?"]


def test_a_server_that_counts_its_calls_anew_leaves_none_open() -> None:
    """Some give the first call of every answer the same id."""
    replies = iter("ab")
    loop = Loop("")

    def repeat(messages: list[dict], tools: list[dict]) -> dict:
        if messages[-1]["role"] == "tool":
            return {"role": "assistant", "content": "Done."}
        function = {"name": "note", "arguments": json.dumps({"text": next(replies)})}
        calls = [{"id": "call_0", "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    loop.agent.complete = repeat
    loop.agent.turn("Go.")
    loop.agent.carry_out = interrupted
    with pytest.raises(KeyboardInterrupt):
        loop.agent.turn("Go on.")
    assert loop.sound() and len(loop.results()) == 2


# What goes on too long


def test_a_call_that_twice_gave_the_same_gets_a_hint_and_then_the_turn_stops() -> None:
    with Server([answer(f"{n}", call("note", text="a")) for n in range(5)]) as server:
        loop = Loop(server.url)
        stopped = loop.stops()
    assert "keeps calling note with the same result" in str(stopped)
    assert len(loop.done) == 2
    assert loop.results()[:2] == ["a", "a"] and "was not run again" in loop.results()[2]
    assert loop.results()[-1] == "Stopped; unknown whether it was done."


def test_the_same_text_three_times_stops() -> None:
    with Server([answer("I try.", call("note", text=f"{n}")) for n in range(3)]) as server:
        assert "the same thing three times" in str(Loop(server.url).stops())


def test_max_turns_stops_with_5_and_the_next_turn_goes_on() -> None:
    replies = [answer(f"{n}", call("note", text=f"{n}")) for n in range(3)]
    with Server([*replies, say("Done.")]) as server:
        loop = Loop(server.url, max_turns=3)
        assert loop.stops().code == 5
        assert loop.agent.turn("Go on.") == "Done."


def test_max_cost_stops_with_6() -> None:
    replies = [answer(f"{n}", call("note", text=f"{n}")) for n in range(3)]
    with Server(replies) as server:
        loop = Loop(server.url, model="openai/gpt-4o-mini", max_cost=0.000001)
        stopped = loop.stops()
    assert stopped.code == 6 and len(server.requests) == 1


def test_max_time_stops_with_6_while_the_model_stalls() -> None:
    with Server([stall(threading.Event(), say("I begin."), "text"), say("Done.")]) as server:
        loop = Loop(server.url, max_time=0.5)
        with pulse(loop.guard.check_time):
            assert loop.stops().code == 6
        assert server.requests[0].gone.wait(DEADLINE)
        loop.talk.settings.max_time = 0.0
        assert loop.agent.turn("Go on.") == "Done."


def test_twenty_rounds_are_remarked_on() -> None:
    replies = [answer(f"{n}", call("note", text=f"{n}")) for n in range(20)]
    loop = after("openai", *replies)
    assert "20 rounds" in loop.talk.notices()


# What breaks off


@EVERY
def test_of_an_answer_that_broke_off_the_text_is_kept_and_no_call(protocol: str) -> None:
    reply = cut("call", answer("I take a note.", call("note", text="a")))
    with Server([reply, reply, say("Done.")], protocol) as server:
        loop = Loop(server.url, protocol)
        assert loop.stops().code == 1
        assert loop.agent.messages[-1] == {"role": "assistant", "content": "I take a note."}
        assert loop.agent.turn("Go on.") == "Done."
    assert not loop.done


@EVERY
def test_ctrl_c_in_an_answer_keeps_the_text_and_the_next_turn_goes_on(
    interrupting: None, protocol: str
) -> None:
    with Server([say("I begin to speak of it."), say("Done.")], protocol) as server:
        loop = Loop(server.url, protocol)

        def interrupt(event: Any) -> None:
            loop.emit(event)
            if loop.talk.text() == "I begin ":
                loop.talk.model.emit = loop.emit
                ctrl_c()

        loop.talk.model.emit = interrupt
        stopped = loop.stops()
        assert isinstance(stopped, Cut) and stopped.code == 130
        assert loop.agent.messages[-1]["content"].startswith("I begin ")
        assert loop.agent.turn("Go on.") == "Done."


def interrupted(action: Action) -> str:
    signal.raise_signal(signal.SIGINT)
    return ""


@EVERY
def test_ctrl_c_in_the_first_of_two_calls_answers_both(interrupting: None, protocol: str) -> None:
    both = answer("Two.", call("note", text="a"), call("note", text="b"))
    with Server([both, say("Done.")], protocol) as server:
        loop = Loop(server.url, protocol)
        loop.agent.carry_out = interrupted
        with pytest.raises(KeyboardInterrupt):
            loop.agent.turn("Go.")
        told = ["Stopped; unknown whether it was done.", "Not done: the turn was stopped."]
        assert loop.results() == told and loop.sound()
        assert loop.agent.turn("Go on.") == "Done."


@EVERY
def test_what_the_user_typed_meanwhile_is_said_after_the_call(protocol: str) -> None:
    with Server([answer("Hm.", call("note", text="a")), say("Done.")], protocol) as server:
        loop = Loop(server.url, protocol)
        loop.agent.queue.append("And be quick.")
        loop.agent.turn("Go.")
        assert "And be quick." in json.dumps(server.requests[1].body)
    assert [m["role"] for m in loop.agent.messages[-3:]] == ["tool", "user", "assistant"]


# The whole, put together as the program does it


class Front:
    """Someone who agrees to everything."""

    def __init__(self) -> None:
        self.heard: list = []

    def show(self, event: Any) -> None:
        self.heard.append(event)

    def ask(self, action: Action) -> str:
        return ""


@pytest.fixture
def chat(project: Path, env: dict, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A chat in the project with a model of the server's."""
    monkeypatch.chdir(project)
    for name in ("HOME", "GIT_CONFIG_NOSYSTEM"):
        monkeypatch.setenv(name, env[name])

    def start(url: str, protocol: str, **settings: Any) -> Any:
        talk = Talk(url, protocol, **settings)
        front = Front()
        made = build(talk.settings, talk.keyring, project, ours(env), front)
        made.front = front
        made.model.backoff = 0.0
        return made

    return start


SUM = f"{sys.executable} -c 'import calc; print(calc.add(2, 3))'"


@EVERY
def test_read_edit_run_answer(chat: Callable, project: Path, protocol: str) -> None:
    replies: list[Any] = [
        answer("I look.", call("read_file", path="calc.py"), call("list_files"), thought="Hm."),
        error(429, retry_after=0),
        answer(call("edit_file", path="calc.py", old_str="a - b", new_str="a + b")),
        answer("I try it.", call("shell_command", command=SUM), thought="Is it right?"),
        say("It adds now."),
    ]
    with Server(replies, protocol) as server:
        made = chat(server.url, protocol)
        assert made.attempt("Mend add().", made.guard.check_time) == (0, "")
    assert made.last_words() == "It adds now."
    assert (project / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
    results = [m["content"] for m in made.agent.messages if m["role"] == "tool"]
    assert "return a - b" in results[0] and "calc.py" in results[1]
    assert "Changed calc.py" in results[2] and "5" in results[3]
    notices = [event.text for event in made.front.heard if isinstance(event, Notice)]
    assert any("too many requests" in text for text in notices)
    assert len(server.requests) == len(replies) and len(made.spent) == 4


def test_an_edit_that_fails_the_same_way_again_and_again_stops_the_turn(chat: Callable) -> None:
    fail = call("edit_file", path="calc.py", old_str="nowhere", new_str="x")
    with Server(lambda body: fail) as server:
        made = chat(server.url, "openai")
        with pytest.raises(Stopped, match="keeps calling edit_file"):
            made.turn("fix it")
        results = [m["content"] for m in made.agent.messages if m["role"] == "tool"]
        assert len(results) == 5 and "made twice" in results[2]


def test_max_time_ends_a_running_command(chat: Callable) -> None:
    with Server([answer("I wait.", call("shell_command", command="sleep 100"))]) as server:
        made = chat(server.url, "openai", max_time=1.0)
        code, why = made.attempt("Go.", made.guard.check_time)
    assert code == 6 and "max_time" in why
    assert made.agent.messages[-1]["role"] == "tool"


@EVERY
def test_a_long_task_in_a_small_window_comes_to_its_end(chat: Callable, protocol: str) -> None:
    def script(body: dict) -> Any:
        return say("So far so good.") if ASK.split("\n")[0] in json.dumps(body) else next(rest)

    files = [Path(f"file{number}.txt") for number in range(12)]
    rest = iter([*(answer(call("read_file", path=str(f))) for f in files), say("All read.")])
    for file in files:
        file.write_text(f"{file}\n" * 300)
    with Server(script, protocol) as server:
        made = chat(server.url, protocol, max_context_tokens=9000, ollama_context=9000)
        assert made.attempt("Read them all.", made.guard.check_time) == (0, "")
        assert all(request.size // 4 < 9000 for request in server.requests)
    assert made.last_words() == "All read." and len(server.requests) > 13


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ctrl_c_in_a_command_ends_it_and_the_next_turn_goes_on(
    chat: Callable, interrupting: None, protocol: str
) -> None:
    wait = answer("I wait.", call("shell_command", command="echo up; sleep 100"))
    with Server([wait, say("Done.")], protocol) as server:
        made = chat(server.url, protocol)
        began: list[Any] = []

        def beat() -> None:
            if not began and any(isinstance(m, Began) for m in made.front.heard):
                began.append(1)
                raise KeyboardInterrupt

        assert made.attempt("Go.", beat)[0] == 130
        assert made.attempt("Go on.", made.guard.check_time) == (0, "")
