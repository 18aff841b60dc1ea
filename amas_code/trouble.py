"""Says in one line what went wrong with a request, and whether asking again may help."""

import re
from collections.abc import Callable, Iterator
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


def explain(
    library: Any, name: str, raised: Exception, redact: Callable[[str], str] = str
) -> Trouble:
    """One line for the user from what the library raised. redact: hides a key that it repeats."""
    error = getattr(raised, "original_exception", None) or raised  # what broke a stream is wrapped
    status, whole = getattr(error, "status_code", None) or 0, str(error)
    words = own_words(redact(whole))  # before it is cut: half a key could not be told
    if isinstance(error, Incomplete):
        return Trouble(f"{name}: {error}.", again=True, once=True)
    if isinstance(error, library.ContextWindowExceededError) or TOO_LONG in whole or status == 413:
        text = f"{name}: the conversation is too long for it. /compact shortens it, /clear ends it."
        return Trouble(text, too_long=True)
    if status in (401, 403):
        return Trouble(
            f"{name}: the key was not accepted ({words}); `amas config` sets one.", code=3
        )
    if status == 404:
        return Trouble(f"{name}: no such model there ({words}); `/model` lists those at hand.")
    if "LLM Provider NOT provided" in whole:
        return Trouble(f"{name}: no such provider; models have names like openai/gpt-5.4-mini.")
    if status == 429:
        return limited(name, words, raised, retry_after(error))
    if trouble := network(name, raised):
        return trouble
    if status >= 500 or OLLAMA_BROKE in whole:
        return Trouble(f"{name}: trouble at the provider ({words}).", True, retry_after(error))
    return Trouble(f"{name}: {words}")


def limited(name: str, words: str, raised: Exception, wait: float | None) -> Trouble:
    """Too many requests, which a wait helps, unless it is too long or the money ran out."""
    if any(getattr(each, "code", None) == "insufficient_quota" for each in causes(raised)):
        return Trouble(f"{name}: no credit left ({words}).")
    if wait and wait > LONGEST_WAIT:
        return Trouble(f"{name}: too many requests; it wants to be left alone for {wait:.0f} s.")
    return Trouble(f"{name}: too many requests ({words}).", True, wait)


def network(name: str, raised: Exception) -> Trouble | None:
    """What broke on the way. The library has several names for it; its cause has one."""
    import httpx

    match next((each for each in causes(raised) if isinstance(each, httpx.TransportError)), None):
        case None:
            return None
        case httpx.ConnectError() | httpx.ConnectTimeout() as cause:
            hint = "Is the network up, the address right?"
            return Trouble(f"{name}: cannot be reached ({cause}). {hint}", again=True)
        case httpx.TimeoutException():
            return Trouble(f"{name}: no answer in time (request_timeout).", again=True, once=True)
    return Trouble(f"{name}: the connection broke off.", again=True, once=True)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__


def own_words(whole: str) -> str:
    """The provider's own words, out of what the library wraps around them; one line."""
    if found := re.search(r"""["'](?:message|error)["']: (["'])(.+?)\1[,}]""", whole):
        return found[2][:300]
    bare = re.sub(r"^((litellm\.)?\w+(: | - ))*", "", whole.strip())
    return bare.split("\n")[0].split(". Handle with `litellm")[0][:300].rstrip(".")


def retry_after(error: Exception) -> float | None:
    """Seconds the provider asks for: in a header, or in its words, as Gemini does."""
    headers = getattr(error, "litellm_response_headers", None) or {}
    told = re.search(r'"retryDelay": "([\d.]+)s"', str(error))
    try:
        return max(0.0, float(headers.get("retry-after") or (told[1] if told else "")))
    except ValueError:
        return None
