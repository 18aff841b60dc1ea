"""Says in one line what went wrong with a request, and whether asking again may help."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from amas_code.answer import Incomplete

LONGEST_WAIT = 120.0  # seconds; a provider that asks for more is given up on
TOO_LONG = "exceeds the available context size"  # llama.cpp's words, Ollama's too
OLLAMA_BROKE = "unexpected response from Ollama"  # an error in mid-stream, under a wrong status


class Trouble(NamedTuple):
    """What went wrong with a request, for the user, and what may be done about it."""

    text: str
    again: bool = False  # asking again may help
    wait: float | None = None  # seconds the provider wants to be left alone
    code: int = 1
    too_long: bool = False  # the conversation does not fit the model
    once: bool = False  # asking again may help, but no more than once


def explain(library: Any, name: str, raised: Exception) -> Trouble:
    """One line for the user from what the library raised."""
    error = getattr(raised, "original_exception", None) or raised  # what broke a stream is wrapped
    status, words = getattr(error, "status_code", None) or 0, provider_words(error)
    if isinstance(error, Incomplete):
        return Trouble(f"{name}: {error}.", again=True, once=True)
    if isinstance(error, library.ContextWindowExceededError) or TOO_LONG in words or status == 413:
        text = f"{name}: the conversation is too long for it. /compact shortens it, /clear ends it."
        return Trouble(text, too_long=True)
    if status in (401, 403):
        text = f"{name}: the key was not accepted: {words} `amas config` sets another."
        return Trouble(text, code=3)
    if status == 404:
        return Trouble(f"{name}: no such model there: {words} `/model` lists those at hand.")
    if "LLM Provider NOT provided" in words:
        return Trouble(f"{name}: no such provider; a model's name is like openai/gpt-5.4-mini.")
    if status == 429:
        return limited(name, words, retry_after(raised, error))
    return broken_off(name, raised) or at_the_provider(name, words, status, retry_after(raised))


def limited(name: str, words: str, wait: float | None) -> Trouble:
    """Too many requests, which a wait helps, unless it is the money that ran out."""
    if "insufficient_quota" in words or (wait or 0) > LONGEST_WAIT:
        rest = f" It asks to be left alone for {wait:.0f} s." if wait else ""
        return Trouble(f"{name}: over its limit: {words}{rest}")
    return Trouble(f"{name}: too many requests: {words}", True, wait)


def broken_off(name: str, raised: Exception) -> Trouble | None:
    """Where it was the network, told from the library's wrappings by what lies at their bottom."""
    import httpx

    found = next((e for e in causes(raised) if isinstance(e, httpx.TransportError)), None)
    match found:
        case None:
            return None
        case httpx.ConnectError() | httpx.ConnectTimeout():
            why = f"cannot be reached ({found}). Is the network up, the address right?"
            return Trouble(f"{name}: {why}", again=True)
        case httpx.TimeoutException():
            return Trouble(f"{name}: no answer in time (request_timeout).", again=True, once=True)
    return Trouble(f"{name}: the connection broke off.", again=True, once=True)


def at_the_provider(name: str, words: str, status: int, wait: float | None) -> Trouble:
    if status >= 500 or OLLAMA_BROKE in words:
        return Trouble(f"{name}: trouble at the provider: {words}", True, wait)
    return Trouble(f"{name}: {words}")


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__


def provider_words(error: Exception) -> str:
    """What the provider said, out of what the library wraps around it; one line."""
    return str(error)


def retry_after(*errors: Exception) -> float | None:
    """Seconds the provider asks for, if it does: in a header, or, as Gemini does, in its words."""
    for error in errors:
        headers = getattr(error, "litellm_response_headers", None) or {}
        try:
            return max(0.0, float(headers.get("retry-after", "")))
        except ValueError:
            pass
    return None
