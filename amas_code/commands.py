"""A chat and its slash commands. A command returns what the front shows."""

import difflib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from amas_code import catalog, config, door, look, mentions, session
from amas_code.agent import Agent
from amas_code.checkpoint import Checkpoints, Op
from amas_code.compaction import Compaction
from amas_code.config import Settings
from amas_code.events import Action, Notice, Stopped, ToolError, Usage
from amas_code.guards import Guard
from amas_code.keys import Keyring
from amas_code.permissions import Rules
from amas_code.places import Places, home_directory
from amas_code.session import Journal
from amas_code.signals import pulse
from amas_code.visible import visible
from amas_code.workspace import Workspace


class Chat:
    """Everything a front or a command may reach. Made by `build()`."""

    def __init__(
        self, settings: Settings, keyring: Keyring, root: Path, places: Places, system: str
    ):
        self.settings, self.keyring, self.root, self.places = settings, keyring, root, places
        self.system = system
        self.agent: Agent
        self.model: Any
        self.compaction: Compaction
        self.guard: Guard
        self.checkpoints: Checkpoints
        self.journal: Journal
        self.work: Workspace
        self.spent: list[Usage] = []
        self.attached: list[str] = []
        self.uncommitted: set[str] = set()  # reasons that the user was told
        self.typed = True  # prompts are the user's own words: files named in them may be put in
        self.refused = False  # something needed asking and nobody was there
        self.choose: Callable[[str, list[str]], int | None] = lambda title, rows: None
        self.copy: Callable[[str], None] = lambda text: None

    def turn(self, prompt: str) -> str:
        """One prompt with what belongs to it: attachments, and at first where and when we are."""
        if not self.agent.messages:
            self.agent.say({"role": "system", "content": self.system})
            prompt += f"\n\n({self.surroundings()})"
        if self.typed:
            prompt, notices = mentions.expand(prompt, Path.cwd())
            for notice in notices:
                self.agent.emit(Notice(notice))
        attached, self.attached = self.attached, []
        return self.agent.turn("\n\n".join([prompt, *attached]))

    def attempt(self, prompt: str, beat: Callable[[], None]) -> tuple[int, str]:
        """A turn's exit status, and why it did not end by itself."""
        try:
            with pulse(beat):
                self.turn(prompt)
        except Stopped as stopped:
            return stopped.code, str(stopped)
        except KeyboardInterrupt:
            return 130, "Stopped."
        return (4, "") if self.refused else (0, "")

    def last_words(self) -> str:
        message = self.agent.messages[-1] if self.agent.messages else {}
        return message.get("content") or "" if message.get("role") == "assistant" else ""

    def topic(self) -> str:
        """What the present turn is about, for a commit's subject."""
        return first_line(self.agent.task)

    def surroundings(self) -> str:
        branch = f", git branch {self.branch()}" if self.branch() else ""
        return f"{time.strftime('%A, %d %B %Y')}; working directory {Path.cwd()}{branch}"

    def branch(self) -> str:
        """The branch's name, read and not asked of git, since it is shown at every prompt.

        A copied repository's HEAD may hold anything, and this goes to the model: one short line.
        """
        git = self.root / ".git"
        try:
            if git.is_file():  # a linked work tree
                git = self.root / git.read_text("utf-8").removeprefix("gitdir:").strip()
            head = (git / "HEAD").read_text("utf-8", "replace").strip().split("\n")[0]
        except (OSError, ValueError):
            return ""
        return visible(head.removeprefix("ref: refs/heads/")[:80] if "ref:" in head else head[:9])

    def rules(self) -> Rules:
        nowhere = self.root in (home_directory().resolve(), Path("/"))
        return Rules(self.settings.mode, tuple(self.settings.allow), None if nowhere else self.root)

    def always(self, action: Action) -> None:
        """From now on the like of it needs no question: all edits, or this very command."""
        if action.kind == "edit":
            self.settings.mode = "auto-edit"
        elif "command" in action.args:
            self.settings.allow.append(action.args["command"])

    def nobody(self, action: Action) -> str:
        """The answer to every question where there is nobody to ask."""
        self.refused = True
        way = "--allow COMMAND" if "command" in action.args else ""
        if action.kind == "edit" and self.settings.mode == "ask":
            way = "--yes"
        hint = f"; starting with {way} would give it beforehand" if way else ""
        return f"{action.name} needs the user's consent and nobody is there to ask{hint}"

    def window(self) -> int:
        return catalog.window(self.model.loaded(), self.settings)

    def status(self) -> str:
        """The bottom line: model, mode, context used, cost, branch."""
        used = self.compaction.used(self.agent.messages, list(self.agent.tools.values()))
        share = 100 * used // max(self.window(), 1)
        parts = [
            self.settings.model,
            self.settings.mode,
            f"context {share}%",
            look.money(self.spent),
        ]
        return " · ".join([*parts, self.branch()] if self.branch() else parts)

    def land(self, action: Action) -> list[str]:
        """Make an agreed edit a checkpoint. Returns what the model should know of it."""
        op = self.checkpoints.land(action.edits, f"{door.change(action.edits)}: {self.topic()}")
        if not op.private or not self.settings.checkpoint_on_edit:
            return []
        if op.private not in self.uncommitted:
            self.agent.emit(Notice(f"Not committed: {op.private}. /undo works all the same."))
        self.uncommitted.add(op.private)
        return [f"(not committed: {op.private})"]

    def note(self, event: Any) -> None:
        if isinstance(event, Usage):
            self.spent.append(event)

    def next_mode(self) -> None:
        modes = config.MODES
        self.settings.mode = modes[(modes.index(self.settings.mode) + 1) % len(modes)]

    def begin(self, id: str = "") -> None:
        """Go on in another session's place, or in a new one: nothing of the present one is kept."""
        self.journal.switch(id)
        self.checkpoints.session = self.journal.id
        for old in (self.agent.messages, self.spent, self.attached, self.work.seen, self.work.todo):
            old.clear()
        self.agent.turns = 0

    def resume(self, id: str) -> None:
        """Go on with an earlier session of this project."""
        recorded = session.load(self.journal.directory / f"{id}.jsonl")
        self.begin(id)
        self.agent.messages += recorded.messages
        self.agent.turns = sum(m["role"] == "user" for m in recorded.messages)
        self.spent += recorded.usage
        self.agent.settle(*["Interrupted; unknown whether it ran."] * 2)

    def sessions(self) -> list[session.Listed]:
        return [
            each for each in session.listed(self.journal.directory) if each.id != self.journal.id
        ]


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
    result = chat.work.shell.run(command, chat.settings.max_shell_timeout)
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
    names = catalog.at_hand(chat.model.library(), chat.keyring)
    rows = [f"{'●' if name == chat.settings.model else ' '} {name}" for name in names]
    return "\n".join([f"Model: {chat.settings.model}. /model NAME changes it.", *rows])


def mode(chat: Chat, rest: str) -> str:
    if rest and rest not in config.MODES:
        raise ToolError(f"There is no mode {rest}; choose from {', '.join(config.MODES)}.")
    chat.settings.mode = rest or chat.settings.mode
    return f"Mode: {chat.settings.mode}. {MODES[chat.settings.mode]}"


def undo(chat: Chat, rest: str) -> str:
    return brought_back(chat, chat.checkpoints.undo(number(rest)))


def redo(chat: Chat, rest: str) -> str:
    return brought_back(chat, chat.checkpoints.redo(number(rest)))


def brought_back(chat: Chat, done: Sequence[Op]) -> str:
    """What an undo, redo or restore did, for the user now and for the model next time."""
    lines = [told(op) for op in done]
    if lines:
        chat.attached.append("(The user brought files back: " + "; ".join(lines) + ")")
    return "\n".join(lines) or "There is nothing to bring back."


def told(op: Op) -> str:
    verb = "Done again" if op.kind == "redo" else "Undone"
    return f"{verb}: {op.why.partition(': ')[2]}"


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
            return brought_back(chat, chat.checkpoints.restore(name))
        case "squash":
            sure = chat.choose("Fold the unpushed [amas] commits into one?", ["yes", "no"])
            return chat.checkpoints.squash() if sure == 0 else "Nothing was folded."
        case "" | "list":
            return checkpoints(chat.checkpoints)
    return "Usage: /checkpoint [list] | save NAME | restore NAME-or-ID | squash"


def checkpoints(kept: Checkpoints) -> str:
    rows = []
    for op in kept.list():
        when = time.strftime("%H:%M", time.localtime(op.time))
        where = (op.commit or "")[:8] or f"log only: {op.private}" if op.kind != "mark" else "mark"
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
        rows.append(
            f"{name}: {given:,} tokens in ({cached:,} cached), {made:,} out, {look.money(spent)}"
        )
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


def first_line(text: str) -> str:
    return text.strip().split("\n")[0][:70]


def resume(chat: Chat, rest: str) -> str:
    """/resume [ID], or the beginning of one; alone it lets one choose."""
    found = [each for each in chat.sessions() if each.id.startswith(rest)]
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
        if chosen is None:
            return "Nothing resumed."
        found = [found[chosen]]
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
        file.write(session.markdown(chat.agent.messages))
    return f"Written: {path}"


def show_config(chat: Chat, rest: str) -> str:
    rows = [f"  {f}: {getattr(chat.settings, f)!r}" for f in config.NAMES if f not in SECRET]
    user, project = chat.places.config / "config.yaml", chat.root / ".amas/config.yaml"
    return "\n".join(["In force", *rows, f"Files: {user}, {project}. `amas config` sets up a key."])


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
