"""A chat: everything that a front or a slash command may reach."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amas_code import catalog, config, door, look, mentions, session
from amas_code.agent import Agent
from amas_code.checkpoint import Checkpoints
from amas_code.compaction import Compaction
from amas_code.config import Settings
from amas_code.events import Action, Notice, Stopped, Usage
from amas_code.guards import Guard
from amas_code.keys import Keyring
from amas_code.permissions import Rules
from amas_code.places import Places, is_project
from amas_code.providers import Model
from amas_code.recorded import INTERRUPTED, Recorded, Turns
from amas_code.redaction import covered
from amas_code.session import Journal
from amas_code.signals import pulse
from amas_code.visible import visible
from amas_code.workspace import Workspace


class Chat:
    """Everything a front or a command may reach. Made by `build()`."""

    def __init__(
        self,
        settings: Settings,
        keyring: Keyring,
        root: Path,
        places: Places,
        system: str,
        model: Model,
    ):
        self.settings, self.keyring, self.root, self.places = settings, keyring, root, places
        self.system, self.model = system, model
        self.agent: Agent
        self.compaction: Compaction
        self.guard: Guard
        self.checkpoints: Checkpoints
        self.journal: Journal
        self.work: Workspace
        self.turns = Turns()
        self.spent: list[Usage] = []
        self.attached: list[str] = []
        self.uncommitted: set[str] = set()  # reasons that the user was told
        self.typed = True  # prompts are the user's own words: files named in them may be put in
        self.refused = False  # something needed asking and nobody was there
        self.do: Callable[[Action], str]  # the door without the question: the user's own command
        self.choose: Callable[..., list[int]] = lambda title, rows, above=(): []
        self.draft = ""  # stands in the next prompt
        self.copy: Callable[[str], None] = lambda text: None

    def turn(self, prompt: str) -> str:
        """One prompt with what belongs to it: attachments, and at first where and when we are."""
        more, notices = [], list[str]()
        if self.typed:
            mentioned, notices = mentions.expand(prompt, Path.cwd())
            more = [mentioned.removeprefix(prompt)]
        for notice in notices:
            self.agent.emit(Notice(notice))
        if not self.agent.messages:
            self.agent.say({"role": "system", "content": self.system})
            more.insert(0, f"\n\n({self.surroundings()})")
        more += [f"\n\n{each}" for each in self.attached]
        self.attached = []
        return self.agent.turn(self.without_keys(prompt), self.without_keys("".join(more)))

    def without_keys(self, text: str) -> str:
        """What the user says, as the model and the journal may have it."""
        if found := self.model.redact.finds(text):
            what = ", ".join(dict.fromkeys(find.what for find in found))
            self.agent.emit(Notice(f"Not shown to the model: {what}."))
        return covered(text, found)

    def attempt(self, prompt: str, beat: Callable[[], None]) -> tuple[int, str]:
        """A turn's exit status, and why it did not end by itself."""
        try:
            with pulse(beat):
                self.turn(prompt)
        except Stopped as stopped:
            return stopped.code, str(stopped)
        except KeyboardInterrupt:
            return 130, "Stopped."
        except FileNotFoundError as error:
            if error.filename:
                raise
            return 1, "The working directory is gone; leave, and start in another."
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
        root = self.root if is_project(self.root) else None
        return Rules(self.settings.mode, tuple(self.settings.allow), root)

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
        return catalog.window(self.model.library.there(), self.settings)

    def status(self) -> str:
        """The bottom line: model, mode, context used, cost, branch."""
        used = self.compaction.filled(self.agent.messages, list(self.agent.tools.values()))
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
        why = f"{door.change(action.edits)}: {self.topic()}"
        op = self.checkpoints.land(action.edits, why, action.turn)
        if not op.private or not self.settings.checkpoint_on_edit:
            return []
        if op.private not in self.uncommitted:
            self.agent.emit(Notice(f"Not committed: {op.private}. /undo works all the same."))
        self.uncommitted.add(op.private)
        return [f"(not committed: {op.private})"]

    def note(self, event: Any) -> None:
        self.turns.listen(event)
        if isinstance(event, Usage):
            self.spent.append(event)

    def next_mode(self) -> None:
        modes = config.MODES
        self.settings.mode = modes[(modes.index(self.settings.mode) + 1) % len(modes)]

    def begin(self, id: str = "") -> Recorded:
        """Go on in another session's place, or in a new one: nothing of the present one is kept.

        Raises ToolError if another amas has it open; then the present one stays.
        """
        recorded = self.journal.switch(id)
        self.checkpoints.session = self.journal.id
        for old in (self.agent.messages, self.spent, self.attached, self.work.seen, self.work.todo):
            old.clear()
        self.turns, self.agent.turns = recorded.turns, recorded.turns.asked
        return recorded

    def resume(self, id: str) -> None:
        """Go on with an earlier session of this project."""
        recorded = self.begin(id)
        self.agent.messages += recorded.messages
        self.spent += recorded.usage
        self.agent.settle(INTERRUPTED, INTERRUPTED)

    def sessions(self, beginning: str = "") -> list[session.Listed]:
        found = session.recent(self.journal.directory, beginning)
        return [each for each in found if each.id != self.journal.id]


def first_line(text: str) -> str:
    return text.strip().split("\n")[0][:70]
