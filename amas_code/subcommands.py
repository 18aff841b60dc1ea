"""The commands beside the chat: demo, config, doctor, resume, undo, redo, checkpoint."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click

from amas_code import commands, config, demo, doctor, keys, yamlfile
from amas_code.answer import Answer
from amas_code.checkpoint import Checkpoints
from amas_code.places import ours, project_root
from amas_code.providers import Model
from amas_code.replay import Plan
from amas_code.startup import CannotStart, console, start, tell
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


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@click.pass_obj
def check_up(given: Given, as_json: bool) -> None:
    """Tell whether this machine and your set-up are fit for Amas; what to do where they are not."""
    options = {name: given.options[name] for name in config.NAMES if name in given.options}
    checks = doctor.examine(options)
    if as_json:
        click.echo(doctor.as_json(checks))
    else:
        terminal = console()
        width = terminal.width if terminal.is_terminal else 10_000
        terminal.print(doctor.page(checks, width), soft_wrap=True)
    sys.exit(0 if doctor.sound(checks) else 1)


AGREED = click.option("-y", "--yes", is_flag=True, help="Ask no question.")


@click.command()
@click.argument("n", type=click.IntRange(1), default=1)
@AGREED
def undo(n: int, yes: bool) -> None:
    """Take back the last edits made in this project, and what commands did."""
    kept = here()
    bring_back(kept, kept.undoing(n), yes, "There is nothing to undo.")


@click.command()
@click.argument("n", type=click.IntRange(1), default=1)
@AGREED
def redo(n: int, yes: bool) -> None:
    """Make again what was undone."""
    kept = here()
    bring_back(kept, kept.redoing(n), yes, "There is nothing to redo.")


@click.command()
@click.argument("what", type=click.Choice(["list", "restore"]), default="list")
@click.argument("id", required=False)
@AGREED
def checkpoint(what: str, id: str | None, yes: bool) -> None:
    """List the checkpoints of this project, or go back to one."""
    kept = here()
    if what == "list" and not id:
        click.echo(visible(commands.checkpoints(kept)))
    elif what == "restore" and id:
        bring_back(kept, kept.restoring(id), yes, "Nothing has changed since.")
    else:
        raise click.UsageError("It is `list`, or `restore` with an ID or a name.")


WITHOUT_A_WORD = (
    "Nothing was brought back: commands ran, and some of these changes may be your own. --yes does "
    "it all the same; /undo in a chat lets you pick files."
)


def bring_back(kept: Checkpoints, plan: Plan, sure: bool, nothing: str) -> None:
    """Name what is about to be undone or done again; do it if the user agrees, or nobody is there.

    What commands did may be mixed with the user's own work: without a word nothing of it is undone.
    """
    if not plan.steps:
        return click.echo(nothing)
    for step in plan.steps:
        when = time.strftime("%d %b %H:%M", time.localtime(step.op.time))
        tell(f"{step.kind.capitalize()}: {step.op.why} ({when})")
    if plan.of_commands():
        terminal = console(stderr=True)
        for row in commands.looked_at(plan.edits()):
            terminal.print(row)
    if not sure and sys.stdin.isatty():
        sure = click.confirm("Go ahead?", default=not plan.of_commands(), err=True)
    elif not sure and plan.of_commands():
        raise CannotStart(WITHOUT_A_WORD, 4)
    else:
        sure = True
    done = kept.carry_out(plan) if sure else []
    lines = [commands.told(op) for op in done] + [*plan.refused]
    click.echo(visible("\n".join(lines) if sure else "Nothing was brought back."))


def here() -> Checkpoints:
    """The checkpoints of this project, whoever made them, put in order after a crash."""
    checkpoints = Checkpoints(project_root(Path.cwd()), state=ours().state)
    tell(*checkpoints.recover())
    return checkpoints


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
        return explain(model.library.get(), name, error, model.redact).text
    return ""


COMMANDS: dict[str, click.Command] = {
    "demo": show,
    "config": wizard,
    "doctor": check_up,
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
