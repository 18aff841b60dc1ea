"""The slash commands of a chat. A command returns what the front shows."""

import difflib
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from amas_code import catalog, config, door, look, mentions, session
from amas_code.chat import Chat, first_line
from amas_code.checkpoint import Checkpoints
from amas_code.events import Action, Edit, Stopped, ToolError
from amas_code.oplog import Op
from amas_code.replay import Plan
from amas_code.visible import visible
from amas_code.workspace import shown


class Command(NamedTuple):
    run: Callable[[Chat, str], str]
    about: str


def run(chat: Chat, line: str) -> Any:
    """Do what a line such as "/undo 2" or "!make" says. EOFError means to leave."""
    name, _, rest = line[1:].partition(" ")
    try:
        if line.startswith("!"):
            return shell(chat, line)
        if name in COMMANDS:
            return COMMANDS[name].run(chat, rest.strip())
    except (ToolError, Stopped, OSError, config.ConfigError) as error:
        return str(error)
    near = difflib.get_close_matches(name, COMMANDS, 1, 0.4)
    return f"There is no /{name}. " + (f"Did you mean /{near[0]}?" if near else "/help lists all.")


def shell(chat: Chat, line: str) -> str:
    """!command runs it and tells the model with the next message, !!command only runs it."""
    command = line.lstrip("!").strip()
    args = {"command": command, "timeout": chat.settings.max_shell_timeout}
    result = chat.do(Action("", chat.agent.turns, "run", "shell_command", args))
    if not line.startswith("!!"):
        chat.attached.append(f"I ran `{command}`:\n{result}")
    return result


def help(chat: Chat, rest: str) -> str:
    rows = [f"  /{name:<12}{command.about}" for name, command in COMMANDS.items()]
    return "\n".join(["Commands", *rows, "", KEYS])


def model(chat: Chat, rest: str) -> str:
    """/model NAME takes it from now on; alone it lists what is at hand."""
    if rest:
        chat.settings.model = rest
        missing = "" if chat.keyring.serves(rest) else " There is no key for it: `amas config`."
        return f"Model: {rest}.{missing}"
    names = catalog.at_hand(chat.model.library.get(), chat.keyring)
    rows = [f"{'●' if name == chat.settings.model else ' '} {name}" for name in names]
    return "\n".join([f"Model: {chat.settings.model}. /model NAME changes it.", *rows])


def mode(chat: Chat, rest: str) -> str:
    if rest and rest not in config.MODES:
        raise ToolError(f"There is no mode {rest}; choose from {', '.join(config.MODES)}.")
    chat.settings.mode = rest or chat.settings.mode
    return f"Mode: {chat.settings.mode}. {MODES[chat.settings.mode]}"


def undo(chat: Chat, rest: str) -> str:
    n, kept = number(rest), chat.checkpoints
    edits_only = partial(kept.undoing, n, commands=False)
    return brought_back(chat, agreed(chat, kept.undoing(n), edits_only))


def redo(chat: Chat, rest: str) -> str:
    return brought_back(chat, chat.checkpoints.redoing(number(rest)))


def agreed(chat: Chat, plan: Plan, edits_only: Callable[[], Plan] | None = None) -> Plan | None:
    """The plan, once the user has looked at what commands did; None: nothing shall be done."""
    edits = plan.edits()
    if not (plan.of_commands() and edits):
        return plan
    ran = ", ".join(f"`{first_line(op.why.removeprefix('ran '))}`" for op in plan.of_commands())
    title = f"All that differs since {ran} ran; some of it may be your own. Take back?"
    match chat.choose(title, WAYS[: 2 + bool(edits_only)], looked_at(edits)):
        case [0]:
            return plan
        case [1]:
            rows = [shown(edit.path) for edit in edits]
            chosen = chat.choose("Which files? (such as 1 3-5)", rows)
            files = [edits[n].path for n in chosen]
            return chat.checkpoints.narrowed(plan, files) if files else None
        case [2] if edits_only:
            return edits_only()
    return None


WAYS = ["all of it", "some of the files", "edits only: what commands did stays"]
FULLY, FOLDED = 20, 12  # files whose diff is shown, and how many rows of it


def looked_at(edits: Sequence[Edit]) -> list[Any]:
    """What would change: the diffs of the first files, the names of the others."""
    rows = [row for edit in edits[:FULLY] for row in look.diff(edit, FOLDED)]
    for edit in edits[FULLY:]:
        name = visible(shown(edit.path), "")
        rows.append(look.row("  {}  +{} −{}".format(name, *look.counts([edit]))))
    return rows


def brought_back(chat: Chat, plan: Plan | None) -> str:
    """Carry out a plan, and say what it did, to the user now and to the model next time."""
    if plan is None:
        return "Nothing was brought back."
    lines = [told(op) for op in chat.checkpoints.carry_out(plan)]
    if lines:
        chat.attached.append("(The user brought files back: " + "; ".join(lines) + ")")
    return "\n".join([*lines, *plan.refused]) or "There is nothing to bring back."


def rewind(chat: Chat, rest: str) -> str:
    """/rewind goes back to an earlier prompt, which can be changed then."""
    prompts = chat.turns.prompts[:-31:-1]
    if not prompts:
        return "There is no earlier prompt."
    asked = chat.choose("Back to before which prompt?", [first_line(each.text) for each in prompts])
    if len(asked) != 1:
        return "Nothing was changed."
    prompt = prompts[asked[0]]
    ways = BACK if prompt.length is not None else BACK[:1]  # compacted: only files can go back
    way = chat.choose("What goes back?", ways)
    if len(way) != 1:
        return "Nothing was changed."
    attached = [*chat.attached]
    said = files_back(chat, prompt.turn) if way[0] in (0, 2) else "Files stay as they are."
    if way[0] == 0 or said is None:
        return said or "Nothing was changed."
    assert prompt.length is not None
    chat.attached[:] = attached  # what came back now is nothing to a model that never saw it go
    chat.agent.rewind(prompt.length)
    chat.work.seen.clear()
    chat.draft = prompt.text
    return f"The conversation is back before this prompt.\n{said}"


BACK = ["files only", "the conversation only", "both"]


def files_back(chat: Chat, turn: int) -> str | None:
    kept = chat.checkpoints
    edits_only = partial(kept.undoing, None, turn, commands=False)
    plan = agreed(chat, kept.undoing(None, turn), edits_only)
    if plan is None or plan.steps:
        return plan and brought_back(chat, plan)
    return "No file was changed since."


def told(op: Op) -> str:
    verb = "Done again" if op.kind == "redo" else "Undone" if op.paths else "Passed over"
    files = f" ({door.listed(op.paths)})" if ": ran " in op.why and op.paths else ""
    return f"{verb}: {first_line(op.why.partition(': ')[2])}{files}"


def number(text: str) -> int:
    if text and not text.isdecimal():
        raise ToolError(f"{text!r} is no number.")
    return int(text or 1)


def checkpoint(chat: Chat, rest: str) -> str:
    what, _, name = rest.partition(" ")
    name = name.strip().strip("\"'")
    match what:
        case "save" if name:
            return f"Checkpoint {name!r} is set ({chat.checkpoints.save(name).id})."
        case "restore" if name:
            return brought_back(chat, agreed(chat, chat.checkpoints.restoring(name)))
        case "squash":
            sure = chat.choose("Fold the unpushed [amas] commits into one?", ["yes", "no"])
            return chat.checkpoints.squash() if sure == [0] else "Nothing was folded."
        case "" | "list":
            return checkpoints(chat.checkpoints)
    return "Usage: /checkpoint [list] | save NAME | restore NAME-or-ID | squash"


def checkpoints(kept: Checkpoints) -> str:
    rows = []
    for op in kept.list():
        when = time.strftime("%H:%M", time.localtime(op.time))
        kinds = {"mark": "mark", "command": door.listed(op.paths, 3)}
        where = kinds.get(op.kind) or (op.commit or "")[:8] or f"log only: {op.private}"
        rows.append(f"{'●' if op.live else '○'} {op.id}  {when}  {op.why[:70]}  ({where})")
    return "\n".join(rows) or "No checkpoints yet; every accepted edit makes one."


def compact(chat: Chat, rest: str) -> str:
    if len(chat.agent.messages) < 3:
        return "There is nothing to compact yet."
    chat.compaction.compact(chat.agent.messages, rest, force=True)
    return "The conversation goes on from the summary."


def attach(chat: Chat, rest: str) -> str:
    """/attach FILE… puts files into the next message."""
    if not rest:
        return "Usage: /attach FILE …"
    mentioned = " ".join(name if name.startswith("@") else f"@{name}" for name in rest.split())
    text, notices = mentions.expand(mentioned, Path.cwd())
    body = text.removeprefix(mentioned).strip()
    chat.attached += [body] if body else []
    said = f"With the next message: {rest}." if body else f"There is no {rest}."
    return "\n".join(notices) or said


def clear(chat: Chat, rest: str) -> str:
    chat.begin()
    return "A new conversation. /resume goes back to the last one."


def copy(chat: Chat, rest: str) -> str:
    answers = [
        m["content"] for m in chat.agent.messages if m["role"] == "assistant" and m["content"]
    ]
    if not answers:
        return "There is no answer to copy yet."
    chat.copy(answers[-1])
    return f"Copied the last answer ({len(answers[-1])} characters)."


def cost(chat: Chat, rest: str) -> str:
    rows = []
    for name in dict.fromkeys(each.model for each in chat.spent):
        spent = [each for each in chat.spent if each.model == name]
        given, made, cached = (sum(values) for values in zip(*(u[1:4] for u in spent), strict=True))
        share = f"{100 * cached // max(given, 1)}% of them cached"
        rows.append(f"{name}: {given:,} tokens in ({share}), {made:,} out, {look.money(spent)}")
    return "\n".join(rows) or "Nothing spent yet."


def context(chat: Chat, rest: str) -> str:
    """What fills the model's window."""
    messages, tools = chat.agent.messages, list(chat.agent.tools.values())
    parts = {"tools": chat.compaction.used([], tools)}
    for role in ("system", "user", "assistant", "tool"):
        parts[role] = chat.compaction.used([m for m in messages if m["role"] == role])
    window = max(chat.window(), 1)
    rows = [f"  {name:<10} {tokens:>8,}" for name, tokens in parts.items()]
    used = sum(parts.values())
    return "\n".join([f"About {used:,} of {window:,} tokens ({100 * used // window}%)", *rows])


def diff(chat: Chat, rest: str) -> Any:
    """All that this session's edits changed, as it stands now."""
    changes = chat.checkpoints.changes()
    return [
        row for edit in changes for row in look.diff(edit, 100_000)
    ] or "This session changed nothing."


def history(chat: Chat, rest: str) -> str:
    """/history [TEXT] lists the prompts of earlier sessions that hold the text."""
    rows = [
        f"{each.id}  {when(each)}  {first_line(each.prompt)}"
        for each in session.listed(chat.journal.directory)
        if rest.lower() in each.prompt.lower()
    ]
    return "\n".join(rows[:50]) or "No session found."


def resume(chat: Chat, rest: str) -> str:
    """/resume [ID], or the beginning of one; alone it lets one choose."""
    found = chat.sessions(rest)
    found = [each for each in found if each.id == rest] or found
    if not found:
        raise ToolError(
            f"No session begins with {rest}." if rest else "There is no earlier session."
        )
    if rest and len(found) > 1:
        raise ToolError(
            f"{len(found)} sessions begin with {rest}: {', '.join(s.id for s in found[:5])}"
        )
    if not rest:
        chosen = chat.choose("Which session?", [listing(each) for each in found[:20]])
        if len(chosen) != 1:
            return "Nothing resumed."
        found = [found[chosen[0]]]
    chat.resume(found[0].id)
    return f"Resumed {found[0].id}: {first_line(found[0].prompt)}"


def listing(each: session.Listed) -> str:
    return f"{when(each)}  {each.size // 1024:>5} KB  {first_line(each.prompt)}"


def when(each: session.Listed) -> str:
    return time.strftime("%d %b %H:%M", time.localtime(each.when))


def export(chat: Chat, rest: str) -> str:
    """/export [FILE] writes the conversation as Markdown."""
    path = Path(rest or f"amas-{chat.journal.id}.md").expanduser()
    with path.open("x", encoding="utf-8") as file:
        file.write(chat.model.redact(session.markdown(chat.agent.messages)))
    return f"Written: {path}"


def show_config(chat: Chat, rest: str) -> str:
    rows = [f"  {f}: {getattr(chat.settings, f)!r}" for f in config.NAMES if f not in SECRET]
    user, project = chat.places.config / "config.yaml", chat.root / ".amas/config.yaml"
    files = f"Files: {user}, {project}. `amas config` sets up a key."
    return chat.model.redact("\n".join(["In force", *rows, files]))


def quit(chat: Chat, rest: str) -> str:
    raise EOFError


SECRET = ("api_key", "auto_accept")
MODES = {
    "ask": "Every edit and command is asked about.",
    "auto-edit": "Edits in the project are accepted; commands are asked about.",
    "plan": "Nothing is changed or run.",
}
KEYS = """Keys
  Enter            sends; Alt-Enter, or \\ and Enter, begins a new line
  Tab              completes /commands and @files
  Esc, Ctrl-C      stop a turn; what was said is kept
  Esc Esc          the same as /rewind, in an empty prompt
  Shift-Tab        next mode
  Ctrl-R, Ctrl-G   search earlier prompts; open $EDITOR
  Ctrl-D           leaves, as does Ctrl-C twice
  @file @file:10-40 @dir   put files into the message
  !command         runs it and tells the model; !!command only runs it
Lines typed while it works are sent after the running tool."""

COMMANDS: dict[str, Command] = {
    "help": Command(help, "this list"),
    "model": Command(model, "[NAME] show or change the model"),
    "mode": Command(mode, "[ask|auto-edit|plan] what happens unasked"),
    "undo": Command(undo, "[N] take back the last edits"),
    "redo": Command(redo, "[N] make undone edits again"),
    "rewind": Command(rewind, "back to an earlier prompt: conversation, files or both"),
    "checkpoint": Command(checkpoint, "[list] | save NAME | restore NAME | squash"),
    "diff": Command(diff, "all that this session changed"),
    "compact": Command(compact, "[FOCUS] sum up the conversation to make room"),
    "context": Command(context, "what fills the model's window"),
    "cost": Command(cost, "tokens and dollars so far"),
    "attach": Command(attach, "FILE … put files into the next message"),
    "copy": Command(copy, "the last answer to the clipboard"),
    "clear": Command(clear, "begin a new conversation"),
    "new": Command(clear, "the same"),
    "history": Command(history, "[TEXT] earlier sessions"),
    "resume": Command(resume, "[ID] go on with an earlier session"),
    "export": Command(export, "[FILE] write the conversation as Markdown"),
    "config": Command(show_config, "the settings in force"),
    "quit": Command(quit, "leave"),
}
