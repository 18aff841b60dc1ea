"""The command line, and build(): the only place that knows every part and puts them together."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from amas_code import __version__

FORMATS = click.Choice(("text", "json", "stream-json"))
FOLDER, MODES = click.Path(exists=True, file_okay=False), click.Choice(("ask", "auto-edit", "plan"))
RESUME = "Go on with this session; without an ID pick one."
SUBCOMMANDS = ("demo", "config", "doctor", "resume", "undo", "redo", "checkpoint")


def build(
    settings: Any, keyring: Any, root: Path, places: Any, front: Any, complete: Any = None
) -> Any:
    """A chat with all its parts. A feature is a line here and a file of its own.

    front: has show(event), ask(action) and run(chat, prompt)
    complete: a model in place of the one that the settings name
    """
    from amas_code import door, session, tools
    from amas_code.agent import Agent
    from amas_code.chat import Chat
    from amas_code.checkpoint import Checkpoints
    from amas_code.compaction import Compaction
    from amas_code.events import Notice, Output, Usage
    from amas_code.guards import Guard
    from amas_code.providers import Model
    from amas_code.redaction import Passing, flushed, hidden, unmarked
    from amas_code.shell import Shell

    listeners: list[Callable] = []

    def emit(event: Any) -> None:
        for listen in listeners:
            listen(event)

    def quietly(event: Any) -> None:
        if isinstance(event, Usage | Notice):
            emit(event)

    system = (Path(__file__).parent / "prompt.md").read_text(encoding="utf-8")
    model = Model(settings, keyring, emit)
    chat = Chat(settings, keyring, root, places, system, model)
    passing = Passing(model.redact, lambda chunk: emit(Output(chunk)))
    shell = Shell(passing, settings.max_shell_timeout)
    chat.work = work = tools.Workspace(root, shell, settings.ignore)
    chat.journal = session.Journal(session.place(root, places.state), emit)
    chat.checkpoints = Checkpoints(root, chat.journal.id, settings.checkpoint_on_edit, places.state)
    chat.guard = guard = Guard(settings, emit)
    summarize = complete or Model(settings, keyring, quietly, model.library).complete
    chat.compaction = Compaction(complete or model.complete, summarize, chat.window, emit)

    handlers = tools.handlers(work)
    carry_out = flushed(door.act(work, handlers, chat.land), passing)
    if chat.rules().root:  # in the home directory a snapshot would be of everything
        carry_out = door.covered(carry_out, chat.checkpoints, lambda why: emit(Notice(why)))
    chat.do = hidden(carry_out, model.redact)
    carry_out = door.asked(carry_out, chat.rules, front.ask)
    carry_out = door.proposed(unmarked(carry_out), handlers, emit)
    carry_out = hidden(guard.watch_calls(carry_out), model.redact)
    asking = guard.watch_model(chat.compaction.complete)
    chat.agent = Agent(asking, handlers, carry_out, emit, [])
    chat.compaction.replace = chat.agent.replace
    front.chat = chat
    listeners += [chat.journal.listen, guard.listen, chat.compaction.listen, chat.note, front.show]
    return chat


@click.command(context_settings={"auto_envvar_prefix": "AMAS"})
@click.argument("words", nargs=-1, metavar="[TASK]")
@click.option("-p", "--print", is_flag=True, help="Only the answer on stdout.")
@click.option("--output-format", type=FORMATS, default="text", help="For programs.")
@click.option("-m", "--model", help="Such as anthropic/claude-sonnet-5, ollama_chat/qwen3.")
@click.option("-c", "--continue", is_flag=True, help="Go on with the last session.")
@click.option("-r", "--resume", metavar="[ID]", flag_value="?", is_flag=False, help=RESUME)
@click.option("-C", "directory", metavar="DIR", type=FOLDER, help="Work there.")
@click.option("--mode", type=MODES, allow_from_autoenv=False, help="What happens unasked.")
@click.option("--yes", is_flag=True, help="The same as --mode auto-edit.")
@click.option("--allow", multiple=True, allow_from_autoenv=False, help="This command may run.")
@click.option("--trust", is_flag=True, help="The project's own settings may count.")
@click.option("--max-turns", type=click.IntRange(0), help="Most requests to the model in a turn.")
@click.option("--max-cost", type=click.FloatRange(0), metavar="USD", help="Most dollars in all.")
@click.option("--max-time", type=click.FloatRange(0), metavar="S", help="Most seconds in a turn.")
@click.version_option(__version__, prog_name="amas", allow_from_autoenv=False)
@click.pass_obj
def task(call: list[str], words: tuple[str, ...], **options: Any) -> None:
    """A coding agent for the terminal. Without TASK it is a chat.

    \b
    Commands: demo, config, doctor, resume [ID], undo [N], redo [N],
    checkpoint [list|restore ID]. A first word that is one of these, with
    what it takes, is the command; `amas -- undo` is a task. Each option is
    also read from the environment, such as AMAS_MAX_TURNS.
    """
    from amas_code import startup, subcommands

    startup.begin(options["directory"])
    if call:
        return subcommands.run(call, build, options)
    sys.exit(startup.start(build, " ".join(words), options))


def parsed(args: list[str], **how: bool) -> dict:
    """The options and words as far as they can be understood."""
    return task.make_context("amas", [*args], None, resilient_parsing=True, **how).params


def subcommand(args: list[str]) -> list[str]:
    """The words from the first on, if they parse as a subcommand; anything else is a task."""
    words = list(parsed(args, allow_interspersed_args=False)["words"] or ())
    if not words or words[0] not in SUBCOMMANDS or "--" in args[: len(args) - len(words)]:
        return []
    from amas_code import subcommands

    return words if subcommands.parses(*words) else []


def main() -> None:
    args = sys.argv[1:]
    if sys.platform == "win32":
        sys.exit("Amas runs on Linux and macOS; on Windows use it in WSL.")
    try:
        call = subcommand(args)
        own = args[: len(args) - len(call)]
        sys.exit(task.main(own, "amas", standalone_mode=False, obj=call))
    except (Exception, KeyboardInterrupt) as error:
        from amas_code import startup

        wanted = parsed(args, ignore_unknown_options=True)["output_format"]
        sys.exit(startup.failed(error, wanted or "text"))
