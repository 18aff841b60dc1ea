"""Says in one line what went wrong with a request, and whether asking again may help."""

from typing import Any, NamedTuple

from amas_code.answer import Incomplete

OLLAMA_TOO_LONG = "exceeds the available context size"


class Trouble(NamedTuple):
    """What went wrong with a request, for the user, and what may be done about it."""

    text: str
    again: bool = False  # asking again may help
    wait: float | None = None  # seconds the provider wants to be left alone
    code: int = 1
    too_long: bool = False  # the conversation does not fit the model


def explain(library: Any, name: str, error: Exception) -> Trouble:
    """One line for the user from what the library raised."""
    error = getattr(error, "original_exception", None) or error  # what broke a stream is wrapped
    if isinstance(error, library.ContextWindowExceededError) or OLLAMA_TOO_LONG in str(error):
        return Trouble(f"{name}: the conversation is too long for it.", too_long=True)
    status = getattr(error, "status_code", None)
    if isinstance(error, Incomplete):
        return Trouble(f"{name}: {error}.", True, 0.0)
    if isinstance(error, library.AuthenticationError) or status in (401, 403):
        return Trouble(f"{name}: the key was not accepted. `amas config` sets another.", code=3)
    if isinstance(error, library.NotFoundError):
        return Trouble(f"{name}: no such model there. `/model` lists those at hand.")
    if isinstance(error, library.RateLimitError):
        return Trouble(f"{name}: too many requests.", True, retry_after(error))
    if isinstance(error, library.Timeout):
        return Trouble(f"{name}: no answer in time.", True)
    if isinstance(error, library.APIConnectionError):
        return Trouble(f"{name}: cannot be reached. Is the network up, the address right?", True)
    if isinstance(status, int) and status >= 500:
        return Trouble(f"{name}: trouble at the provider ({status}): {first_line(error)}", True)
    return Trouble(f"{name}: {first_line(error)}")


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]


def retry_after(error: Exception) -> float | None:
    """Seconds the provider asks for."""
    headers = getattr(error, "litellm_response_headers", None) or {}
    try:
        return float(headers.get("retry-after", ""))
    except ValueError:
        return None
