"""What is known of models: which are at hand, how much they take in, what they cost."""

import json
from typing import Any

from amas_code.answer import Answer
from amas_code.config import Settings
from amas_code.events import Usage
from amas_code.keys import PROVIDERS, Keyring, provider_name

LOCAL = ("ollama", "ollama_chat")
KNOWN = {provider.prefix for provider in PROVIDERS}


def at_hand(library: Any, keyring: Keyring) -> list[str]:
    """The models that the keys at hand allow, and those of a local Ollama."""
    names = ollama_models(keyring)
    for name, known in library.model_cost.items():
        full = name if "/" in name else f"{known.get('litellm_provider')}/{name}"
        fit = known.get("mode") == "chat" and known.get("supports_function_calling")
        if fit and provider_name(full) in KNOWN and keyring.key_for(full):
            names.append(full)
    return sorted(set(names))


def ollama_models(keyring: Keyring) -> list[str]:
    """What a local Ollama has; [] where none answers at once."""
    import httpx

    base = keyring.base_for("ollama_chat/x") or "http://127.0.0.1:11434"
    try:
        answer = httpx.get(f"{base}/api/tags", timeout=0.5, trust_env=False).json()
        return [f"ollama_chat/{model['name']}" for model in answer["models"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return []


def window(library: Any, settings: Settings) -> int:
    """Tokens of context to use: the user's limit, or the model's if that is smaller.

    library: litellm, or None while it is not there; then the user's limit has to do
    """
    name, limit = settings.model, settings.max_context_tokens
    if provider_name(name) in LOCAL:
        return min(limit, settings.ollama_context)
    prices = library.model_cost if library else {}
    known = prices.get(name) or prices.get(name.partition("/")[2]) or {}
    return min(limit, known.get("max_input_tokens") or limit)


def usage(library: Any, name: str, answer: Answer, sent: list[dict], seconds: float) -> Usage:
    """What a request took; where the server does not say, four characters are taken for a token.

    sent: messages and tools
    """
    told = answer.usage
    given = getattr(told, "prompt_tokens", None) or len(json.dumps(sent)) // 4
    made = getattr(told, "completion_tokens", None) or answer.size // 4
    cached = getattr(getattr(told, "prompt_tokens_details", None), "cached_tokens", None) or 0
    return Usage(name, given, made, cached, cost(library, name, given, made, told), seconds)


def cost(library: Any, name: str, given: int, made: int, told: Any) -> float | None:
    """US dollars, or None where the price is not known."""
    if provider_name(name) in LOCAL:
        return 0.0
    try:
        parts = library.cost_per_token(
            model=name, prompt_tokens=given, completion_tokens=made, usage_object=told
        )
    except Exception:  # it raises plain ones for a model that it has no price of
        return None
    return sum(parts)
