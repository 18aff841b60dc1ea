"""Settings: defaults < user file < project file < environment < options; and the keys.

Only here and in places.py is the environment read for settings.
"""

import contextlib
import difflib
import os
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from amas_code.keys import Keyring, provider_name
from amas_code.places import ours
from amas_code.trust import from_project
from amas_code.yamlfile import ConfigError, read

MODES = ("ask", "auto-edit", "plan")


@dataclass
class Settings:
    """What is in force. `/mode`, `/model` and an answer to a question change it while we run."""

    model: str = ""
    fallback_model: str = ""
    mode: str = "ask"
    allow: list[str] = field(default_factory=list)
    ignore: list[str] = field(default_factory=list)
    max_context_tokens: int = 128_000
    ollama_context: int = 16_384
    max_turns: int = 0
    max_cost: float = 0.0
    max_time: float = 0.0
    max_shell_timeout: int = 600
    request_timeout: float = 120.0
    checkpoint_on_edit: bool = True
    stream: bool = True
    slim_import: bool = True
    bell_after: float = 20.0
    api_base: str = ""
    api_key: str = field(default="", repr=False)


NAMES = [f.name for f in fields(Settings)] + ["auto_accept"]
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
NUMBER, WHOLE = "a number, 0 or more", "a whole number, 0 or more"
EXPECTED = {bool: "true or false", int: WHOLE, float: NUMBER, list: "a list of texts", str: "text"}


def load(
    root: Path, options: dict, trust: Callable[[str], bool], env: Mapping[str, str] = os.environ
) -> tuple[Settings, Keyring, list[str]]:
    """The settings in force, the keys, and lines the user should see. Raises ConfigError.

    options: settings given on the command line; those that are None or empty were not given
    trust: asks the user whether the project's own settings may count; called at most once
    """
    warnings: list[str] = []
    where = ours(env)
    variables = {name: env.get(f"AMAS_{name.upper()}") for name in NAMES}
    layers = {
        str(where.config / "config.yaml"): read(where.config / "config.yaml"),
        str(root / ".amas/config.yaml"): from_project(root, where.state, trust, warnings),
        "the environment": {name: value for name, value in variables.items() if value},
        "the options": {n: value for n, value in options.items() if value not in (None, (), "")},
    }
    settings, keyring = Settings(), Keyring(where.config / "keys.yaml", env)
    for source, layer in layers.items():
        for name, value in sorted(layer.items()):  # auto_accept first: mode says it more exactly
            if name not in NAMES:
                near = difflib.get_close_matches(name, NAMES, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                warnings.append(f"{source}: there is no setting {name}{hint}")
            elif name == "auto_accept":
                calm = "ask" if settings.mode == "auto-edit" else settings.mode
                settings.mode = "auto-edit" if converted(source, name, value, False) else calm
            else:
                setattr(settings, name, converted(source, name, value, getattr(settings, name)))
        for name in {"api_key", "api_base"} & layer.keys():
            keyring.given[name] = getattr(settings, name), provider_name(settings.model)
    if settings.mode not in MODES:
        raise ConfigError(f"mode: there is no {settings.mode!r}; choose from {', '.join(MODES)}")
    return settings, keyring, warnings


def converted(source: str, name: str, value: Any, like: Any) -> Any:
    """The value in the type that the setting has, or ConfigError."""
    kind, text = type(like), str(value).strip()
    if kind is bool and text.lower() in YES + NO:
        return text.lower() in YES
    if kind in (int, float):
        with contextlib.suppress(ValueError):  # int() takes neither "2.5" nor "True"
            value = kind(text)
    if kind is list:
        value = value.split("\n") if isinstance(value, str) else value
        value = [each for each in value if each] if isinstance(value, list | tuple) else value
    right = type(value) is kind and (kind not in (int, float) or value >= 0)
    if not right or (kind is list and not all(isinstance(each, str) for each in value)):
        found = "something else" if name == "api_key" else reprlib.repr(value)
        raise ConfigError(f"{source}: {name}: expected {EXPECTED[kind]}, found {found}")
    return value
