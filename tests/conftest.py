"""Fixtures: a home of its own, a project under git, and the real `amas` in pipes or on a pty."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.terminal import Terminal

SLOW = (
    "chat",
    "server",
    "session",
    "commandline",
    "config",
    "compaction",
    "oneshot",
    "survival",
    "redaction",
    "faults",
    "library",
    "doctor",
    "pressure",
)
AMAS = [sys.executable, "-m", "amas_code"]


def pytest_configure(config: pytest.Config) -> None:
    """What amas compiles once is shared by all tests, and does not lie in the user's home."""
    os.environ["XDG_CACHE_HOME"] = str(config.cache.mkdir("home"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts the whole program again and again is left out of the quick suite."""
    for item in items:
        if item.path.stem.removeprefix("test_") in SLOW:
            item.add_marker("slow")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def env(home: Path) -> dict:
    """An environment with no keys, no settings, nothing of the machine but the path."""
    keep = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "XDG_CACHE_HOME")
    return {
        **{name: os.environ[name] for name in keep if name in os.environ},
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "PYTHONWARNINGS": "error::SyntaxWarning",
    }


def git(directory: Path, *args: str) -> str:
    identity = ["-c", "user.name=Ute", "-c", "user.email=ute@example.org"]
    done = subprocess.run(
        ["git", *identity, *args], cwd=directory, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def project(tmp_path: Path, env: dict) -> Path:
    """A repository with one commit: calc.py, whose add() subtracts."""
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    git(root, "add", "calc.py")
    git(root, "commit", "-q", "-m", "begin")
    return root


def to(url: str, model: str = "openai/test-model") -> dict:
    """The environment that makes amas talk to a server of ours."""
    return {"AMAS_MODEL": model, "AMAS_API_BASE": f"{url}/v1", "AMAS_API_KEY": "test-key"}


@pytest.fixture
def amas(project: Path, env: dict):
    """Run `amas` with these arguments, in pipes, to its end."""

    def run(*args: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*AMAS, *args],
            cwd=more.pop("cwd", project),
            env=env | more,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=100,
        )

    return run


@pytest.fixture
def terminal(project: Path, env: dict):
    """Start `amas` with these arguments on a pty."""
    opened: list[Terminal] = []

    def start(*args: str, columns: int = 100, rows: int = 40, **more: str) -> Terminal:
        opened.append(Terminal([*AMAS, *args], project, env | more, columns, rows))
        return opened[-1]

    yield start
    for each in opened:
        each.close()
