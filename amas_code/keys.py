"""The keys of providers: where they are found, and which provider may see which."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from amas_code.yamlfile import ConfigError, read


class Provider(NamedTuple):
    """A service that serves models."""

    prefix: str  # of its models' names
    bare: str  # how names begin that come without the prefix
    variables: tuple[str, ...]  # that may hold the key
    model: str  # to begin with, without the prefix
    site: str  # where keys are made


PROVIDERS = (
    Provider(
        "anthropic", "claude", ("ANTHROPIC_API_KEY",), "claude-sonnet-5", "console.anthropic.com"
    ),
    Provider("openai", "gpt", ("OPENAI_API_KEY",), "gpt-5.4-mini", "platform.openai.com"),
    Provider(
        "gemini",
        "gemini",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "gemini-flash-latest",
        "aistudio.google.com",
    ),
    Provider("groq", "groq", ("GROQ_API_KEY",), "openai/gpt-oss-120b", "console.groq.com"),
    Provider("mistral", "mistral", ("MISTRAL_API_KEY",), "devstral-latest", "console.mistral.ai"),
    Provider(
        "deepseek", "deepseek", ("DEEPSEEK_API_KEY",), "deepseek-chat", "platform.deepseek.com"
    ),
    Provider(
        "openrouter", "openrouter", ("OPENROUTER_API_KEY",), "openrouter/auto", "openrouter.ai"
    ),
)


def provider_name(model: str) -> str:
    """The provider a model's name stands for, such as "openai" for "gpt-5" and "openai/gpt-5"."""
    head, slash, _ = model.partition("/")
    bare = next((p.prefix for p in PROVIDERS if head.startswith(p.bare)), head)
    return "ollama_chat" if head == "ollama" else head if slash else bare


class Keyring:
    """The keys and addresses at hand; a provider gets to see its own alone.

    by_name: keys by the name of their variable; the environment comes before the keys file
    given: api_key and api_base of the settings, each with the provider it is for ("": anybody)
    """

    def __init__(self, path: Path, env: Mapping[str, str]):
        self.by_name = kept(path)
        self.by_name |= {name: env[name] for name in env if name.endswith("_API_KEY") and env[name]}
        self.given: dict[str, tuple[str, str]] = {}
        self.ollama = ollama_address(env.get("OLLAMA_API_BASE") or env.get("OLLAMA_HOST") or "")

    def bind(self, model: str) -> None:
        """What was given without a model is for this one's provider from now on."""
        for what, (value, owner) in self.given.items():
            self.given[what] = value, owner or provider_name(model)

    def own(self, what: str, provider: str) -> str:
        value, owner = self.given.get(what, ("", ""))
        return value if owner in ("", provider) else ""

    def key_for(self, model: str) -> str | None:
        name = provider_name(model)
        known = next((p.variables for p in PROVIDERS if p.prefix == name), ())
        variables = (*known, f"{name.upper().replace('-', '_')}_API_KEY")
        named = (self.by_name[variable] for variable in variables if variable in self.by_name)
        return self.own("api_key", name) or next(named, None)

    def base_for(self, model: str) -> str | None:
        name = provider_name(model)
        usual = self.ollama if name == "ollama_chat" else None
        return self.own("api_base", name).rstrip("/") or usual

    def first_model(self) -> str:
        """That of the first provider with a key, or "".

        What was given without saying whose it is (api_key, api_base) goes to no provider unasked.
        """
        names = (f"{provider.prefix}/{provider.model}" for provider in PROVIDERS)
        return "" if self.given else next(filter(self.key_for, names), "")

    def serves(self, model: str) -> bool:
        """Whether a request can be tried: a key or an address is there, or none seems needed."""
        known = provider_name(model) in {provider.prefix for provider in PROVIDERS}
        return bool(self.key_for(model) or self.base_for(model) or not known)


def kept(path: Path) -> dict[str, str]:
    """The keys in our file, which must be the user's alone."""
    keys = read(path)
    if keys and path.stat().st_mode & 0o077:
        raise ConfigError(f"{path}: others can read it; run: chmod 600 {path}")
    for name, key in keys.items():
        if not isinstance(key, str):
            raise ConfigError(f'{path}: {name}: expected text; put quotes around it: "…"')
    return keys


def ollama_address(given: str) -> str | None:
    """The URL of what Ollama itself takes for an address: a host, a port, both or a URL."""
    scheme, _, rest = given.rpartition("://")
    try:
        url = urlsplit(f"//{rest}")
        port = url.port or {"": 11434, "http": 80}.get(scheme, 443)
    except ValueError:  # no address, so its usual one will do
        return None
    host = url.hostname or ""
    host = "127.0.0.1" if host in ("", "0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"{scheme or 'http'}://{host}:{port}{url.path.rstrip('/')}" if given else None
