"""Where things lie: the project's root, and our own files for the user."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Places(NamedTuple):
    """Where our own files lie: what the user wrote, and what we keep."""

    config: Path
    state: Path


def ours(env: Mapping[str, str] = os.environ) -> Places:
    home = Path(env.get("HOME") or Path.home())
    return Places(
        Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "amas",
        Path(env.get("XDG_STATE_HOME") or home / ".local/state") / "amas",
    )


def project_root(directory: Path) -> Path:
    """The root of the git work tree that holds the directory, else the directory itself."""
    for parent in (directory, *directory.parents):
        if (parent / ".git").exists():
            return parent
    return directory
