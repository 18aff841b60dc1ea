"""Compaction: a conversation always becomes smaller, or the turn stops and says so."""

import itertools
import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

from amas_code.agent import Agent
from amas_code.compaction import ASK, REQUEST, SUMMARY, Compaction, size
from amas_code.events import ContextExceeded, Cut, Notice, Replaced, Stopped, Text, Usage
from tests.server import Server, answer, call, context_exceeded, cut, empty, say
from tests.test_providers import EVERY, Talk, interrupting, no_keys

__all__ = ["interrupting", "no_keys"]  # fixtures

SYSTEM = {"role": "system", "content": "You are a coding agent. " * 20}
GOAL = "Find out which of the files is the longest."


def page(path: str) -> str:
    """Read a page.

    path: which
    """
    return f"{path} begins\n" + "line of text\n" * 300 + f"{path} ends"  # 4,000 characters


def book(path: str) -> str:
    """Read a book.

    path: which
    """
    return "chapter and verse\n" * 20_000


class Chat:
    """An agent whose conversation is compacted, talking to a server of ours."""

    def __init__(self, url: str, protocol: str = "openai", window: int = 8000):
        self.talk = Talk(url, protocol)
        self.talk.model.emit = self.emit
        complete = self.talk.model.complete
        handlers = {"page": page, "book": book}
        self.compaction = Compaction(complete, complete, lambda: window, self.emit)
        self.agent = Agent(
            self.compaction.complete,
            handlers,
            lambda action: handlers[action.name](**action.args),
            self.emit,
            [SYSTEM],
        )
        self.compaction.replace = self.agent.replace

    def emit(self, event: Any) -> None:
        self.talk.heard.append(event)
        self.compaction.listen(event)

    def turn(self, prompt: str = GOAL) -> str:
        return self.agent.turn(prompt)

    def compactions(self) -> int:
        return len(self.talk.all(Replaced))

    def fails(self, prompt: str = GOAL) -> Stopped:
        with pytest.raises(Stopped) as caught:
            self.turn(prompt)
        return caught.value


def is_summary(body: dict) -> bool:
    return ASK.split("\n")[0] in json.dumps(body)


def script(*replies: Any, summary: Any = None) -> Callable[[dict], Any]:
    """These replies in order, and a summary to whoever asks for one."""
    rest = iter(replies)
    summary = summary or say("Goal: the longest file. So far: p1 is long.", chunk=99)
    return lambda body: summary if is_summary(body) else next(rest, None)


def pages(count: int, **options: Any) -> list:
    options = {"chunk": 999} | options
    return [answer("Next.", call("page", path=f"p{n}"), **options) for n in range(count)]


@EVERY
def test_a_long_turn_stays_within_the_window_and_keeps_its_goal(protocol: str) -> None:
    replies = [*pages(20, thought="Is it this one? " * 9), say("The last one.")]
    with Server(script(*replies), protocol) as server:
        chat = Chat(server.url, protocol)
        assert chat.turn() == "The last one."
        assert chat.compactions() > 2
        for request in server.requests:
            assert request.size // 4 < 8000
            assert is_summary(request.body) or GOAL in json.dumps(request.body)
        assert "p19 begins" in json.dumps(server.requests[-1].body)


def test_old_output_shrinks_before_a_summary_is_asked_for() -> None:
    with Server([*pages(8), say("Done.")]) as server:
        chat = Chat(server.url, window=9500)
        chat.turn()
        last = json.dumps(server.requests[-1].body)
    assert chat.compactions() == 1 and len(server.requests) == 9
    assert "p0 begins" in last and "p0 ends" in last and "characters left out" in last
    assert json.dumps(page("p7"))[1:-1] in last


@EVERY
def test_a_summary_keeps_the_last_steps_word_for_word(protocol: str) -> None:
    with Server(script(*pages(9), say("Done."), say("Yes.")), protocol) as server:
        chat = Chat(server.url, protocol, window=40_000)
        chat.turn()
        kept = chat.agent.messages[-3:]
        chat.compaction.window = lambda: 8000
        chat.compaction.compact(chat.agent.messages, force=True)
        assert chat.turn("Is that so?") == "Yes."
    system, summary, *rest = chat.agent.messages
    assert system == SYSTEM and summary["content"].startswith(SUMMARY + "Goal: the longest file.")
    assert rest[: len(kept)] == kept


@EVERY
def test_a_result_larger_than_the_window_is_cut_down_in_mid_turn(protocol: str) -> None:
    replies = [answer("I read it.", call("book", path="b")), say("Done.")]
    with Server(script(*replies), protocol) as server:
        chat = Chat(server.url, protocol)
        assert chat.turn() == "Done."
        last = server.requests[-1]
    assert last.size // 4 < 8000
    assert "characters left out" in json.dumps(last.body) and GOAL in json.dumps(last.body)


def test_two_large_results_of_one_step_are_both_cut_down() -> None:
    both = answer("Both.", call("book", path="a"), call("book", path="b"))
    with Server(script(both, say("Done."))) as server:
        chat = Chat(server.url)
        assert chat.turn() == "Done."
        assert server.requests[-1].size // 4 < 8000


def test_a_prompt_larger_than_the_window_stops_without_a_request() -> None:
    with Server() as server:
        chat = Chat(server.url)
        stopped = chat.fails("word " * 20_000)
    assert "cannot be made smaller" in str(stopped) and "8,000" in str(stopped)
    assert chat.compactions() == 0


def test_a_large_prompt_is_cut_when_its_turn_grows() -> None:
    prompt = "It begins so. " + "word " * 2500 + "It ends so."
    with Server(script(*pages(6), say("Done."))) as server:
        chat = Chat(server.url)
        assert chat.turn(prompt) == "Done."
        last = server.requests[-1]
    assert chat.compactions() > 0 and last.size // 4 < 8000
    assert "It begins so." in json.dumps(last.body) and "It ends so." in json.dumps(last.body)


def test_a_window_smaller_than_the_system_prompt_stops_without_a_request() -> None:
    with Server() as server:
        assert "cannot be made smaller" in str(Chat(server.url, window=50).fails())


@pytest.mark.parametrize("reply", [empty(), say(" \n")], ids=["empty", "blank"])
def test_an_empty_summary_stops_and_leaves_the_conversation(reply: Any) -> None:
    with Server(script(*pages(20), summary=reply)) as server:
        chat = Chat(server.url)
        stopped = chat.fails()
    assert "Nothing was compacted" in str(stopped)
    assert chat.compactions() == 0 and chat.agent.messages[1]["content"] == GOAL


def test_a_model_that_answers_with_nothing_stops_it_too() -> None:
    compaction = Compaction(lambda m, t: {}, lambda m, t: {"content": None}, lambda: 900, print)
    with pytest.raises(Stopped, match="gave no summary"):
        compaction.compact([SYSTEM, *({"role": "user", "content": GOAL} for _ in range(99))])


def test_a_summary_longer_than_its_share_is_cut() -> None:
    with Server(script(*pages(20), say("Done."), summary=say("word " * 9000, 9999))) as server:
        chat = Chat(server.url)
        assert chat.turn() == "Done."
        assert all(request.size // 4 < 8000 for request in server.requests)


def test_nothing_of_a_summary_that_broke_off_is_taken_for_an_answer() -> None:
    with Server(script(*pages(20), summary=cut("text", say("Half a summary.")))) as server:
        chat = Chat(server.url)
        stopped = chat.fails()
    assert not isinstance(stopped, Cut) and "Nothing was compacted" in str(stopped)
    assert "Half" not in json.dumps(chat.agent.messages)


def test_ctrl_c_during_a_summary_leaves_the_conversation(interrupting: None) -> None:
    with Server(script(*pages(20), summary=say("Half a summary."))) as server:
        chat = Chat(server.url)

        def interrupt(event: Any) -> None:
            chat.emit(event)
            if isinstance(event, Text) and event.chunk == "Half":
                signal.raise_signal(signal.SIGINT)

        chat.talk.model.emit = interrupt
        assert chat.fails().code == 130
    assert chat.compactions() == 0 and "Half" not in json.dumps(chat.agent.messages)


@EVERY
def test_a_provider_that_says_too_long_gets_a_shorter_one_once(protocol: str) -> None:
    replies = [*pages(6), context_exceeded(), say("Done.")]
    with Server(script(*replies), protocol) as server:
        chat = Chat(server.url, protocol, window=100_000)
        assert chat.turn() == "Done."
    refused, summary, again = server.requests[-3:]
    assert is_summary(summary.body) and again.size < refused.size


def test_a_provider_that_says_too_long_again_stops_the_turn() -> None:
    with Server(script(*pages(6), context_exceeded(), context_exceeded())) as server:
        chat = Chat(server.url, window=100_000)
        stopped = chat.fails()
    assert isinstance(stopped, ContextExceeded) and "/clear" in str(stopped)
    assert chat.compactions() == 1


def test_a_short_conversation_that_is_too_long_stops_without_a_summary() -> None:
    with Server([context_exceeded()]) as server:
        assert "cannot be made smaller" in str(Chat(server.url).fails())


def test_the_request_is_kept_once_however_often_it_is_compacted() -> None:
    with Server(script(*pages(30), say("Done."))) as server:
        chat = Chat(server.url)
        chat.turn()
    assert chat.compactions() > 3
    summary = chat.agent.messages[1]["content"]
    assert summary.count(REQUEST) == summary.count(GOAL) == summary.count(SUMMARY) == 1


@EVERY
def test_long_old_arguments_shrink_unless_they_are_signed(protocol: str) -> None:
    """The server refuses a signed call that was changed."""
    replies = [
        answer("Hm.", call("page", path=f"p{number} " + "long " * 400), thought="Hm?", chunk=999)
        for number in range(12)
    ]
    with Server(script(*replies, say("Done.")), protocol) as server:
        chat = Chat(server.url, protocol)
        assert chat.turn() == "Done."
    assert chat.compactions() > 0


def test_the_user_may_say_what_a_summary_must_keep() -> None:
    with Server(script(*pages(4), say("Done."))) as server:
        chat = Chat(server.url)
        chat.turn()
        chat.compaction.compact(chat.agent.messages, "the name of p2", force=True)
        assert "the name of p2" in json.dumps(server.requests[-1].body)


def test_there_is_nothing_to_compact_in_a_new_conversation() -> None:
    with Server() as server:
        chat = Chat(server.url)
        for messages in ([], [SYSTEM]):
            with pytest.raises(Stopped, match="cannot be made smaller"):
                chat.compaction.compact(messages, force=True)


def test_what_the_server_counts_corrects_the_estimate() -> None:
    with Server([*pages(3), say("Done.")]) as server:
        chat = Chat(server.url, window=100_000)
        chat.turn()
        chat.compaction.listen(Usage("m", 999_999, 1, 0, None, 1.0))  # not of the conversation
        told = server.requests[-1].size // 4
    tools = list(chat.agent.tools.values())
    guess = chat.compaction.used(chat.agent.messages[:-1], tools)
    assert abs(guess - told) < told * 0.02


def test_what_is_going_on_is_shown() -> None:
    with Server(script(*pages(20), say("Done."))) as server:
        chat = Chat(server.url)
        chat.turn()
    notices = [event.text for event in chat.talk.all(Notice)]
    assert any("sums up" in text for text in notices)
    assert any("tokens became" in text for text in notices)


def test_each_compaction_leaves_room_for_many_more_steps() -> None:
    """One that left the conversation nearly full would be asked for again at every step."""
    with Server(script(*pages(30), say("Done."))) as server:
        chat = Chat(server.url, window=16_000)
        chat.turn()
    sizes = [size(event.messages) for event in chat.talk.all(Replaced)]
    assert max(sizes) < 16_000 * 4 * 0.6
    steps = [number for number, event in enumerate(chat.talk.heard) if isinstance(event, Replaced)]
    between = [
        sum(isinstance(event, Usage) for event in chat.talk.heard[a:b])
        for a, b in itertools.pairwise(steps)
    ]
    assert min(between) >= 4
