"""What is asked and told before a chat begins, and by the subcommands that need no model."""

import contextlib
import os
import select
import stat
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from amas_code import __version__, commands, config, keys, pipes, session, signals
from amas_code.catalog import ollama_models
from amas_code.chat import Chat
from amas_code.config import Settings
from amas_code.events import ToolError
from amas_code.keys import Keyring
from amas_code.places import ours, project_root
from amas_code.questions import choose
from amas_code.redaction import Redactor
from amas_code.visible import visible

PATIENCE = 3.0  # seconds for the first byte of a pipe that may never speak
MOST_PIPED = 4_000_000  # bytes; more than that no model takes


class CannotStart(Exception):
    """What the user should do first. `code` is the exit status."""

    def __init__(self, why: str, code: int = 2):
        super().__init__(why)
        self.code = code


def begin(directory: str | None) -> None:
    """Make sure of the streams and the directory that we work with."""
    sound_streams()
    try:
        os.chdir(directory or os.getcwd())
    except FileNotFoundError as error:
        raise CannotStart("amas: the working directory is gone; cd to another one") from error


def sound_streams() -> None:
    """A closed standard stream becomes /dev/null; no character can break the others."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the lowest free number is its own, if done in this order
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def tell(*lines: str) -> None:
    for line in lines:
        click.echo(visible(line), err=True)


def console(stderr: bool = False) -> Any:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, emoji=False)


def piped() -> str:
    """What is piped in, to join the prompt."""
    kind = os.fstat(sys.stdin.fileno()).st_mode
    if sys.stdin.isatty() or stat.S_ISCHR(kind) or stat.S_ISDIR(kind):  # such as /dev/null
        return ""
    if not select.select([sys.stdin], [], [], PATIENCE)[0]:
        tell("Nothing came through standard input, so it is left alone (</dev/null: no waiting).")
        return ""
    data = sys.stdin.buffer.read(MOST_PIPED + 1)
    if len(data) > MOST_PIPED:
        raise CannotStart("amas: too much on standard input; name a file that the model may read")
    return data.decode("utf-8", "replace").strip()


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
    """The first that a key is at hand for, else what a local Ollama has."""
    if name := keyring.first_model():
        return name
    local = ollama_models(keyring)
    if not local or one_shot or len(local) == 1:
        return local[0] if local else ""
    tell("No key is set, but Ollama answers on this machine:")
    tell(*(f"{number:>3}  {name}" for number, name in enumerate(local, 1)))
    return local[
        click.prompt("Number", type=click.IntRange(1, len(local)), default=1, err=True) - 1
    ]


def check_key(settings: Settings, keyring: Keyring) -> None:
    """Five lines on how to get started, unless a request can be tried."""
    if settings.model and keyring.serves(settings.model):
        return
    what = (
        f"There is no key for {settings.model}."
        if settings.model
        else "There is no model to ask yet."
    )
    raise CannotStart(
        f"""{what} Choose one way:
  free key   make one at {keys.PROVIDERS[2].site} or {keys.PROVIDERS[3].site}, then: amas config
  your key   amas config, or put it into the environment: export ANTHROPIC_API_KEY=…
  local      install Ollama, then: ollama pull qwen3 && amas -m ollama_chat/qwen3
  just look  amas demo: no key, no network""",
        3,
    )


def resumed(chat: Chat, options: dict, one_shot: bool) -> list[str]:
    """Take up the session that the options name; "?" asks which."""
    if options["resume"] is None and not options["continue"]:
        return []
    newest = next(session.recent(chat.journal.directory), None)
    if newest is None:
        raise CannotStart("amas: there is no earlier session in this project")
    wanted = newest.id if options["resume"] is None else options["resume"].strip("?")
    if one_shot and not wanted:
        raise CannotStart("amas: which session? Name it by the beginning of its ID")
    try:
        return [commands.resume(chat, wanted)]
    except (ToolError, OSError) as error:
        raise CannotStart(f"amas: {error}") from error


def input_line(chat: Chat) -> Any:
    from amas_code.inputline import InputLine

    return InputLine(
        history=history(chat.places.state),
        commands={name: command.about for name, command in commands.COMMANDS.items()},
        files=chat.work.files,
        status=chat.status,
        typed=chat.model.library.typing,
        next_mode=chat.next_mode,
        redact=chat.model.redact,
    )


def history(state: Path) -> Path:
    """Where prompts are kept; nowhere if our directory cannot be written."""
    with contextlib.suppress(OSError):
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(state, os.W_OK):
            return state / "history"
    return Path(os.devnull)


def start(build: Callable, words: str, options: dict) -> int:
    """Settings, model, front, chat; then a conversation or one task. Returns the exit status.

    options: all of the command line. Raises CannotStart, ConfigError or UsageError with what the
    user should do first.
    """
    signals.terminate_cleanly()
    root, places = project_root(Path.cwd()), ours()
    task, attached = prompt(words)
    one_shot = bool(task) or options["print"] or options["output_format"] != "text"
    if not task and (one_shot or not (sys.stdin.isatty() and sys.stdout.isatty())):
        raise click.UsageError(
            "There is no task: give one, or pipe it in. A chat needs a terminal."
        )
    given = {name: options[name] for name in config.NAMES if name in options}
    given["mode"] = given["mode"] or ("auto-edit" if options["yes"] else None)
    settings, keyring, warnings = config.load(root, given, trusting(options["trust"]))
    tell(*warnings)
    settings.model = settings.model or choose_model(keyring, one_shot)
    check_key(settings, keyring)
    keyring.bind(settings.model)
    front = the_front(options)
    chat = build(settings, keyring, root, places, front)
    chat.attached += attached
    chat.typed = bool(words) or not one_shot
    return carry_on(chat, front, task if one_shot else None, options)


def prompt(words: str) -> tuple[str, list[str]]:
    """The task, and what goes with it: what is piped in, unless that is the task itself."""
    text = words.encode("utf-8", "surrogateescape").decode("utf-8", "replace").strip()
    data = piped()
    return (text, [data] if data else []) if text else (data, [])


def the_front(options: dict) -> Any:
    from amas_code import ui

    if options["output_format"] != "text":
        return pipes.Json(options["output_format"] == "stream-json")
    return pipes.Lines(console(stderr=True)) if options["print"] else ui.Terminal(console())


def carry_on(chat: Any, front: Any, task: str | None, options: dict) -> int:
    """Take up an earlier session if asked to; run one task, or talk until the user leaves."""
    try:
        if task is None:
            chat.choose = partial(choose, front)
        tell(*chat.checkpoints.recover(), *resumed(chat, options, task is not None))
        if task is not None:
            chat.model.library.begin()
            return front.run(chat, task)
        tell(f"Amas {__version__} · {chat.settings.model} · /help", "")
        return front.converse(chat, input_line(chat))
    finally:
        chat.work.shell.close()
        if task is None and chat.agent.messages:
            tell(f"Go on with: amas -r {chat.journal.id}")


def failed(error: BaseException, output_format: str) -> int:
    """Say in a line why it ended, as JSON too if that was asked for. Returns the exit status."""
    sound_streams()
    why, code = explained(error)
    with contextlib.suppress(OSError):
        tell(*([why] if why else []))
    with contextlib.suppress(OSError):
        if output_format != "text":
            pipes.write(pipes.result(why, code))
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # nobody reads on, so the flush at exit would fail, too
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def explained(error: BaseException) -> tuple[str, int]:
    """What went wrong, for the user, and the exit status."""
    match error:
        case CannotStart():
            return str(error), error.code
        case click.UsageError(ctx=context):
            name = context.command_path if context else "amas"
            return f"{name}: {error.format_message()} ({name} --help tells more.)", 2
        case config.ConfigError():
            return f"amas: {error}", 2
        case KeyboardInterrupt() | click.Abort() | EOFError():
            return "Stopped.", 130
        case ToolError():
            return f"amas: {error}", 1
        case BrokenPipeError():
            return "", 1
        case OSError(strerror=str(reason)):
            return f"amas: {reason}" + (f": {error.filename}" if error.filename else ""), 1
    return f"amas: {type(error).__name__}: {error}. This is a mistake in amas{noted(error)}.", 1


def noted(error: BaseException) -> str:
    """Keep the traceback for a report; the words on where it is."""
    path = ours().state / "traceback.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = "".join(traceback.format_exception(error))
        path.write_text(Redactor(tuple)(text), encoding="utf-8")
    except OSError:
        return ""
    return f"; please report it with {path}"
