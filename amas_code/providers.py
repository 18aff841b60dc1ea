"""Asks the model, whichever it is. With library.py the only file that knows litellm."""

import copy
import time
from collections.abc import Callable
from typing import Any

from amas_code.answer import Answer, close, told_the_end
from amas_code.catalog import LOCAL, usage
from amas_code.config import Settings
from amas_code.events import ContextExceeded, Cut, Notice, Stopped
from amas_code.keys import Keyring, provider_name
from amas_code.library import Library
from amas_code.redaction import Redactor
from amas_code.trouble import explain

TRIES = 5  # requests for one answer, before the next model or the user is turned to


class Model:
    """The models of the settings, asked one after the other until one answers."""

    def __init__(
        self, settings: Settings, keyring: Keyring, emit: Callable, library: Library | None = None
    ):
        """library: another model's, to be shared"""
        self.settings, self.keyring, self.emit = settings, keyring, emit
        self.library = library or Library(settings.slim_import, emit)
        self.redact = Redactor(
            lambda: [*keyring.by_name.values(), keyring.given.get("api_key", ("", ""))[0]]
        )
        self.backoff = 1.0  # seconds before the second request; doubled before each further one

    def complete(self, messages: list[dict], tools: list[dict]) -> dict:
        """The model's next message, its text and thoughts emitted as they come.

        Raises Cut with what had come before it broke off, or ContextExceeded.
        """
        self.answer = Answer(self.settings.stream, self.emit)
        others = map(str.strip, self.settings.fallback_model.split(","))
        try:
            return self.insist([self.settings.model, *filter(None, others)], messages, tools)
        except ContextExceeded:
            raise
        except KeyboardInterrupt:
            raise Cut("Stopped.", 130, self.answer.said()) from None
        except Stopped as stopped:
            raise Cut(str(stopped), stopped.code, self.answer.said()) from None

    def insist(self, names: list[str], messages: list[dict], tools: list[dict]) -> dict:
        """The first model's answer, asking again where that may help; else that of the others."""
        (name, *others), broken = names, 0
        for tried in range(TRIES):
            self.answer = Answer(self.settings.stream, self.emit)
            try:
                return self.ask(name, messages, tools)
            except Exception as error:
                trouble = explain(self.library.get(), name, error, self.redact)
            if trouble.too_long:
                raise ContextExceeded(trouble.text)
            broken += trouble.once or bool(self.answer.size)
            if not trouble.again or broken > 1 or tried + 1 == TRIES:
                break
            wait = self.backoff * 2**tried if trouble.wait is None else trouble.wait
            self.emit(Notice(f"{trouble.text} Trying again in {wait:.0f} s; Ctrl-C stops."))
            time.sleep(wait)
        if not others:
            raise Stopped(trouble.text, trouble.code)
        self.emit(Notice(f"{trouble.text} Asking {others[0]} instead."))
        return self.insist(others, messages, tools)

    def ask(self, name: str, messages: list[dict], tools: list[dict]) -> dict:
        """One request; a second one where litellm's slim import may be to blame for an error."""
        try:
            return self.ask_once(name, messages, tools)
        except Exception as error:
            if not self.library.plainly(error):
                raise
        return self.ask_once(name, messages, tools)

    def ask_once(self, name: str, messages: list[dict], tools: list[dict]) -> dict:
        """One request. The stream is closed whatever happens, so that nothing goes on costing."""
        library, answer, stream = self.library.get(), self.answer, None
        started = time.monotonic()
        if provider_name(name) == "gemini":  # where litellm forgets the timeout it is given
            library.module_level_client.client.timeout = self.settings.request_timeout
        try:
            stream = library.completion(**self.request(name, messages, tools))
            answer.take(stream)
            self.library.answered()
            return answer.message(told_the_end(stream, provider_name(name)))
        finally:
            close(stream)
            if answer.size:  # what broke off costs, too
                took = time.monotonic() - started
                self.emit(usage(library, full_name(name), answer, messages + tools, took))

    def request(self, name: str, messages: list[dict], tools: list[dict]) -> dict[str, Any]:
        key, base = self.keyring.key_for(name), self.keyring.base_for(name)
        if "claude" in name:
            messages = with_cache_marks(messages)
        else:  # none but Anthropic knows its signed thoughts
            messages = [unsigned(m) if "thinking_blocks" in m else m for m in messages]
        request = {
            "model": full_name(name),
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "api_key": key or ("none" if base else None),
            "api_base": base or None,
            "max_retries": 0,  # we ask again ourselves, and say so
            "timeout": self.settings.request_timeout,
        }
        if tools:  # litellm changes those for Gemini
            request["tools"] = copy.deepcopy(tools) if provider_name(name) == "gemini" else tools
        if provider_name(name) in LOCAL:
            request["num_ctx"] = self.settings.ollama_context
        return request


def with_cache_marks(messages: list[dict]) -> list[dict]:
    """Marks up to where Anthropic shall keep what it has read: other providers do so unasked.

    After the system prompt, where the last request ended, and at the end, for the next one.
    """
    answers = [n for n, message in enumerate(messages) if message["role"] == "assistant"]
    ends = {0, answers[-1] - 1 if answers else 0, len(messages) - 1}
    marked = {"cache_control": {"type": "ephemeral"}}
    return [message | marked if n in ends else message for n, message in enumerate(messages)]


def unsigned(message: dict) -> dict:
    return {key: value for key, value in message.items() if key != "thinking_blocks"}


def full_name(name: str) -> str:
    """The name litellm needs: `ollama/` drops the tools, a bare `gemini-` goes to Vertex."""
    if name.startswith("gemini-"):
        return f"gemini/{name}"
    return "ollama_chat/" + name[7:] if name.startswith("ollama/") else name
