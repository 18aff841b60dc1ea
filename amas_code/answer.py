"""Puts a streamed answer together: text, thoughts, and tool calls that come in pieces."""

import json
import re
import uuid
from collections.abc import Callable
from typing import Any

from amas_code.events import Notice, Text, Thought


class Answer:
    """Puts a streamed answer together, emitting its text as it comes."""

    def __init__(self, stream: bool, emit: Callable):
        self.stream, self.emit = stream, emit
        self.text, self.usage, self.finish = "", None, None
        self.size = 0  # characters of text, thoughts and calls
        self.calls: list[dict] = []
        self.signed: list[dict] = []  # thinking that Anthropic wants back word for word

    def take(self, stream: Any) -> None:
        for chunk in stream:
            self.usage = getattr(chunk, "usage", None) or self.usage
            for choice in chunk.choices[:1]:
                self.finish = choice.finish_reason or self.finish
                self.grow(choice.delta)
        told = (getattr(chunk, "usage", None) for chunk in stream.chunks)
        if not any(usage and usage.prompt_tokens for usage in told):
            self.usage = None  # the server gave none, the library made one up
        if not self.stream and self.text:
            self.emit(Text(self.text))

    def grow(self, delta: Any) -> None:
        if thought := getattr(delta, "reasoning_content", None):
            self.size += len(thought)
            self.emit(Thought(thought))
        for block in getattr(delta, "thinking_blocks", None) or ():
            if block.get("signature") or block.get("data"):  # the last of a block repeats it whole
                self.signed.append(dict(block))
        if delta.content:
            self.size += len(delta.content)
            self.text += delta.content
            if self.stream:
                self.emit(Text(delta.content))
        for part in delta.tool_calls or ():
            self.grow_call(part)

    def grow_call(self, part: Any) -> None:
        """Add a piece of a tool call. A new id, or a name where one is, begins a new call.

        Indices cannot be relied on (Ollama sends two calls as index 0), ids may be missing, and
        are never changed: Gemini keeps its thought signatures in them.
        """
        name, arguments = part.function.name or "", part.function.arguments or ""
        self.size += len(name) + len(arguments)
        last = next((c for c in reversed(self.calls) if c["index"] == part.index), None)
        if last is None or (part.id and part.id != last["id"]) or (name and not part.id):
            last = {"index": part.index, "id": part.id, "name": name, "arguments": ""}
            self.calls.append(last)
        last["arguments"] += arguments

    def message(self, over: bool) -> dict:
        """The whole message, if the answer is over and not empty; else raises Incomplete."""
        if not over or self.finish is None:
            raise Incomplete("the answer broke off" if self.size else "no answer came back")
        if not self.text.strip() and not self.calls:
            raise Incomplete("the answer was empty")
        message: dict[str, Any] = {"role": "assistant", "content": self.said() or None}
        if self.signed:
            message["thinking_blocks"] = self.signed
        if self.calls:
            message["tool_calls"] = [
                tool_call(call, self.finish == "length") for call in self.calls
            ]
        elif self.finish == "length":
            self.emit(
                Notice("The answer was cut off at the model's length limit; ask it to go on.")
            )
        return message

    def said(self) -> str:
        """The text as it is kept: Anthropic refuses a blank one."""
        return self.text if self.text.strip() else ""


class Incomplete(Exception):
    """The stream ended without an answer."""


def tool_call(call: dict, cut_off: bool) -> dict:
    """A call as it is kept. A name that is none would have the provider refuse all that follows."""
    arguments = call["arguments"] or "{}"
    if cut_off and not is_json(call["arguments"]):
        arguments = json.dumps({"cut_off": arguments[-200:]})
    name = re.sub(r"[^a-zA-Z0-9_-]", "_", call["name"])[:64] or "unnamed"
    return {
        "id": call["id"] or f"call_{uuid.uuid4().hex[:12]}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def close(stream: Any) -> None:
    """Hang up. litellm's own wrapper cannot, what it wraps can, each in its way."""
    inner = getattr(stream, "completion_stream", None)
    end = getattr(getattr(inner, "streaming_response", inner), "close", None)
    if end:
        end()


def told_the_end(stream: Any, provider: str) -> bool:
    """Whether the server said that the answer is over; litellm says so of a broken stream too.

    Not knowable for Gemini, where litellm never keeps what the server said.
    """
    return provider == "gemini" or bool(getattr(stream, "received_finish_reason", True))
