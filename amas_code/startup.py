"""What is asked and told before a chat begins, and by the subcommands that need no model."""

import select
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from amas_code import __version__, commands, config, keys, signals
from amas_code.catalog import ollama_models
from amas_code.commands import Chat
from amas_code.config import Settings
from amas_code.events import ToolError
from amas_code.keys import Keyring
from amas_code.places import ours, project_root
from amas_code.visible import visible

PATIENCE = 3.0  # seconds for the first byte of a pipe that may never speak


class NotFound(Exception):
    """The session asked for is not there."""


def tell(*lines: str) -> None:
    for line in lines:
        click.echo(visible(line), err=True)


def console(stderr: bool = False) -> Any:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, emoji=False)


def piped() -> str:
    """What is piped in, to join the prompt."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    kind = Path(f"/dev/fd/{sys.stdin.fileno()}").stat().st_mode
    if stat.S_ISCHR(kind):  # /dev/null
        return ""
    if not select.select([sys.stdin], [], [], PATIENCE)[0]:
        tell("Nothing came through the pipe on standard input, so it is left alone.")
        return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace").strip()


def trusting(flag: bool) -> Callable[[str], bool]:
    """The question whether a project's own settings may count."""

    def trust(what: str) -> bool:
        if flag or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return flag
        tell(what)
        return click.confirm(
            "Trust this project's settings? They count until they change", err=True
        )

    return trust


def choose_model(keyring: Keyring, one_shot: bool) -> str:
    """The first provider that a key is at hand for, else what a local Ollama has."""
    for provider in keys.PROVIDERS:
        name = f"{provider.prefix}/{provider.model}"
        if keyring.key_for(name):
            return name
    local = ollama_models(keyring)
    if not local or one_shot or len(local) == 1:
        return local[0] if local else ""
    tell("No key is set, but Ollama answers on this machine:")
    tell(*(f"{number:>3}  {name}" for number, name in enumerate(local, 1)))
    return local[
        click.prompt("Number", type=click.IntRange(1, len(local)), default=1, err=True) - 1
    ]


def no_key(settings: Settings, keyring: Keyring) -> str:
    """Five lines on how to get started, or "" where a request can be tried."""
    if settings.model and keyring.serves(settings.model):
        return ""
    what = (
        f"There is no key for {settings.model}."
        if settings.model
        else "There is no model to ask yet."
    )
    return f"""{what} Choose one way:
  free key   make one at {keys.PROVIDERS[2].site} or {keys.PROVIDERS[3].site}, then: amas config
  your key   amas config, or put it into the environment: export ANTHROPIC_API_KEY=…
  local      install Ollama, then: ollama pull qwen3 && amas -m ollama_chat/qwen3
  just look  amas demo: no key, no network"""


def resumed(chat: Chat, flags: dict) -> list[str]:
    """Take up the session that the options name. "?" asks which."""
    if not (flags["resume"] or flags["continue"]):
        return []
    earlier = chat.sessions()
    if not earlier:
        raise NotFound("there is no earlier session in this project")
    wanted = flags["resume"] or earlier[0].id
    try:
        return [commands.resume(chat, wanted.replace("?", ""))]
    except ToolError as error:
        raise NotFound(str(error)) from error


def input_line(chat: Chat) -> Any:
    from amas_code.inputline import InputLine

    return InputLine(
        history=chat.places.state / "history",
        commands={name: command.about for name, command in commands.COMMANDS.items()},
        files=chat.work.files,
        status=chat.status,
        typed=chat.model.preload,
        next_mode=chat.next_mode,
    )


def start(build: Callable, task: str, options: dict, flags: dict) -> int:
    """Settings, model, front, chat; then a conversation or one task. Returns the exit status.

    options: settings given on the command line; flags: the other options, absent ones being off
    """
    given = {
        "print": False,
        "output_format": "text",
        "continue": False,
        "resume": "",
        "trust": False,
    }
    flags = given | flags
    signals.terminate_cleanly()
    root, places = project_root(Path.cwd()), ours()
    task = "\n\n".join(filter(None, [task, piped()]))
    one_shot = bool(task) or flags["print"] or flags["output_format"] != "text"
    if not task and (one_shot or not sys.stdin.isatty()):
        raise click.UsageError(
            "There is no task: give one, or pipe it in. A chat needs a terminal."
        )
    try:
        settings, keyring, warnings = config.load(root, options, trusting(flags["trust"]))
        tell(*warnings)
        settings.model = settings.model or choose_model(keyring, one_shot)
    except config.ConfigError as error:
        tell(f"amas: {error}")
        return 2
    if why := no_key(settings, keyring):
        tell(why)
        return 3
    front = the_front(flags)
    chat = build(settings, keyring, root, places, front)
    if one_shot:
        chat.model.preload()
    return carry_on(chat, front, task if one_shot else None, flags)


def the_front(flags: dict) -> Any:
    from amas_code import pipes, ui

    if flags["output_format"] != "text":
        return pipes.Json(flags["output_format"] == "stream-json")
    return pipes.Lines(console(stderr=True)) if flags["print"] else ui.Terminal(console())


def carry_on(chat: Any, front: Any, task: str | None, flags: dict) -> int:
    """Take up an earlier session if asked to; run one task, or talk until the user leaves."""
    try:
        tell(*chat.checkpoints.recover(), *resumed(chat, flags))
        if task is not None:
            return front.run(chat, task)
        tell(f"Amas {__version__} · {chat.settings.model} · /help", "")
        return front.converse(chat, input_line(chat))
    except NotFound as error:
        tell(f"amas: {error}")
        return 2
    finally:
        chat.work.shell.close()
        if task is None and chat.agent.messages:
            tell(f"Go on with: amas -r {chat.journal.id}")
