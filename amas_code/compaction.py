"""Keeps a conversation within the model's context: old output shrinks, then all is summed up."""

import json
from collections.abc import Callable

from amas_code.events import ContextExceeded, Notice, Stopped, Usage

FULL = 0.8  # of the window: beyond it we compact before asking
ROOMY = 0.5  # of the window: below it shrinking old output was enough
TAIL = 0.25  # of the window: the last steps, kept word for word
RECENT = 6  # messages whose tool output is never shrunk
LONG = 600  # characters of old tool output that may stay

ASK = """Sum up this conversation between a user and a coding agent, so that the agent can go on \
with nothing but your summary. Keep, in short plain lines: the user's goal and wishes; decisions \
and why; files read and changed and what matters in them; commands run and their outcome; what is \
done and which steps are open. No preamble."""


class Compaction:
    """Wraps `complete`; `replace` puts another conversation in the place of the present one.

    summarize: a `complete` that shows nothing while it answers
    window: tokens of context to use
    """

    def __init__(
        self,
        complete: Callable[[list[dict], list[dict]], dict],
        summarize: Callable[[list[dict], list[dict]], dict],
        window: Callable[[], int],
        emit: Callable,
    ):
        self.inner, self.summarize, self.window, self.emit = complete, summarize, window, emit
        self.replace: Callable[[list[dict], str], None]
        self.ratio = 0.25  # tokens a character, corrected by what the server counts
        self.asked = 0  # characters of the last request

    def listen(self, event) -> None:
        if isinstance(event, Usage) and self.asked and event.input:
            self.ratio = min(max(event.input / self.asked, 0.1), 1.0)
            self.asked = 0

    def used(self, messages: list[dict], tools: list[dict] | None = None) -> int:
        """About how many tokens a request with these messages takes."""
        return int((size(messages) + len(json.dumps(tools or []))) * self.ratio)

    def complete(self, messages: list[dict], tools: list[dict]) -> dict:
        if self.used(messages, tools) > self.window() * FULL:
            self.compact(messages)
        try:
            return self.ask(messages, tools)
        except ContextExceeded:
            self.compact(messages, force=True)
            return self.ask(messages, tools)

    def ask(self, messages: list[dict], tools: list[dict]) -> dict:
        self.asked = size(messages) + len(json.dumps(tools))
        return self.inner(messages, tools)

    def compact(self, messages: list[dict], focus: str = "", force: bool = False) -> None:
        """Make the conversation smaller, or raise Stopped. force: sum up even if shrinking helps."""
        before = self.used(messages)
        smaller = shrunk(messages)
        if force or focus or self.used(smaller) > self.window() * ROOMY:
            self.emit(Notice("Compacting: the model sums up the conversation so far …"))
            smaller = self.summed_up(smaller, focus)
        after = self.used(smaller)
        if after >= before:
            raise Stopped(
                f"The conversation (about {before:,} tokens) cannot be made smaller for a context "
                f"of {self.window():,}. /clear starts a new one."
            )
        self.replace(smaller, "compacted")
        self.emit(Notice(f"Compacted: about {before:,} tokens became {after:,}."))

    def summed_up(self, messages: list[dict], focus: str) -> list[dict]:
        """The system message, a summary with the last request word for word, and the last steps."""
        system = [m for m in messages[:1] if m["role"] == "system"]
        kept = tail(messages[len(system) :], self.window() * TAIL / self.ratio)
        old = messages[len(system) : len(messages) - len(kept)]
        wish = f"\nPay special attention to: {focus}" if focus else ""
        room = int(self.window() * ROOMY / self.ratio)
        request = [
            {"role": "user", "content": f"{ASK}{wish}\n\n{middle_out(transcript(old), room)}"}
        ]
        summary = self.summarize(request, []).get("content")
        if not summary:
            raise Stopped("The model gave no summary, so nothing was compacted.")
        asked = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
        last = "" if any(m["role"] == "user" for m in kept) else f"\n\nThe last request:\n{asked}"
        text = f"(Summary of the conversation so far)\n\n{summary}{last}"
        return [*system, {"role": "user", "content": text}, *kept]


def size(messages: list[dict]) -> int:
    """Characters in a conversation that a model reads."""
    calls = [call["function"] for m in messages for call in m.get("tool_calls") or ()]
    said = sum(len(m.get("content") or "") for m in messages)
    return said + sum(len(call["name"]) + len(call["arguments"]) + 40 for call in calls)


def shrunk(messages: list[dict]) -> list[dict]:
    """The same conversation with the long old tool outputs and arguments cut to their ends."""
    out = []
    for number, message in enumerate(messages):
        if number < len(messages) - RECENT:
            if message["role"] == "tool":
                message = message | {"content": middle_out(message["content"], LONG)}
            elif message.get("tool_calls"):
                message = message | {"tool_calls": [short_call(c) for c in message["tool_calls"]]}
        out.append(message)
    return out


def short_call(call: dict) -> dict:
    args = json.loads(call["function"]["arguments"])
    short = {k: middle_out(v, LONG) if isinstance(v, str) else v for k, v in args.items()}
    if short == args:
        return call
    return call | {"function": call["function"] | {"arguments": json.dumps(short)}}


def middle_out(text: str, most: int) -> str:
    """The text, or its beginning and end with a word on what is left out between."""
    if len(text) <= most:
        return text
    half = max(most // 2 - 30, 0)
    return (
        f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[len(text) - half :]}"
    )


def tail(messages: list[dict], most: float) -> list[dict]:
    """The longest end of the conversation that begins a step and has at most so many characters."""
    best: list[dict] = []
    total = 0
    for start in range(len(messages) - 1, 0, -1):
        total += size(messages[start : start + 1])
        if total > most:
            break
        if messages[start]["role"] != "tool":
            best = messages[start:]
    return best


def transcript(messages: list[dict]) -> str:
    lines = []
    for message in messages:
        lines.append(f"[{message['role']}] {message.get('content') or ''}")
        for call in message.get("tool_calls") or ():
            lines.append(f"  calls {call['function']['name']} {call['function']['arguments']}")
    return "\n".join(lines)
