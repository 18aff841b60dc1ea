"""Keeps a turn from running away: repetition, rounds, cost and time."""

import json
import time
from collections.abc import Callable

from amas_code.config import Settings
from amas_code.events import Action, Asked, Notice, Stopped, ToolError, Usage

MANY_ROUNDS = 20
HINTS = 3  # answered calls in place of run ones, before the turn is stopped


class Guard:
    """Wraps the model and the door, and listens to know what was spent. Limits of 0 are none."""

    def __init__(self, settings: Settings, emit: Callable):
        self.settings, self.emit = settings, emit
        self.cost = 0.0
        self.begin()

    def begin(self) -> None:
        """Start counting anew, for a new turn."""
        self.rounds = self.hints = 0
        self.began, self.grace = time.monotonic(), 0.0
        self.texts: list[str] = []
        self.results: dict[str, list[str]] = {}  # what each call gave since the last change

    def listen(self, event) -> None:
        match event:
            case Asked():
                self.begin()
            case Usage(cost=float(cost)):
                self.cost += cost

    def check_time(self) -> None:
        """Stop the turn when its time is over.

        Called by a pulse, and not again within a second: what it stops must get away in peace.
        """
        limit, passed = self.settings.max_time, time.monotonic() - self.began
        if limit and passed > limit + self.grace:
            self.grace = passed - limit + 1.0
            raise Stopped(f"Stopped: the limit of {limit:g} seconds is reached (max_time).", 6)

    def watch_model(self, complete: Callable) -> Callable:
        """The same `complete`, within the limits of the settings."""

        def watched(messages: list[dict], tools: list[dict]) -> dict:
            self.check_limits()
            self.rounds += 1
            if self.rounds == MANY_ROUNDS:
                self.emit(Notice(f"{MANY_ROUNDS} rounds in this turn so far; Ctrl-C stops it."))
            message = complete(messages, tools)
            self.check_text(message)
            return message

        return watched

    def check_limits(self) -> None:
        self.check_time()
        if self.settings.max_turns and self.rounds >= self.settings.max_turns:
            raise Stopped(f"Stopped: {self.rounds} rounds is the limit (max_turns).", 5)
        if self.settings.max_cost and self.cost >= self.settings.max_cost:
            raise Stopped(f"Stopped: ${self.cost:.4f} spent, the limit is reached (max_cost).", 6)

    def check_text(self, message: dict) -> None:
        """A model that says the same thing a third time, with calls still to come, is stuck."""
        if not message.get("tool_calls") or not (text := message.get("content")):
            return
        self.texts.append(text)
        if self.texts[-3:] == [text] * 3:
            raise Stopped("Stopped: the model said the same thing three times.")

    def watch_calls(self, carry_out: Callable[[Action], str]) -> Callable[[Action], str]:
        """The same door, but a call that twice changed nothing gets a hint the third time."""

        def watched(action: Action) -> str:
            key = f"{action.name} {json.dumps(action.args, sort_keys=True)}"
            if self.stuck(key):
                return self.hint(action)
            if action.kind != "read":  # what others gave before may be out of date now
                self.results = {key: self.results.get(key, [])}
            given = self.results.setdefault(key, [])
            try:
                result = carry_out(action)
            except Exception as error:
                given.append(f"Error: {error}")
                raise
            given.append(result)
            return result

        return watched

    def stuck(self, key: str) -> bool:
        last = self.results.get(key, [])[-2:]
        return len(last) == 2 and last[0] == last[1]

    def hint(self, action: Action) -> str:
        self.hints += 1
        if self.hints >= HINTS:
            raise Stopped(f"Stopped: the model keeps calling {action.name} with the same result.")
        raise ToolError(
            f"This very {action.name} call was made twice and gave the same result both times, "
            "with no change in between, so it was not run again. Use what it gave, or try another "
            "way."
        )
