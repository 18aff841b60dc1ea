"""Asks the model, whichever it is. The only file that knows litellm."""

import copy
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from amas_code.answer import Answer
from amas_code.catalog import usage
from amas_code.config import Settings
from amas_code.events import ContextExceeded, Cut, Notice, Stopped
from amas_code.keys import Keyring, provider_name
from amas_code.trouble import Trouble, explain

TRIES = 5  # requests for one answer, before the next model or the user is turned to
LONGEST_WAIT = 120.0  # seconds; a provider that asks for more is given up on


class Model:
    """The models of the settings, asked one after the other until one answers."""

    def __init__(self, settings: Settings, keyring: Keyring, emit: Callable):
        self.settings, self.keyring, self.emit = settings, keyring, emit
        self.loader = threading.Thread(target=load, daemon=True)

    def preload(self) -> None:
        """Begin to import the library beside other work; it takes seconds."""
        if self.loader.ident is None:
            self.loader.start()

    def library(self) -> Any:
        """litellm, imported by the loader thread, so that a Ctrl-C cannot leave it half there."""
        self.preload()
        self.loader.join()
        import litellm

        return litellm

    def loaded(self) -> Any:
        """litellm if it is there already, else None."""
        return None if self.loader.ident is None or self.loader.is_alive() else self.library()

    def complete(self, messages: list[dict], tools: list[dict]) -> dict:
        """The model's next message, its text and thoughts emitted as they come.

        Raises Cut with what had come before it broke off, ContextExceeded, or Stopped.
        """
        names = [self.settings.model, *filter(None, self.settings.fallback_model.split(","))]
        for number, name in enumerate(map(str.strip, names)):
            try:
                return self.insist(name, messages, tools)
            except (Cut, ContextExceeded):
                raise
            except Stopped as stopped:
                if number + 1 == len(names):
                    raise
                self.emit(Notice(f"{stopped} Asking {names[number + 1]} instead."))
        raise AssertionError("unreachable")

    def insist(self, name: str, messages: list[dict], tools: list[dict]) -> dict:
        """One model's answer, asking again where that may help."""
        library, cuts = self.library(), 0
        for tried in range(1, TRIES + 1):
            answer = Answer(self.settings.stream, self.emit)
            try:
                return self.ask(library, name, messages, tools, answer)
            except KeyboardInterrupt:
                raise Cut("Stopped.", 130, answer.text) from None
            except Stopped as stopped:
                raise Cut(str(stopped), stopped.code, answer.text) from None
            except Exception as error:
                trouble = explain(library, name, error)
                if trouble.too_long:
                    raise ContextExceeded(trouble.text) from error
                cuts += answer.begun
                if not trouble.again or tried == TRIES or cuts > 1:
                    raise_stopped(trouble, answer)
                wait = trouble.wait if trouble.wait is not None else 2.0 ** (tried - 1)
                if wait > LONGEST_WAIT:
                    raise_stopped(trouble, answer)
                self.emit(Notice(f"{trouble.text} Trying again in {wait:.0f} s; Ctrl-C stops."))
                pause(wait, answer)
        raise AssertionError("unreachable")

    def ask(self, library: Any, name: str, messages: list, tools: list, answer: Answer) -> dict:
        """One request. The stream is closed whatever happens, so that nothing goes on costing."""
        name = full_name(name)
        started, stream = time.monotonic(), None
        try:
            stream = library.completion(**self.request(name, messages, tools))
            answer.take(stream)
        finally:
            close(stream)
        message = answer.message(told_the_end(stream, name))
        self.emit(usage(library, name, answer, messages, time.monotonic() - started))
        return message

    def request(self, name: str, messages: list[dict], tools: list[dict]) -> dict[str, Any]:
        key, base = self.keyring.key_for(name), self.keyring.base_for(name)
        request = {
            "model": name,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "api_key": key or ("none" if base else None),
            "api_base": base or None,
            "max_retries": 0,  # we ask again ourselves, and say so
            "timeout": self.settings.request_timeout,
        }
        if tools:
            request["tools"] = copy.deepcopy(tools)  # litellm changes them for Gemini
        if provider_name(name) == "ollama_chat":
            request["num_ctx"] = self.settings.ollama_context
        return request


def load() -> None:
    """Import litellm quietly, without its download of a price list."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import logging

    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    import litellm

    litellm.suppress_debug_info = True


def full_name(name: str) -> str:
    """`ollama/` has litellm drop the tools, `ollama_chat/` keeps them."""
    return "ollama_chat/" + name[7:] if name.startswith("ollama/") else name


def close(stream: Any) -> None:
    """Hang up. litellm's own wrapper cannot, what it wraps can, each in its way."""
    inner = getattr(stream, "completion_stream", None)
    end = getattr(getattr(inner, "streaming_response", inner), "close", None)
    if end:
        end()


def told_the_end(stream: Any, name: str) -> bool:
    """Whether the server said that the answer is over; litellm says so of a broken stream too.

    Not knowable for Gemini, where litellm never keeps what the server said.
    """
    return provider_name(name) == "gemini" or bool(getattr(stream, "received_finish_reason", True))


def raise_stopped(trouble: Trouble, answer: Answer) -> None:
    if answer.begun:
        raise Cut(trouble.text, trouble.code, answer.text)
    raise Stopped(trouble.text, trouble.code)


def pause(seconds: float, answer: Answer) -> None:
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        raise Cut("Stopped.", 130, answer.text) from None
