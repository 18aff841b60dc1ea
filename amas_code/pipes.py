"""The fronts for scripts: plain lines for a pipe, JSON for a program. Nobody is there to ask."""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from amas_code import look, session
from amas_code.chat import Chat
from amas_code.events import Action, Began, Ended, Notice, Said, Stopped, Usage
from amas_code.visible import visible


class Lines:
    """For pipes: what happens goes to stderr, a line each; the answer alone to stdout."""

    def __init__(self, console: Any):
        self.console = console  # of rich, on stderr
        self.chat: Chat
        self.actions: dict[str, Action] = {}

    def show(self, event: Any) -> None:
        match event:
            case Said({"role": "assistant"} as message):
                self.actions |= look.announced(message)
            case Began(action):
                self.actions[action.id] = action
            case Ended(id, result, ok):
                self.tell(look.tool_line(self.actions.get(id), result, ok, self.console.width))
            case Notice(text):
                self.tell(look.styled(visible(text), "dim"))

    def tell(self, thing: Any) -> None:
        self.console.print(thing, soft_wrap=True, markup=False, highlight=False)

    def ask(self, action: Action) -> str:
        return self.chat.nobody(action)

    def run(self, chat: Chat, prompt: str) -> int:
        code, why = chat.attempt(prompt, chat.guard.check_time)
        if why:
            self.tell(look.styled(visible(why), "yellow"))
        if text := chat.last_words():
            sys.stdout.write((visible(text) if sys.stdout.isatty() else text) + "\n")
            sys.stdout.flush()
        return code


class Json:
    """For programs: one object at the end, or with `stream` a line for each event before it."""

    def __init__(self, stream: bool):
        self.stream = stream
        self.chat: Chat
        self.requests = 0

    def show(self, event: Any) -> None:
        self.requests += isinstance(event, Usage)
        if not self.stream or isinstance(event, session.PASSING):
            return
        try:
            write(session.line(event))
        except BrokenPipeError:  # which looks like one of the model's or a tool's here
            raise Stopped("Stopped: nobody reads the output any more.") from None

    def ask(self, action: Action) -> str:
        return self.chat.nobody(action)

    def run(self, chat: Chat, prompt: str) -> int:
        began = time.monotonic()
        if self.stream:
            write({"type": "init", "session_id": chat.journal.id, "model": chat.settings.model})
        try:
            code, why = chat.attempt(prompt, chat.guard.check_time)
        except SystemExit as left:  # SIGTERM
            code, why = int(left.code or 0), "Terminated."
        seconds = time.monotonic() - began
        text = why or chat.last_words()
        write(result(text, code, chat.journal.id, self.requests, seconds, chat.spent))
        return code


def write(body: dict) -> None:
    """One line of JSON on stdout, in ASCII, since every terminal and locale has that."""
    sys.stdout.write(json.dumps(body, default=str) + "\n")
    sys.stdout.flush()


def result(
    text: str,
    code: int,
    session_id: str = "",
    requests: int = 0,
    seconds: float = 0.0,
    spent: Sequence[Usage] = (),
) -> dict:
    """The object that ends every run: the answer, or why there is none."""
    costs = [each.cost for each in spent]
    return {
        "type": "result",
        "is_error": code != 0,
        "result": text,
        "session_id": session_id,
        "num_turns": requests,
        "duration_ms": round(1000 * seconds),
        "usage": {
            "input_tokens": sum(each.input for each in spent),
            "output_tokens": sum(each.output for each in spent),
            "cached_tokens": sum(each.cached for each in spent),
        },
        "total_cost_usd": None if None in costs else sum(cost for cost in costs if cost),
    }
