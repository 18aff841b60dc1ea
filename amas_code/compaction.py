"""Keeps a conversation within the model's context: old output shrinks, then all is summed up."""

import json
from collections.abc import Callable

from amas_code.events import ContextExceeded, Notice, Stopped, Usage

FULL = 0.8  # of the room: beyond it we compact before asking
ROOMY = 0.5  # of the room: below it shrinking old output was enough; the most we have summed up
SHARE = 0.2  # of the room: the most that the summary, the last request, the last steps take each
RECENT = 6  # messages whose tool output is never shrunk
LONG = 600  # characters of old tool output that may stay

ASK = """Sum up this conversation between a user and a coding agent, so that the agent can go on \
with nothing but your summary. Keep, in short plain lines: the user's goal and wishes; decisions \
and why; files read and changed and what matters in them; commands run and their outcome; what is \
done and which steps are open. No preamble."""
SUMMARY = "(Summary of the conversation so far)\n\n"
REQUEST = "\n\nThe last request:\n"


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
        self.fixed = 0  # characters of the tools
        self.asked = 0  # characters of the request under way
        self.counted: tuple[int, dict | None, int] = 0, None, 0  # messages, the last, characters

    def listen(self, event) -> None:
        if isinstance(event, Usage) and self.asked and event.input:
            self.ratio = min(max(event.input / self.asked, 0.1), 1.0)
            self.asked = 0

    def used(self, messages: list[dict], tools: list[dict] | None = None) -> int:
        """About how many tokens a request with these messages takes."""
        return int((size(messages) + len(json.dumps(tools or []))) * self.ratio)

    def filled(self, messages: list[dict], tools: list[dict]) -> int:
        """The same of the conversation that grows, quickly."""
        return int((self.length(messages) + len(json.dumps(tools))) * self.ratio)

    def length(self, messages: list[dict]) -> int:
        """The size of the conversation that grows, counted on from where it ended last time."""
        count, last, characters = self.counted
        if not 0 < count <= len(messages) or messages[count - 1] is not last:
            count = characters = 0
        characters += size(messages[count:])
        self.counted = len(messages), messages[-1] if messages else None, characters
        return characters

    def room(self) -> int:
        """Characters that a conversation may have beside the tools."""
        return int(self.window() / self.ratio) - self.fixed

    def complete(self, messages: list[dict], tools: list[dict]) -> dict:
        self.fixed = len(json.dumps(tools))
        if self.length(messages) > self.room() * FULL:
            self.compact(messages)
        try:
            return self.ask(messages, tools)
        except ContextExceeded:  # so its window is smaller than we thought
            self.compact(messages, force=True, room=min(size(messages), self.room()))
            return self.ask(messages, tools)

    def ask(self, messages: list[dict], tools: list[dict]) -> dict:
        self.asked = self.length(messages) + self.fixed
        return self.inner(messages, tools)

    def compact(
        self, messages: list[dict], focus: str = "", force: bool = False, room: int = 0
    ) -> None:
        """Make the conversation smaller, or raise Stopped.

        force: sum up even if shrinking old output helps
        room: characters that it must not have, if not what the window says
        """
        room, before, self.asked = room or self.room(), size(messages), 0
        smaller = lasting(messages)  # if not even this fits, asking for a summary is in vain
        if size(smaller) < min(before, room * FULL):
            smaller = shrunk(messages)
            if force or focus or size(smaller) > room * ROOMY:
                self.emit(Notice("Compacting: the model sums up the conversation so far …"))
                smaller = self.summed_up(smaller, focus, room)
        if size(smaller) >= min(before, room * FULL):
            raise Stopped(
                f"The conversation (about {self.tokens(before)} tokens) cannot be made smaller for "
                f"a context of {self.window():,}. A shorter message or /clear may help."
            )
        self.replace(smaller, "compacted")
        self.counted = 0, None, 0  # the last message may be the same as before
        after = size(smaller)
        self.emit(
            Notice(f"Compacted: about {self.tokens(before)} tokens became {self.tokens(after)}.")
        )

    def tokens(self, characters: int) -> str:
        return f"{int((characters + self.fixed) * self.ratio):,}"

    def summed_up(self, messages: list[dict], focus: str, room: int) -> list[dict]:
        """The system message, a summary with the last request word for word, and the last steps."""
        system, rest, share = messages[:1], messages[1:], int(room * SHARE)
        kept = tail(rest, share) or last_step(rest, share)
        old = rest[: len(rest) - len(kept)]
        text = SUMMARY + middle_out(self.summary(old, focus, int(room * ROOMY)), share)
        if not any(m["role"] == "user" for m in kept):
            asked = next((m["content"] for m in reversed(old) if m["role"] == "user"), "")
            text += REQUEST + middle_out(asked.rpartition(REQUEST)[2], share)
        return [*system, {"role": "user", "content": text}, *kept]

    def summary(self, messages: list[dict], focus: str, most: int) -> str:
        """What the model makes of these messages. Raises Stopped."""
        wish = f"\nPay special attention to: {focus}" if focus else ""
        request = f"{ASK}{wish}\n\n{middle_out(transcript(messages), most)}"
        try:
            answer = self.summarize([{"role": "user", "content": request}], [])
        except Stopped as stopped:  # without the text that came: it is no answer to the user
            raise Stopped(f"Nothing was compacted: {stopped}", stopped.code) from None
        if not (answer.get("content") or "").strip():
            raise Stopped("Nothing was compacted: the model gave no summary.")
        return answer["content"].strip()


def lasting(messages: list[dict]) -> list[dict]:
    """What no compaction takes away: the system message, and a request that was just made."""
    return messages[:1] + [m for m in messages[1:][-1:] if m["role"] == "user"]


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
    if short == args or "__thought__" in call["id"]:  # Gemini signs a call as it was
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


def tail(messages: list[dict], most: int) -> list[dict]:
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


def last_step(messages: list[dict], most: int) -> list[dict]:
    """The last message with its calls' results, these cut to have about so many characters."""
    start = max(n for n, m in enumerate(messages) if m["role"] != "tool")
    first, *results = messages[start:]
    if first.get("tool_calls"):
        first = first | {"tool_calls": [short_call(call) for call in first["tool_calls"]]}
    each = most // (len(results) + 1)
    return [first, *(m | {"content": middle_out(m["content"], each)} for m in results)]


def transcript(messages: list[dict]) -> str:
    lines = []
    for message in messages:
        lines.append(f"[{message['role']}] {message.get('content') or ''}")
        for call in message.get("tool_calls") or ():
            lines.append(f"  calls {call['function']['name']} {call['function']['arguments']}")
    return "\n".join(lines)
