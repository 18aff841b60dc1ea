"""What a turn looks like as it happens: blocks that stay, and the live area below them."""

import time
from typing import Any

from amas_code import events, look
from amas_code.events import Action
from amas_code.look import row, styled
from amas_code.markdown import Stream, renderable
from amas_code.screen import Screen
from amas_code.signals import uninterrupted
from amas_code.visible import visible

FOLDED = 24  # rows of a diff shown unasked
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class View:
    """Shows events on a screen. `waiting` are the lines that the user typed meanwhile."""

    def __init__(self, console: Any):
        self.screen = Screen(console)
        self.waiting: list[str] = []
        self.last, self.frame = "", 0
        self.begin()

    def begin(self) -> None:
        """Forget what belonged to the turn before."""
        self.actions: dict[str, Action] = {}
        self.running: Action | None = None
        self.asked, self.output, self.began = "", "", time.monotonic()
        self.done: list[Action] = []
        self.usage: list[events.Usage] = []
        self.restart()

    def restart(self) -> None:
        """A new message of the model is awaited."""
        self.stream, self.streamed, self.thought = Stream(self.screen.third), False, ""
        self.since = time.monotonic()

    def show(self, event: Any) -> None:
        """Show it whole: a Ctrl-C or a pulse halfway would lose text that is no longer live."""
        with uninterrupted():
            self.take_in(event)

    def take_in(self, event: Any) -> None:
        match event:
            case events.Asked(prompt):
                self.begin()
                self.asked = prompt
            case events.Thought(chunk):
                self.thought += chunk
                return
            case events.Text(chunk):
                self.streamed = True
                if not (blocks := self.stream.feed(chunk)):
                    return  # the next pulse draws it
                self.blocks(blocks)
            case events.Said({"role": "user", "content": text}):
                self.finish()
                # Typed while it worked; the prompt itself is there already.
                if not (self.asked and text.startswith(self.asked)):
                    self.put("prompt", look.typed(text))
                self.asked = ""
            case events.Said({"role": "assistant", "content": text} as message):
                self.actions |= look.announced(message)
                self.blocks([] if self.streamed else self.stream.feed(text or ""))
                self.finish()
            case events.Began(action):
                self.running, self.actions[action.id], self.since = action, action, time.monotonic()
                for edit in action.edits:
                    self.put("diff", *look.diff(edit, FOLDED))
            case events.Output(chunk):
                self.output = (self.output + chunk)[-8000:]
                return
            case events.Ended(id, result, ok):
                self.ended(self.actions.get(id), result, ok)
            case events.Usage():
                self.usage.append(event)
            case events.Notice(text):
                streamed = self.streamed
                self.finish()
                self.streamed = streamed  # the message that it interrupts is not shown again
                self.put("notice", styled(visible(text), "dim"))
        self.draw()

    def blocks(self, blocks: list) -> None:
        for block in blocks:
            thing = renderable(block, self.screen.console.width)
            self.put("text", thing, gap=bool(self.last) and not block.continued)

    def finish(self) -> None:
        self.blocks(self.stream.close())
        self.restart()

    def ended(self, action: Action | None, result: str, ok: bool) -> None:
        self.running, self.output, self.since = None, "", time.monotonic()
        self.put(
            "tool",
            look.tool_line(action, result, ok, self.screen.console.width),
            *look.output_tail(action, result),
        )
        if action and ok:
            self.done.append(action)

    def put(self, kind: str, *things: Any, gap: bool | None = None) -> None:
        """Print for good, after an empty line where the kind of thing changes."""
        apart = bool(self.last) and (kind != self.last or kind == "diff") if gap is None else gap
        self.last = kind
        self.screen.print(*([""] if apart else []), *things)

    def draw(self) -> None:
        """The live area: the unfinished block, a running command's last lines, what was typed."""
        if not (self.screen.live and self.screen.at_work):
            return
        things: list[Any] = []
        if block := self.stream.live():
            things += [""] if self.last and not block.continued else []
            things += self.screen.rows_of(renderable(block, self.screen.console.width - 1))
        elif self.thought:
            things.append(look.end_row(self.thought, "dim italic", self.screen.console.width - 1))
        lines = visible(self.output).rstrip("\n").split("\n")
        things += [row(f"    {line}", "dim") for line in lines[-self.screen.third :] if line]
        what = (
            f"{self.running.name} {look.matter(self.running)[:60]}" if self.running else "thinking"
        )
        seconds = time.monotonic() - self.since
        things += [
            "",
            row(f"{FRAMES[self.frame % 10]} {what} · {seconds:.0f} s · Esc stops", "dim"),
        ]
        things += [row(f"› {visible(line)}", "cyan") for line in self.waiting if line]
        self.screen.draw(*things)
