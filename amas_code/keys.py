"""The keys of providers: where they are found, and which provider may see which."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

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
    return head if slash else bare


class Keyring:
    """The keys and the address at hand; a provider gets to see its own alone.

    by_name: keys by the name of their variable; the environment comes before the keys file
    key, base: api_key and api_base of the settings, and whose they are ("": anybody's)
    """

    def __init__(self, path: Path, env: Mapping[str, str]):
        self.by_name = {name: str(value) for name, value in read(path).items()}
        if self.by_name and path.stat().st_mode & 0o077:
            raise ConfigError(f"{path}: others can read it; run: chmod 600 {path}")
        self.by_name |= {name: env[name] for name in env if name.endswith("_API_KEY") and env[name]}
        self.key, self.base, self.owner = "", "", ""

    def key_for(self, model: str) -> str | None:
        name = provider_name(model)
        if self.key and self.owner in ("", name):
            return self.key
        known = next((p.variables for p in PROVIDERS if p.prefix == name), ())
        variables = (*known, f"{name.upper().replace('-', '_')}_API_KEY")
        return next((self.by_name[v] for v in variables if v in self.by_name), None)

    def base_for(self, model: str) -> str | None:
        return self.base or None if self.owner in ("", provider_name(model)) else None

    def serves(self, model: str) -> bool:
        """Whether a request can be tried: a key or an address is there, or none seems needed."""
        known = provider_name(model) in {provider.prefix for provider in PROVIDERS}
        return bool(self.key_for(model) or self.base_for(model) or not known)
