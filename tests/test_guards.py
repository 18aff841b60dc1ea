"""What keeps a turn from running away: repetition, rounds, cost and time."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from amas_code.config import Settings
from amas_code.events import Action, Asked, Notice, Stopped, ToolError, Usage
from amas_code.guards import MANY_ROUNDS, Guard
from amas_code.signals import pulse


class Watched:
    """A guard with a door behind it that answers as told."""

    def __init__(self, **settings: Any):
        self.heard: list = []
        self.guard = Guard(Settings(**settings), self.heard.append)
        self.results: list[str] = []
        self.ran: list[Action] = []
        self.door = self.guard.watch_calls(self.carry_out)

    def carry_out(self, action: Action) -> str:
        self.ran.append(action)
        result = self.results.pop(0) if self.results else "the same"
        if result.startswith("Error: "):
            raise ToolError(result[7:])
        return result

    def read(self, path: str = "a.py") -> str:
        return self.door(Action("1", 1, "read", "read_file", {"path": path}))

    def run(self, command: str = "make") -> str:
        return self.door(Action("1", 1, "run", "shell_command", {"command": command}))

    def edit(self) -> str:
        return self.door(Action("1", 1, "edit", "delete_file", {"path": "b.py"}))

    def rounds(self, count: int, message: Callable[[int], dict]) -> None:
        numbers = iter(range(count))
        ask = self.guard.watch_model(lambda messages, tools: message(next(numbers)))
        for _ in range(count):
            ask([], [])


def words(text: str) -> dict:
    return {"role": "assistant", "content": text, "tool_calls": [{}]}


def test_a_third_equal_call_is_answered_with_a_hint() -> None:
    watched = Watched()
    watched.read(), watched.read()
    with pytest.raises(ToolError, match="was not run again"):
        watched.read()
    assert len(watched.ran) == 2


def test_calls_that_go_wrong_in_the_same_way_are_equal_too() -> None:
    watched = Watched()
    watched.results = ["Error: no such file"] * 2
    for _ in range(2):
        with pytest.raises(ToolError, match="no such file"):
            watched.read()
    with pytest.raises(ToolError, match="was not run again"):
        watched.read()


def test_a_command_that_gives_the_same_is_not_run_a_third_time() -> None:
    watched = Watched()
    watched.run(), watched.run()
    with pytest.raises(ToolError, match="was not run again"):
        watched.run()


@pytest.mark.parametrize("between", ["edit", "run"])
def test_after_an_edit_or_a_command_a_call_may_be_made_again(between: str) -> None:
    watched = Watched()
    watched.read(), watched.read()
    getattr(watched, between)()
    watched.read(), watched.read()
    assert len(watched.ran) == 5


def test_a_result_that_changes_is_no_repetition() -> None:
    watched = Watched()
    watched.results = ["1 line", "2 lines", "3 lines", "3 lines"]
    for _ in range(4):
        watched.read()
    with pytest.raises(ToolError):
        watched.read()


def test_other_arguments_are_another_call() -> None:
    watched = Watched()
    for number in range(9):
        watched.read(f"{number % 2}.py") if number < 4 else watched.read(f"{number}.py")
    assert len(watched.ran) == 9


def test_a_new_turn_begins_with_a_clean_slate() -> None:
    watched = Watched()
    watched.read(), watched.read()
    watched.guard.listen(Asked("again"))
    assert watched.read() == "the same"


def test_a_turn_that_goes_on_repeating_stops() -> None:
    watched = Watched()
    watched.read(), watched.read()
    for _ in range(2):
        with pytest.raises(ToolError):
            watched.read()
    with pytest.raises(Stopped, match="keeps calling read_file"):
        watched.read()


def test_the_same_text_three_times_stops() -> None:
    watched = Watched()
    with pytest.raises(Stopped, match="same thing three times"):
        watched.rounds(3, lambda number: words("Let me try this."))
    watched.guard.begin()
    watched.rounds(9, lambda number: words("Let me try this." if number % 3 else "And that."))


def test_calls_without_words_are_no_repetition() -> None:
    Watched().rounds(9, lambda number: words(""))


def test_many_rounds_are_remarked_on_once() -> None:
    watched = Watched()
    watched.rounds(MANY_ROUNDS + 5, lambda number: words(str(number)))
    (notice,) = watched.heard
    assert isinstance(notice, Notice) and "20 rounds" in notice.text


def test_the_turn_limit_stops_before_one_more_request() -> None:
    watched = Watched(max_turns=3)
    watched.rounds(3, lambda number: words(str(number)))
    with pytest.raises(Stopped, match="max_turns") as caught:
        watched.rounds(1, lambda number: words("more"))
    assert caught.value.code == 5


def test_the_cost_limit_counts_all_turns() -> None:
    watched = Watched(max_cost=0.05)
    watched.guard.listen(Usage("m", 1, 1, 0, 0.03, 1.0))
    watched.guard.listen(Usage("m", 1, 1, 0, None, 1.0))
    watched.rounds(1, words_of)
    watched.guard.listen(Asked("the next"))
    watched.guard.listen(Usage("m", 1, 1, 0, 0.03, 1.0))
    with pytest.raises(Stopped, match=r"\$0.0600.*max_cost") as caught:
        watched.rounds(1, words_of)
    assert caught.value.code == 6


def words_of(number: int) -> dict:
    return words(str(number))


def test_the_time_limit_ends_whatever_is_being_waited_for() -> None:
    watched = Watched(max_time=0.05)
    with pytest.raises(Stopped, match="max_time") as caught, pulse(watched.guard.check_time, 0.01):
        threading.Event().wait(20)
    assert caught.value.code == 6


def test_what_the_time_limit_stopped_gets_away_in_peace() -> None:
    """The pulse goes on while text is kept and open calls are answered."""
    watched = Watched(max_time=0.000001)
    with pytest.raises(Stopped):
        watched.guard.check_time()
    watched.guard.check_time()
    watched.guard.listen(Asked("the next"))
    with pytest.raises(Stopped):
        watched.guard.check_time()


def test_no_limit_is_no_limit() -> None:
    watched = Watched()
    watched.guard.listen(Usage("m", 1, 1, 0, 9999.0, 1.0))
    watched.rounds(500, words_of)
    watched.guard.check_time()
