"""A project's own settings, and whether the user trusts them; remembered by their content."""

import hashlib
import json
import reprlib
from collections.abc import Callable
from pathlib import Path

from amas_code.edits import write
from amas_code.yamlfile import read

FREE = {"max_context_tokens", "stream", "ignore"}  # a project may set these without being trusted


def from_project(
    root: Path, state: Path, trust: Callable[[str], bool], warnings: list[str]
) -> dict:
    """The project's own settings: all but keys once the user trusts them, else harmless ones."""
    path = root / ".amas/config.yaml"
    layer = read(path)
    if layer.pop("api_key", None):
        warnings.append(
            f"{path}: api_key is ignored; keys belong to the environment or `amas config`"
        )
    bold = {name: layer[name] for name in sorted(set(layer) - FREE)}
    if not bold or trusted(path, state, trust, bold, warnings):
        return layer
    warnings.append(
        f"{path}: not trusted, so left out: {', '.join(bold)} (start with --trust to use them)"
    )
    return {name: value for name, value in layer.items() if name in FREE}


def trusted(
    path: Path, state: Path, trust: Callable[[str], bool], bold: dict, warnings: list[str]
) -> bool:
    """Whether the user agreed to this very file, now or before."""
    store = state / "trust.json"
    known = remembered(store)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if known.get(str(path)) == digest:
        return True
    told = "".join(f"\n  {name}: {reprlib.repr(value)}" for name, value in bold.items())
    if not trust(f"This project brings its own settings ({path}):{told}"):
        return False
    try:
        write(store, json.dumps(known | {str(path): digest}, indent=1).encode())
    except OSError as error:
        warnings.append(f"{store}: {error.strerror}, so this will be asked again")
    return True


def remembered(store: Path) -> dict:
    """The digests of what was trusted before, by path."""
    try:
        known = json.loads(store.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
