"""The commands beside the chat: demo, config, resume, undo, redo, checkpoint."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from amas_code import commands, config, demo, keys, yamlfile
from amas_code.answer import Answer
from amas_code.checkpoint import Checkpoints
from amas_code.oplog import Op
from amas_code.places import ours, project_root
from amas_code.providers import Model
from amas_code.startup import CannotStart, start, tell
from amas_code.trouble import explain
from amas_code.visible import visible

PATIENCE = 20.0  # seconds for the trial request of the wizard


class Given(NamedTuple):
    """What a subcommand is given beside its own words."""

    build: Callable
    options: dict  # all of the command line


@click.command("demo")
@click.pass_obj
def show(given: Given) -> None:
    """See the whole loop work, with a scripted model: no key, no network."""
    sys.exit(demo.run(given.build))


@click.command()
@click.argument("id", required=False)
@click.pass_obj
def resume(given: Given, id: str | None) -> None:
    """Go on with an earlier session; pick one, or name it by the beginning of its ID."""
    sys.exit(start(given.build, "", given.options | {"resume": id or "?"}))


@click.command()
@click.argument("n", type=click.IntRange(1), default=1)
def undo(n: int) -> None:
    """Take back the last edits that Amas made in this project."""
    report(here().undo(n), "There is nothing to undo.")


@click.command()
@click.argument("n", type=click.IntRange(1), default=1)
def redo(n: int) -> None:
    """Make undone edits again."""
    report(here().redo(n), "There is nothing to redo.")


@click.command()
@click.argument("what", type=click.Choice(["list", "restore"]), default="list")
@click.argument("id", required=False)
def checkpoint(what: str, id: str | None) -> None:
    """List the checkpoints of this project, or go back to one."""
    if what == "list" and not id:
        click.echo(visible(commands.checkpoints(here())))
    elif what == "restore" and id:
        report(here().restore(id), "Nothing has changed since.")
    else:
        raise click.UsageError("It is `list`, or `restore` with an ID or a name.")


def here() -> Checkpoints:
    """The checkpoints of this project, whoever made them, put in order after a crash."""
    checkpoints = Checkpoints(project_root(Path.cwd()), state=ours().state)
    tell(*checkpoints.recover())
    return checkpoints


def report(done: Sequence[Op], nothing: str) -> None:
    for op in done:
        when = time.strftime("%d %b %H:%M", time.localtime(op.time))
        click.echo(visible(f"{commands.told(op)} ({when})"))
    if not done:
        click.echo(nothing)


@click.command("config")
def wizard() -> None:
    """Pick a provider, paste a key, try it; it is kept in a file that only you can read."""
    if not sys.stdin.isatty():
        raise CannotStart("amas config asks on a terminal; without one set ANTHROPIC_API_KEY=…")
    config_files = ours().config
    rows = [f"{number:>3}  {p.prefix:<11} {p.site}" for number, p in enumerate(keys.PROVIDERS, 1)]
    tell("Which provider? For a local Ollama no key is needed: amas -m ollama_chat/NAME", *rows)
    chosen = click.prompt("Number", type=click.IntRange(1, len(rows)), err=True)
    provider = keys.PROVIDERS[chosen - 1]
    key = click.prompt(f"Key from {provider.site} (not shown)", hide_input=True, err=True).strip()
    name = click.prompt("Model", default=f"{provider.prefix}/{provider.model}", err=True)
    if why := failure(name, provider.variables[0], key):
        tell(f"It did not work: {why}")
        if not click.confirm("Keep it all the same?", default=False, err=True):
            raise CannotStart("Nothing was kept.", 1)
    yamlfile.remember(config_files / "keys.yaml", provider.variables[0], key)
    yamlfile.remember(config_files / "config.yaml", "model", name)
    tell(f"Kept: the key in {config_files / 'keys.yaml'} (for you alone), the model beside it.")
    settings, keyring, _ = config.load(config_files, {}, lambda what: False)
    if (settings.model, keyring.key_for(name)) != (name, key):
        tell("But another model or key comes first, as the environment or the settings have it.")


def failure(name: str, variable: str, key: str) -> str:
    """Ask the model for a word, once; why that failed, or ""."""
    settings, keyring, _ = config.load(ours().config, {}, lambda what: False)
    keyring.by_name[variable] = key
    keyring.given.pop("api_key", None)
    settings.request_timeout = PATIENCE
    model = Model(settings, keyring, lambda event: None)
    tell("Trying it …")
    model.answer = Answer(False, model.emit)
    try:
        model.ask(name, [{"role": "user", "content": "Say hello."}], [])
    except Exception as error:  # the library raises all kinds
        return explain(model.library(), name, error).text
    return ""


COMMANDS: dict[str, click.Command] = {
    "demo": show,
    "config": wizard,
    "resume": resume,
    "undo": undo,
    "redo": redo,
    "checkpoint": checkpoint,
}


def parses(name: str, *args: str) -> bool:
    """Whether the words are a call of that command, and not the beginning of a task."""
    try:
        COMMANDS[name].make_context(f"amas {name}", list(args))
    except click.UsageError:
        return False
    except click.exceptions.Exit:  # --help, and it was shown
        sys.exit()
    return True


def run(call: list[str], build: Callable, options: dict) -> None:
    """Run one of them; what goes wrong is for `amas` itself to say."""
    name, *args = call
    given = Given(build, options)
    COMMANDS[name].main(args, prog_name=f"amas {name}", obj=given, standalone_mode=False)
