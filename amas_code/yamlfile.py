"""Our YAML files: read with a clear word on what is wrong, changed one line at a time."""

import json
import os
import re
from pathlib import Path

from amas_code.edits import write


class ConfigError(Exception):
    """A settings file or value is wrong; the message names the place and the reason."""


def read(path: Path) -> dict:
    """What a settings file says; {} without one. A wrong one is neither changed nor skipped."""
    try:
        return parsed(path, path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: it is not UTF-8 text") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error


def parsed(path: Path, text: str) -> dict:
    """The names and values in the text of that file; names without a value are left out."""
    import yaml

    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        reason = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ConfigError(f"{path}:{line} not valid YAML: {reason}") from error
    except (ValueError, RecursionError) as error:  # an impossible date, ten thousand brackets
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(values, dict | None):
        raise ConfigError(f"{path}: expected lines of `name: value`")
    return {str(name): value for name, value in (values or {}).items() if value is not None}


def remember(path: Path, name: str, value: str) -> None:
    """Set one line of a YAML file of ours, keeping all others; nobody else can read the file.

    Raises ConfigError, with nothing changed, where that would not say what it should.
    """
    path = Path(os.path.realpath(path))  # some keep their settings elsewhere, with a link here
    line = f"{name}: {json.dumps(value)}"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    text, found = re.subn(rf"(?m)^{re.escape(name)}\s*:.*$", lambda m: line, text)
    if not found:
        text += ("\n" if text and not text.endswith("\n") else "") + line + "\n"
    if parsed(path, text).get(name) != value:
        raise ConfigError(f"{path}: there is no place for {name} in it; write the line yourself")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    path.chmod(0o600)
    write(path, text.encode())
