"""What `amas doctor` finds of the program itself and of the machine that it is on.

Nothing is changed and litellm is not imported. Nobody is asked anything but git, and an Ollama on
this very machine.
"""

import contextlib
import ipaddress
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cached_property
from importlib import metadata
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from amas_code import __version__, config, gitstore
from amas_code.catalog import ollama_models
from amas_code.keys import Keyring
from amas_code.lazyimport import Finder
from amas_code.library import SLIM, TESTED
from amas_code.places import Places, ours, project_root

OK, NOTE, PROBLEM = "ok", "note", "problem"
PATIENCE = 3.0  # seconds for one git
PYTHONS = (3, 10), (3, 13)  # the first and the last that our tests pass with
LITTLE_MEMORY, LITTLE_DISK = 256, 200  # MB
PACKAGES = ("amas_code", "click", "rich", "prompt_toolkit", "pydantic", "httpx")
INSTALL = "apt install {0}, or brew install {0}"


class Found(NamedTuple):
    """What a check found, and what to do next unless it is ok."""

    state: str  # "ok", "note": nothing stops working, or "problem"
    text: str
    hint: str = ""


class Setup:
    """What the checks look at. Each part is worked out when it is asked for: it may be broken."""

    def __init__(self, options: dict):
        self.options = options  # settings from the command line

    @cached_property
    def root(self) -> Path:
        return project_root(Path.cwd())

    @cached_property
    def places(self) -> Places:
        return ours()

    @cached_property
    def loaded(self) -> tuple[config.Settings, Keyring, list[str]]:
        """As a chat would have them; raises ConfigError."""
        return config.load(self.root, self.options, lambda what: False)

    @cached_property
    def ollama(self) -> tuple[str, list[str]]:
        """Its address, and the models it has; [] if none answers, or it is another machine."""
        keyring = self.loaded[1]
        base = keyring.base_for("ollama_chat/x") or "http://127.0.0.1:11434"
        return base, ollama_models(keyring) if on_this_machine(base) else []

    @cached_property
    def model(self) -> tuple[str, str]:
        """The name of the model that a chat would begin with, and why that one."""
        settings, keyring, _ = self.loaded
        if settings.model:
            return settings.model, "by the settings"
        if name := keyring.first_model():
            return name, "by the first key found"
        return next(iter(self.ollama[1]), ""), "what Ollama has"


def on_this_machine(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def nearest(path: Path) -> Path:
    """The path, or the nearest directory above it that is there."""
    return next((each for each in (path, *path.parents) if os.path.lexists(each)), Path("/"))


def writable(path: Path) -> bool:
    """Whether it is a directory to write to, or can be made one."""
    there = nearest(path)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


# --- Amas -------------------------------------------------------------------------------------


def version(setup: Setup) -> Found:
    return Found(OK, f"{__version__} in {Path(__file__).parent}")


def python(setup: Setup) -> Found:
    told = f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}"
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1] and sys.implementation.name == "cpython":
        return Found(OK, told)
    known = " to ".join(".".join(map(str, each)) for each in PYTHONS)
    return Found(NOTE, told, f"Amas is tested with CPython {known}; another one may do")


def compiled(setup: Setup) -> Found:
    """Whether Python has the packages compiled; those that are imported slim, we compile."""
    whole = () if litellm_version() in TESTED else SLIM
    specs = [find_spec(name) for name in (*PACKAGES, *whole)]
    sources = [spec.origin for spec in specs if spec and spec.origin]
    missing = [path for path in sources if not os.path.exists(cache_from_source(path))]
    never = [path for path in missing if not writable(Path(cache_from_source(path)))]
    if never := missing if sys.dont_write_bytecode else never:
        names = ", ".join(Path(path).parent.name for path in never)
        folders = shlex.join(str(Path(path).parent) for path in never)
        command = f"{shlex.quote(sys.executable)} -m compileall -q {folders}"
        return Found(NOTE, f"not compiled, so each start takes longer: {names}", command)
    if sys.dont_write_bytecode:
        told = "compiled, but Python is told to write no compiled code, so it will be outdated"
        return Found(NOTE, told, "unset PYTHONDONTWRITEBYTECODE")
    return Found(OK, "not all yet; the first use does it" if missing else "yes")


def litellm(setup: Setup) -> Found:
    if found := litellm_version():
        return Found(OK, found)
    return Found(PROBLEM, "not installed, so no model can be asked", installing())


def litellm_version() -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version("litellm")
    return ""


def installing() -> str:
    return f"{shlex.quote(sys.executable)} -m pip install litellm=={TESTED[-1]}"


def loading(setup: Setup) -> Found:
    """Which way litellm will be imported."""
    if not setup.loaded[0].slim_import:
        told = "whole, as slim_import is false: over 200 MB, and seconds"
        return Found(NOTE, told, "take that setting out")
    found = litellm_version()
    if not found:
        return Found(NOTE, "not at all")
    if found not in TESTED:
        told = "whole, as this release is not among those known well: over 200 MB, and seconds"
        return Found(NOTE, told, installing())
    cache = Finder(SLIM, setup.places.cache / "slim").cache
    if cache.exists():
        return Found(OK, "slim, compiled")
    if writable(cache):
        return Found(OK, "slim; the first use compiles it, once, which takes some seconds")
    told = "slim, but compiled anew at each start: there is no place to keep that"
    return Found(NOTE, told, "see what is said of the cache")


def crash(setup: Setup) -> Found:
    path = setup.places.state / "traceback.txt"
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        when = time.strftime("%d %b %Y %H:%M", time.localtime(path.stat().st_mtime))
        last = path.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
        return Found(NOTE, f"{when}: {last[:200]}", f"report it with {path}, or delete that file")
    return Found(OK, "none noted")


# --- this machine -----------------------------------------------------------------------------


def system(setup: Setup) -> Found:
    known = os.uname()
    name = f"macOS {platform.mac_ver()[0]}"
    if sys.platform != "darwin":
        with contextlib.suppress(OSError):
            name = platform.freedesktop_os_release()["PRETTY_NAME"]
    wsl = " in WSL" if "microsoft" in known.release.lower() else ""
    return Found(OK, f"{name}{wsl}, {known.sysname} {known.release}, {known.machine}")


def memory(setup: Setup) -> Found:
    """What can be had: of the machine, or of the group of processes that we are in."""
    free = whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20  # MB
    if known := re.search(r"MemAvailable:\s+(\d+) kB", content(Path("/proc/meminfo"))):
        free = int(known[1]) >> 10
    told = f"{size(free)} of {size(whole)} available"
    limit = min(limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")), default=free)
    if limit < free:
        told += f", but its cgroup allows {size(limit)}"
    if min(limit, free) < LITTLE_MEMORY:
        return Found(NOTE, told, "amas takes some 150 MB: close what you do not need")
    return Found(OK, told)


def limits(group: Path, top: Path) -> Iterator[int]:
    """The limits of memory, in MB, of the cgroup that a file names and of those around it."""
    inside = re.search(r"(?m)^0::/(.*)$", content(group))
    folder = top / inside[1] if inside else top
    texts = [
        content(each / name)
        for each in (folder, *folder.parents)
        for name in ("memory.max", "memory.high")
    ]
    return (int(text) >> 20 for text in texts if text.strip().isdigit())  # else it is "max"


def content(path: Path) -> str:
    """What a file of the system says, if it is there."""
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def size(megabytes: int) -> str:
    return f"{megabytes} MB" if megabytes < 10_240 else f"{megabytes >> 10} GB"


def disk(setup: Setup) -> Found:
    place = nearest(setup.places.state)
    free = shutil.disk_usage(place).free >> 20
    told = f"{size(free)} free at {place}"
    if free < LITTLE_DISK:
        return Found(NOTE, told, "sessions and what undo needs are kept there: make room")
    return Found(OK, told)


def git(setup: Setup) -> Found:
    if not shutil.which("git"):
        told = "not found: no commits, and no undo of what commands do; undo of edits works"
        return Found(NOTE, told, INSTALL.format("git"))
    fine, told = ask_git(setup.root, "--version")
    if not fine:
        return Found(NOTE, f"it does not work: {told}", "no commits are made until it does")
    told = told.removeprefix("git version ")
    if ask_git(setup.root, "var", "GIT_AUTHOR_IDENT")[0]:
        return Found(OK, f"{told}; it knows your name and address")
    told = f"{told}; it does not know who you are, so commits are by {gitstore.NOBODY}"
    return Found(NOTE, told, "git config --global user.name NAME, and user.email ADDRESS")


def ask_git(directory: Path, *args: str) -> tuple[bool, str]:
    """Whether it succeeded, and the first line of what it said."""
    try:
        done = subprocess.run(
            ["git", *gitstore.OPTIONS, *args],
            cwd=directory,
            env=gitstore.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            start_new_session=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return False, f"git {args[0]} does not end"
    except OSError as error:
        return False, str(error)
    said = (done.stdout or done.stderr).decode(errors="replace").strip()
    return done.returncode == 0, said.partition("\n")[0]


def ripgrep(setup: Setup) -> Found:
    if shutil.which("rg"):
        return Found(OK, "found")
    return Found(NOTE, "not found: searches are done in Python, slower", INSTALL.format("ripgrep"))


def sandbox(setup: Setup) -> Found:
    there = "is" if shutil.which("bwrap") else "is not"
    told = f"none yet (bubblewrap {there} installed): commands run with your rights"
    return Found(NOTE, told, "each that you did not allow is asked about: read it")


def browser(setup: Setup) -> Found:
    there = "is" if find_spec("playwright") else "is not"
    return Found(OK, f"playwright {there} installed; nothing uses it yet")


def terminal(setup: Setup) -> Found:
    from rich.console import Console

    console, name = Console(), os.environ.get("TERM", "")
    encoding = sys.stdout.encoding.lower()
    parts = [name or "TERM is not set", os.environ.get("TERM_PROGRAM", ""), encoding]
    if console.is_terminal:
        plain = console.no_color or not console.color_system
        colours = "no colours" if plain else f"colours: {console.color_system}"
        parts += [f"{console.width} columns", colours]
    told = ", ".join(filter(None, parts))
    if not encoding.startswith("utf"):
        return Found(NOTE, told, "some characters cannot be shown: export LC_ALL=C.UTF-8")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        told = f"{told}; not at both ends, stdin and stdout"
        return Found(NOTE, told, "a chat needs a terminal for both; a task does not")
    if name in ("", "dumb", "unknown"):
        return Found(NOTE, told, "export TERM=xterm-256color, or what your terminal is")
    return Found(OK, told)


PROGRAM = (version, python, compiled, litellm, loading, crash)
MACHINE = (system, memory, disk, git, ripgrep, sandbox, browser, terminal)
