"""The loop: ask the model, do what it asks for, repeat until it asks for nothing.

An Agent meets the world at four places, each a plain callable or a table of them, handed to it:
complete (the model), handlers (the tools), carry_out (the one door through which anything happens)
and emit (who listens).
"""

import json
from collections import deque
from collections.abc import Callable
from itertools import takewhile

from amas_code import events
from amas_code.events import Action, Cut, Refused, ToolError
from amas_code.schema import fitted, schema
from amas_code.signals import uninterrupted
from amas_code.tools import kind


class Agent:
    """A conversation and the loop that carries it on.

    Between turns every tool call in `messages` has exactly one answer, and its arguments are JSON.
    """

    def __init__(
        self,
        complete: Callable[[list[dict], list[dict]], dict],
        handlers: dict[str, Callable],
        carry_out: Callable[[Action], str],
        emit: Callable,
        messages: list[dict],
    ):
        self.complete, self.handlers, self.carry_out, self.emit = (
            complete,
            handlers,
            carry_out,
            emit,
        )
        self.tools = {name: schema(handler) for name, handler in handlers.items()}
        self.messages = messages
        self.queue: deque[str] = deque()  # typed meanwhile, said after the running tool
        self.turns = sum(m["role"] == "user" for m in messages)
        self.task = ""

    def turn(self, prompt: str, more: str = "") -> str:
        """Answer one prompt, and what goes with it; return the model's last words."""
        self.turns, self.task = self.turns + 1, prompt
        with uninterrupted():
            self.emit(events.Asked(prompt))
            self.say({"role": "user", "content": prompt + more})
        try:
            while calls := self.hear().get("tool_calls"):
                for call in calls:
                    self.answer(call, self.perform(call))
                while self.queue:
                    self.say({"role": "user", "content": self.queue.popleft()})
        finally:
            self.settle("Stopped; unknown whether it was done.", "Not done: the turn was stopped.")
        return self.messages[-1]["content"] or ""

    def hear(self) -> dict:
        """The model's next message. Of a broken-off one the text is kept."""
        try:
            message = self.complete(self.messages, list(self.tools.values()))
        except Cut as cut:
            if cut.text:
                self.say({"role": "assistant", "content": cut.text})
            raise
        return self.say(sound(message))

    def perform(self, call: dict) -> str:
        """Do one tool call. Whatever goes wrong is told to the model, which goes on from there."""
        try:
            result, ok = self.carry_out(self.action(call)), True
        except Refused as refused:
            result, ok = f"Refused: {refused}.", False
        except ToolError as error:
            result, ok = f"Error: {error}", False
        except Exception as error:  # the one broad catch: no tool ends the chat
            result, ok = f"Error: {type(error).__name__}: {error}", False
        self.emit(events.Ended(call["id"], result, ok))
        return result

    def action(self, call: dict) -> Action:
        """The call as something to be done, its arguments as the tool takes them."""
        name, args = call["function"]["name"], json.loads(call["function"]["arguments"])
        if name not in self.handlers:
            raise ToolError(f"There is no tool {name}; choose from {', '.join(self.handlers)}.")
        args = fitted(args, self.tools[name]["function"]["parameters"])
        return Action(call["id"], self.turns, kind(name), name, args)

    def settle(self, why: str, others: str) -> None:
        """Answer every call left open, so that the conversation stays one a provider accepts.

        others: what is said of all but the first, which alone may have begun
        """
        answers = len(list(takewhile(lambda m: m["role"] == "tool", reversed(self.messages))))
        asking = self.messages[: len(self.messages) - answers][-1:]
        with uninterrupted():
            for call in [call for m in asking for call in m.get("tool_calls") or ()][answers:]:
                self.emit(events.Ended(call["id"], why, False))
                self.answer(call, why)
                why = others

    def answer(self, call: dict, result: str) -> None:
        self.say({"role": "tool", "tool_call_id": call["id"], "content": result})

    def say(self, message: dict) -> dict:
        """Add a message; that and its entry in the journal are one step.

        Half a surrogate pair, as a model or an odd file name may bring it, no request can carry.
        """
        if text := message.get("content"):
            message["content"] = text.encode("utf-8", "replace").decode()
        with uninterrupted():
            self.messages.append(message)
            self.emit(events.Said(message))
        return message

    def rewind(self, length: int) -> None:
        """Take back all but the first `length` messages."""
        with uninterrupted():
            del self.messages[length:]
            self.emit(events.Rewound(length))

    def replace(self, messages: list[dict], why: str) -> None:
        """Go on with another conversation in this one's place."""
        with uninterrupted():
            self.messages[:] = messages
            self.emit(events.Replaced(list(messages), why))


def sound(message: dict) -> dict:
    """The message with arguments that are a JSON object in every call, whatever the model sent."""
    for call in message.get("tool_calls") or ():
        raw = call["function"]["arguments"] or "{}"
        try:
            if isinstance(json.loads(raw, parse_constant=int), dict):  # NaN is no JSON
                continue
        except (ValueError, RecursionError):
            pass
        call["function"]["arguments"] = json.dumps({"invalid_json": raw})
    return message
