"""The commands beside the chat: demo, config, resume, undo, redo, checkpoint."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from amas_code import commands, config, demo, keys, yamlfile
from amas_code.checkpoint import Checkpoints, Op
from amas_code.events import Stopped, ToolError
from amas_code.places import ours, project_root
from amas_code.providers import Model
from amas_code.startup import start, tell
from amas_code.visible import visible


@click.command("demo")
@click.pass_obj
def show(build: Any) -> None:
    """See the whole loop work, with a scripted model: no key, no network."""
    sys.exit(demo.run(build))


@click.command()
@click.argument("id", required=False)
@click.pass_obj
def resume(build: Any, id: str | None) -> None:
    """Go on with an earlier session; pick one, or name it by the beginning of its ID."""
    sys.exit(start(build, "", {}, {"resume": id or "?"}))


@click.command()
@click.argument("n", type=click.IntRange(1), default=1)
def undo(n: int) -> None:
    """Take back the last edits that Amas made in this project."""
    report("Undone", here().undo(n))


@click.command()
@click.argument("n", type=click.IntRange(1), default=1)
def redo(n: int) -> None:
    """Make undone edits again."""
    report("Done again", here().redo(n))


@click.command()
@click.argument("what", type=click.Choice(["list", "restore"]), default="list")
@click.argument("id", required=False)
def checkpoint(what: str, id: str | None) -> None:
    """List the checkpoints of this project, or go back to one."""
    if what == "list" and not id:
        click.echo(visible(commands.checkpoints(here())))
    elif what == "restore" and id:
        report("Undone", here().restore(id))
    else:
        raise click.UsageError("It is `list`, or `restore` with an ID or a name.")


def here() -> Checkpoints:
    """The checkpoints of this project, whoever made them, put in order after a crash."""
    checkpoints = Checkpoints(project_root(Path.cwd()), state=ours().state)
    tell(*checkpoints.recover())
    return checkpoints


def report(verb: str, done: Sequence[Op]) -> None:
    for op in done:
        when = time.strftime("%d %b %H:%M", time.localtime(op.time))
        click.echo(visible(f"{commands.told(verb, op)} ({when})"))
    if not done:
        click.echo("There is nothing to bring back.")


@click.command("config")
def wizard() -> None:
    """Pick a provider, paste a key, try it; it is kept in a file that only you can read."""
    config_files = ours().config
    rows = [f"{number:>3}  {p.prefix:<11} {p.site}" for number, p in enumerate(keys.PROVIDERS, 1)]
    tell("Which provider? For a local Ollama no key is needed: amas -m ollama_chat/NAME", *rows)
    chosen = click.prompt("Number", type=click.IntRange(1, len(rows)), err=True)
    provider = keys.PROVIDERS[chosen - 1]
    key = click.prompt(f"Key from {provider.site} (not shown)", hide_input=True, err=True).strip()
    name = click.prompt("Model", default=f"{provider.prefix}/{provider.model}", err=True)
    if why := failure(name, provider.variables[0], key):
        tell(f"It did not work: {why}")
        click.confirm("Keep it all the same?", default=False, abort=True, err=True)
    yamlfile.remember(config_files / "keys.yaml", provider.variables[0], key)
    yamlfile.remember(config_files / "config.yaml", "model", name)
    tell(f"Kept: the key in {config_files / 'keys.yaml'} (for you alone), the model beside it.")


def failure(name: str, variable: str, key: str) -> str:
    """Ask the model for a word; why that failed, or ""."""
    settings, keyring, _ = config.load(Path("/nowhere"), {"model": name}, lambda what: False)
    keyring.by_name[variable] = key
    tell("Trying it …")
    try:
        hello = [{"role": "user", "content": "Say hello."}]
        Model(settings, keyring, lambda event: None).complete(hello, [])
    except Stopped as error:
        return str(error)
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
        COMMANDS[name].make_context(name, list(args))
    except click.UsageError:
        return False
    except click.exceptions.Exit:  # --help, and it was shown
        sys.exit()
    return True


def run(name: str, args: list[str], build: Any) -> None:
    """Run one of them, a refusal of its being one line."""
    try:
        COMMANDS[name].main(args, prog_name=f"amas {name}", obj=build)
    except ToolError as error:
        sys.exit(f"amas: {visible(str(error))}")
