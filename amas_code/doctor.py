"""`amas doctor`: whether this machine and the user's set-up are fit for Amas, a line a check.

No key is shown, only the names of the variables that hold them.
"""

import contextlib
import json
import os
import re
import shutil
import textwrap
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from amas_code import __version__, machine, session
from amas_code.catalog import LOCAL
from amas_code.keys import PROVIDERS, provider_name
from amas_code.machine import NOTE, OK, PROBLEM, Found, Setup, ask_git, on_this_machine, writable
from amas_code.places import home_directory, is_project
from amas_code.redaction import Redactor
from amas_code.trust import FREE, trusted
from amas_code.visible import visible
from amas_code.yamlfile import ConfigError, read

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class Check(NamedTuple):
    """A line of the report."""

    group: str
    name: str
    state: str
    text: str
    hint: str


def examine(options: dict) -> list[Check]:
    """All checks, one after the other; none can break the others.

    options: settings given on the command line
    """
    setup = Setup(options)
    rows = [(group, check) for group, checks in CHECKS.items() for check in checks]
    found = [(group, check.__name__, looked(check, setup)) for group, check in rows]
    tidy = tidier(setup)
    return [
        Check(group, name, each.state, tidy(each.text), tidy(each.hint))
        for group, name, each in found
    ]


def looked(check: Callable[[Setup], Found], setup: Setup) -> Found:
    try:
        return check(setup)
    except ConfigError:
        return Found(NOTE, "not known while the settings are wrong")
    except Exception as error:  # whatever it is, the other checks are wanted
        told = f"this could not be checked: {type(error).__name__}: {error}"
        return Found(PROBLEM, told, "if you see no reason for that, it is worth a report")


def tidier(setup: Setup) -> Callable[[str], str]:
    """Makes a text fit for a report: no keys, no control characters, ~ for the home directory."""
    keys = [value for name, value in os.environ.items() if name.endswith("_API_KEY")]
    with contextlib.suppress(Exception):
        settings, keyring, _ = setup.loaded
        keys += [settings.api_key, *keyring.by_name.values()]
    redactor, home = Redactor(lambda: keys), re.escape(str(home_directory()))
    own = re.compile(rf"(?<![\w'\"/.]){home}(?=/|\s|$|[,;:)])")

    def tidy(text: str) -> str:
        text = visible(redactor(text), "")
        return text if home == "/" else own.sub("~", text)

    return tidy


# --- files ------------------------------------------------------------------------------------


def project(setup: Setup) -> Found:
    root = setup.root
    if not is_project(root):
        told = f"none: {root} is no project, so every edit and command asks; no snapshots"
        return Found(NOTE, told, "cd to where you work")
    if not (root / ".git").exists():
        told = f"{root}, not under git: no commits; undo works from a private log"
        return Found(NOTE, told, "git init, if you want commits")
    fine, told = ask_git(root, "rev-parse", "--git-dir")
    if not fine and shutil.which("git"):
        told = told.removeprefix("fatal: ")
        return Found(NOTE, f"{root}: git refuses it: {told}", "git status says how to mend that")
    return Found(OK, f"{root}, under git")


def sessions(setup: Setup) -> Found:
    root, state = setup.root, setup.places.state
    place = session.place(root, state)
    if not writable(place):
        told = f"cannot be kept: neither in {root} nor in {state}"
        return Found(NOTE, told, "without them amas -c cannot go on with a chat")
    if place.is_relative_to(root / ".amas") or not is_project(root):
        return Found(OK, f"kept in {place}")
    return Found(NOTE, f"kept in {place}, as {root / '.amas'} cannot be written or is a link")


def settings(setup: Setup) -> Found:
    """Which files and variables count, and whether they are right."""
    try:
        warnings = setup.loaded[2]
    except ConfigError as error:
        hidden = re.sub(r"(['\"])(?!<)(?:(?!\1).){8,}\1", "'…'", str(error))  # it may be a key
        return Found(PROBLEM, hidden, "put that right: amas does not start until it is")
    own = [setup.places.config / name for name in ("config.yaml", "keys.yaml")]
    files = [str(path) for path in own if path.exists()]
    theirs = setup.root / ".amas/config.yaml"
    if theirs.exists():
        files.append(f"{theirs} ({trust_in(theirs, setup.places.state)})")
    given = [name for name in sorted(os.environ) if name.startswith("AMAS_")]
    told = ", ".join([*files, *given]) or "no file, no AMAS_ variable: the defaults"
    return Found(NOTE, told, "; ".join(warnings)) if warnings else Found(OK, told)


def trust_in(path: Path, state: Path) -> str:
    if set(read(path)) <= FREE:
        return "needs no trust"
    return "trusted" if trusted(path, state, lambda what: False, {}, []) else "not trusted"


def config(setup: Setup) -> Found:
    return place("XDG_CONFIG_HOME", setup.places.config, "no key can be kept")


def state(setup: Setup) -> Found:
    """Without it edits can be logged, and so made, in a git directory alone."""
    found = place("XDG_STATE_HOME", setup.places.state, "no history, and undo only under git")
    log = setup.root / ".git"
    if found.state == OK or (writable(setup.places.cache) and os.access(log, os.W_OK)):
        return found
    return found._replace(state=PROBLEM)


def cache(setup: Setup) -> Found:
    return place("XDG_CACHE_HOME", setup.places.cache, "each start takes seconds longer")


def place(variable: str, path: Path, otherwise: str) -> Found:
    if writable(path):
        return Found(OK, str(path))
    hint = f"see to its rights, or: export {variable}=DIR, where you may write"
    return Found(NOTE, f"{path} cannot be written: {otherwise}", hint)


# --- the model --------------------------------------------------------------------------------


def model(setup: Setup) -> Found:
    keyring, (name, why) = setup.loaded[1], setup.model
    if not name and not on_this_machine(setup.ollama[0]):
        told = "whatever Ollama on that other machine has, if it has one"
        return Found(NOTE, told, "name one: amas -m ollama_chat/NAME")
    if not name:
        told = "none to ask: there is no key, and no Ollama with a model"
        return Found(PROBLEM, told, "amas config, or start Ollama; amas demo needs neither")
    keyring.bind(name)
    if not keyring.serves(name):
        told = f"{name} ({why}): there is no key for it"
        return Found(PROBLEM, told, f"amas config, or: export {variables(name)[0]}=KEY")
    if provider_name(name) in LOCAL and (why_not := absent(setup, name)):
        return why_not
    others = filter(None, map(str.strip, setup.loaded[0].fallback_model.split(",")))
    if keyless := [other for other in others if not keyring.serves(other)]:
        return Found(NOTE, f"{name} ({why})", f"no key for fallback {', '.join(keyless)}")
    return Found(OK, f"{name} ({why})")


def absent(setup: Setup, name: str) -> Found | None:
    """Why a model of Ollama on this machine cannot answer."""
    (base, there), bare = setup.ollama, name.partition("/")[2]
    full = f"ollama_chat/{bare}" if ":" in bare else f"ollama_chat/{bare}:latest"
    if not on_this_machine(base) or full in there or f"ollama_chat/{bare}" in there:
        return None
    if there:
        return Found(PROBLEM, f"{name}: Ollama does not have it", f"ollama pull {bare}")
    told = f"{name}: no Ollama with a model answers at {base}"
    return Found(PROBLEM, told, f"ollama serve, and: ollama pull {bare}")


def keys(setup: Setup) -> Found:
    """The names of the variables that hold keys, and where each was found."""
    settings, keyring, _ = setup.loaded
    known = [name for each in PROVIDERS for name in each.variables] + variables(setup.model[0])
    held = [name for name in dict.fromkeys(known) if name in keyring.by_name]
    told = [f"{name} ({'environment' if os.environ.get(name) else 'keys.yaml'})" for name in held]
    if settings.api_key:
        own = bool(os.environ.get("AMAS_API_KEY"))
        told.append("AMAS_API_KEY (environment)" if own else "api_key (config.yaml)")
    if odd := [name for name in held if unlikely(keyring.by_name[name])]:
        hint = f"{', '.join(odd)}: no key holds such blanks, quotes or letters; set it again"
        return Found(NOTE, ", ".join(told), hint)
    return Found(OK, ", ".join(told) or "none")


def variables(model: str) -> list[str]:
    """Those that may hold the key for a model."""
    name = provider_name(model)
    known = [variable for each in PROVIDERS if each.prefix == name for variable in each.variables]
    return known or [f"{name.upper().replace('-', '_')}_API_KEY"]


def unlikely(key: str) -> bool:
    return not key.isascii() or bool(re.search(r"[\s'\"]", key))


def ollama(setup: Setup) -> Found:
    base, models = setup.ollama
    if not on_this_machine(base):
        return Found(OK, f"at {base}, another machine, which was not asked")
    if models:
        return Found(OK, f"answers at {base}, models: {len(models)}")
    return Found(OK, f"none answers with a model at {base}")


def network(setup: Setup) -> Found:
    both = [form for name in PROXIES for form in (name, name.lower())]
    told = [name for name in (*both, *AUTHORITIES) if os.environ.get(name)]
    gone = [name for name in AUTHORITIES if not os.path.exists(os.environ.get(name) or "/")]
    if gone:
        hint = f"{', '.join(gone)}: no such file; set it right, or unset it"
        return Found(NOTE, ", ".join(told), hint)
    return Found(OK, ", ".join(told) or "no variables for proxies or certificate authorities")


CHECKS: dict[str, tuple[Callable[[Setup], Found], ...]] = {
    "Amas": machine.PROGRAM,
    "This machine": machine.MACHINE,
    "Files": (project, sessions, settings, config, state, cache),
    "Model": (model, keys, ollama, network),
}


# --- the report -------------------------------------------------------------------------------

STYLES = {OK: "green", NOTE: "yellow", PROBLEM: "bold red"}
COLUMN = 20  # where texts begin


def page(checks: list[Check], width: int) -> Any:
    """The report for a terminal of so many columns."""
    from rich.text import Text

    report = Text()
    for group, of_group in groupby(checks, lambda check: check.group):
        report.append(f"{group}\n", "bold")
        for _, name, state, text, hint in of_group:
            report.append("  ").append(f"{state:<8}", STYLES[state])
            report.append(f"{name:<9} {wrapped(text, width)}\n")
            if hint:
                report.append(f"{'':{COLUMN}}{wrapped(f'-> {hint}', width)}\n")
    return report.append(verdict(checks))


def wrapped(text: str, width: int) -> str:
    """Words go on in the same column; one that is too long, such as a path, stays whole."""
    room = max(width - COLUMN, 20)
    rows = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return f"\n{'':{COLUMN}}".join(rows)


def verdict(checks: list[Check]) -> str:
    problems, notes = (sum(c.state == state for c in checks) for state in (PROBLEM, NOTE))
    of_notes = f"{notes} note{'s' * (notes != 1)}"
    if problems:
        return f"{problems} problem{'s' * (problems != 1)}, {of_notes}"
    return f"No problem, {of_notes}"


def sound(checks: list[Check]) -> bool:
    return all(check.state != PROBLEM for check in checks)


def as_json(checks: list[Check]) -> str:
    rows = [check._asdict() for check in checks]
    return json.dumps({"version": __version__, "ok": sound(checks), "checks": rows})
