"""Our YAML files: read with a clear word on what is wrong, changed one line at a time."""

import json
import re
from pathlib import Path

from amas_code.edits import write


class ConfigError(Exception):
    """A settings file or value is wrong; the message names the place and the reason."""


def read(path: Path) -> dict:
    """What a settings file says; {} without one. A wrong one is neither changed nor skipped."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    import yaml

    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        reason = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{path}:{line} not valid YAML: {reason}") from error
    if not isinstance(values, dict | None):
        raise ConfigError(f"{path}: expected lines of `name: value`")
    return {str(name): value for name, value in (values or {}).items()}


def remember(path: Path, name: str, value: str) -> None:
    """Set one line of a YAML file of ours, keeping all others; nobody else can read the file."""
    line = f"{name}: {json.dumps(value)}"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    text, found = re.subn(rf"(?m)^{re.escape(name)}\s*:.*$", lambda m: line, text)
    if not found:
        text += ("\n" if text and not text.endswith("\n") else "") + line + "\n"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    path.chmod(0o600)
    write(path, text.encode())
