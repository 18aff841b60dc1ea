"""What a session's journal tells: the conversation, byte for byte, and where its turns began.

A torn or broken line, as a crash leaves it, is passed over, and what is missing is made up for.
"""

import json
from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from amas_code.events import Asked, Ended, Replaced, Rewound, Said, Usage

INTERRUPTED = "Interrupted; unknown whether it ran."
LONGEST = 20_000_000  # bytes of a line that is read: no conversation is larger


class Prompt(NamedTuple):
    """What the user asked, and where in the conversation."""

    turn: int  # of the session, from 1 on; no number comes twice
    text: str
    length: int | None  # messages before it, not counting a lone system message; None: compacted


class Turns:
    """Where the turns of a conversation began, so that one can go back there."""

    def __init__(self) -> None:
        self.asked = 0  # in all, also those that were taken back
        self.length = 0  # of the conversation, in messages
        self.prompts: list[Prompt] = []  # those that still stand

    def listen(self, event: Any) -> None:
        match event:
            case Asked(text):
                self.asked += 1
                length = self.length if self.length > 1 else 0
                self.prompts.append(Prompt(self.asked, text, length))
            case Said():
                self.length += 1
            case Rewound(length):
                self.length = min(length, self.length)
                self.prompts = [
                    p for p in self.prompts if p.length is None or max(p.length, 1) < length
                ]
            case Replaced(messages):
                self.length = len(messages)
                self.prompts = [p._replace(length=None) for p in self.prompts]


class Recorded:
    """A conversation as its journal tells it, line by line.

    Whatever lines are missing: each tool call but the last message's has exactly one answer, and
    what was asked or had ended when a crash came is said. That way the same comes of the same lines
    each time, whatever is added to them.
    """

    def __init__(self) -> None:
        self.messages: list[dict] = []
        self.usage: list[Usage] = []
        self.turns = Turns()
        self.prompt: dict | None = None  # was asked, and is not said yet
        self.results: dict[str, dict] = {}  # of calls that ended, which are not said yet

    def take(self, event: Any) -> None:
        match event:
            case Asked(prompt):
                self.close()
                self.turns.listen(event)
                self.prompt = {"role": "user", "content": prompt}
            case Ended(id, result):
                self.results[id] = {"role": "tool", "tool_call_id": id, "content": result}
            case Said({"role": "tool"} as message):
                self.answer(message)
            case Said({"role": "assistant"} as message):
                self.close()
                self.add(message)
            case Said(message):
                self.prompt = None
                self.close()
                self.add(message)
            case Rewound(length):
                self.catch_up()
                del self.messages[length:]
                self.turns.listen(event)
            case Replaced(messages):
                self.catch_up()
                self.messages = list(messages)
                self.turns.listen(event)
            case Usage():
                self.usage.append(event)

    def add(self, message: dict) -> None:
        self.messages.append(message)
        self.turns.listen(Said(message))

    def answer(self, message: dict) -> None:
        """Calls are answered in their order. An answer whose call is lost is passed over."""
        if message["tool_call_id"] in unanswered(self.messages):
            self.close(message["tool_call_id"])
            self.add(message)

    def close(self, until: str = "") -> None:
        """Answer the open calls before that one, or all of them and say what is due."""
        for id in unanswered(self.messages):
            if id == until:
                return
            lost = {"role": "tool", "tool_call_id": id, "content": INTERRUPTED}
            self.add(self.results.get(id, lost))
        self.results = {}
        self.catch_up()

    def catch_up(self) -> None:
        """Say what a crash left no time to say. Calls that did not end stay open."""
        for id in unanswered(self.messages):
            if id in self.results:
                self.answer(self.results[id])
        if self.prompt:
            self.add(self.prompt)
        self.prompt = None


def unanswered(messages: list[dict]) -> list[str]:
    """The ids of the last message's calls that have no answer yet."""
    answers = sum(1 for _ in takewhile(lambda m: m["role"] == "tool", reversed(messages)))
    asking = messages[-1 - answers] if answers < len(messages) else {}
    return [call["id"] for call in asking.get("tool_calls") or ()][answers:]


def load(path: Path) -> Recorded:
    """The conversation that a journal tells of. Raises OSError."""
    recorded = Recorded()
    for record in records(path):
        recorded.take(event(record))
    recorded.catch_up()
    return recorded


def records(path: Path) -> Iterator[dict]:
    """The journal's lines; what is not a whole JSON object is passed over."""
    with path.open("rb") as file:
        for raw in iter(partial(file.readline, LONGEST), b""):
            try:
                record = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                yield record


def event(record: dict) -> Any:
    """What a line tells of, if that matters for the conversation and is sound."""
    match record:
        case {"type": "asked", "prompt": str(prompt)}:
            return Asked(prompt)
        case {"type": "said", "message": dict(message)} if sound(message):
            return Said(message)
        case {"type": "ended", "id": str(id), "result": str(result)}:
            return Ended(id, result, record.get("ok") is True)
        case {"type": "rewound", "length": int(length)} if length >= 0:
            return Rewound(length)
        case {"type": "replaced", "messages": list(messages)} if all(map(sound, messages)):
            return Replaced(messages, str(record.get("why")))
        case {"type": "usage", "model": str(), "cost": int() | float() | None} if all(
            isinstance(record.get(name), int | float) for name in COUNTED
        ):
            return Usage(*(record[name] for name in Usage._fields))
    return None


COUNTED = ("input", "output", "cached", "seconds")


def sound(message: Any) -> bool:
    """Whether it is a message in every part that we rely on."""
    match message:
        case {"role": "system" | "user", "content": str()}:
            return True
        case {"role": "tool", "tool_call_id": str(), "content": str()}:
            return True
        case {"role": "assistant", "content": str() | None}:
            calls = message.get("tool_calls") or []
            return isinstance(calls, list) and all(map(sound_call, calls))
    return False


def sound_call(call: Any) -> bool:
    match call:
        case {"id": str(), "function": {"name": str(), "arguments": str()}}:
            return True
    return False
