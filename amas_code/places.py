"""Where things lie: the project's root, and our own files for the user."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Places(NamedTuple):
    """Where our own files lie: what the user wrote, what we keep, and what can be made again."""

    config: Path
    state: Path
    cache: Path


def ours(env: Mapping[str, str] = os.environ) -> Places:
    home = home_directory(env)
    return Places(
        absolute(env.get("XDG_CONFIG_HOME"), home / ".config") / "amas",
        absolute(env.get("XDG_STATE_HOME"), home / ".local/state") / "amas",
        absolute(env.get("XDG_CACHE_HOME"), home / ".cache") / "amas",
    )


def home_directory(env: Mapping[str, str] = os.environ) -> Path:
    """The user's home; / where neither the environment nor the system knows one."""
    return absolute(env.get("HOME"), absolute(os.path.expanduser("~"), Path("/")))


def is_project(root: Path) -> bool:
    """Whether it may be one: the home directory and / are too much."""
    return root not in (home_directory().resolve(), Path("/"))


def absolute(path: str | None, otherwise: Path) -> Path:
    """The path, unless it is missing or relative (as XDG wants those passed over)."""
    return Path(path) if path and os.path.isabs(path) else otherwise


def project_root(directory: Path) -> Path:
    """The root of the git work tree that holds the directory, else the directory itself."""
    for parent in (directory, *directory.parents):
        if (parent / ".git").exists():
            return parent
    return directory
