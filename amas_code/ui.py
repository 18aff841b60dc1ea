"""The terminal front: turns, questions, and the prompt between them."""

import contextlib
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from amas_code import commands, look
from amas_code.chat import Chat
from amas_code.events import Action
from amas_code.look import styled
from amas_code.questions import question
from amas_code.screen import HIDE, Keyboard
from amas_code.signals import pulse
from amas_code.view import View
from amas_code.visible import visible


class Terminal(View):
    """For a person. Without a keyboard nobody is asked."""

    def __init__(self, console: Any):
        super().__init__(console)
        self.keyboard = Keyboard() if console.is_terminal and sys.stdin.isatty() else None
        self.chat: Chat
        self.asking = False
        self.later: deque[str] = deque()  # commands typed during a turn: done after it

    def beat(self) -> None:
        """Ten times a second while a turn runs."""
        self.chat.guard.check_time()
        if self.asking or self.screen.busy:
            return
        if self.keyboard:
            self.listen(self.keyboard)
        self.frame += 1
        self.draw()

    def listen(self, keyboard: Keyboard) -> None:
        """Take in what was typed meanwhile: it waits its turn, it answers no question."""
        for line in keyboard.sent():
            if line[0] in "/!":
                self.later.append(line)
            else:
                self.chat.agent.queue.append(self.chat.model.redact(line))
        self.waiting = [*self.chat.agent.queue, *self.later, keyboard.line]

    def ask(self, action: Action) -> str:
        """ "" to go ahead, else why not. Whoever is in the middle of a line may finish it first."""
        if not self.keyboard:
            return self.chat.nobody(action)
        self.asking = True
        try:
            self.listen(self.keyboard)
            while self.keyboard.line and not self.keyboard.resting():
                self.listen(self.keyboard)
            self.bell()
            key, why = question(self, self.keyboard, action)
        finally:
            self.asking, self.last, self.since = False, "question", time.monotonic()
            self.screen.send(HIDE if self.screen.live else "")
        if key == "a":
            self.chat.always(action)
        return why if key == "n" else ""

    def bell(self) -> None:
        if time.monotonic() - self.began > self.chat.settings.bell_after:
            self.screen.send("\a" if self.screen.live else "")

    def run(self, chat: Chat, prompt: str) -> int:
        """One turn; its exit status."""
        with self.at_work():
            code, why = chat.attempt(prompt, self.beat)
            self.finish()
        if why:
            self.put("notice", styled(visible(why), "yellow"))
        if self.done or self.usage:
            spent = look.summary(self.done, self.usage, time.monotonic() - self.began)
            self.put("summary", styled(spent, "dim"))
        self.bell()
        return code

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        self.begin()
        self.chat.guard.begin()
        keys = self.keyboard.taken() if self.keyboard else contextlib.nullcontext()
        with keys, self.screen.working():
            yield

    def converse(self, chat: Chat, line: Any) -> int:
        """Turns until the user leaves. `line` asks for prompts."""
        chat.copy = self.screen.copy
        typed = ""
        with contextlib.suppress(EOFError):
            while (text := self.next(chat, line, typed)) is not None:
                typed = ""
                with contextlib.suppress(KeyboardInterrupt):  # once more, after what it stopped
                    typed = self.take(chat, text)
        return 0

    def next(self, chat: Chat, line: Any, typed: str) -> str | None:
        """A line typed during the last turn, or what the user types now."""
        if waiting := chat.agent.queue or self.later:
            self.put("prompt", look.typed(waiting[0]))
            return waiting.popleft()
        if self.keyboard and not typed:  # begun during the turn
            typed, self.keyboard.line = self.keyboard.line, ""
        return line.next(typed)

    def take(self, chat: Chat, line: str) -> str:
        """Do what a line asks for; what comes back stands in the next prompt."""
        self.last = "prompt"
        if line[0] != "!" and not (line[0] == "/" and "/" not in line[1:].split(" ")[0]):
            return self.say(chat, line)
        self.command(chat, line)
        draft, chat.draft = chat.draft, ""
        return draft

    def say(self, chat: Chat, line: str) -> str:
        """A turn. If it was stopped or nothing came of it, what was typed goes to the prompt."""
        before, attached = len(chat.agent.messages), [*chat.attached]
        code = self.run(chat, line)
        came = before > len(chat.agent.messages) or any(
            message["role"] == "assistant" for message in chat.agent.messages[before:]
        )
        if code == 0 or (came and code != 130):
            return ""
        back = self.unsent(chat)
        if code != 130:
            chat.agent.rewind(before)
            chat.attached[:0] = attached
            back.insert(0, line)
        return "\n".join(back)

    def unsent(self, chat: Chat) -> list[str]:
        """Take back what was typed during the turn: nothing of it starts by itself."""
        begun = [self.keyboard.line] if self.keyboard and self.keyboard.line else []
        lines = [*chat.agent.queue, *self.later, *begun]
        chat.agent.queue.clear()
        self.later.clear()
        if self.keyboard:
            self.keyboard.line = ""
        return lines

    def command(self, chat: Chat, line: str) -> None:
        """A command. What waits for the model, its library or a program can be stopped."""
        shown: Any = "Stopped."
        slow = line.startswith(("/compact", "/model", "!"))
        nothing = contextlib.nullcontext()
        work, beat = (self.at_work(), pulse(self.beat)) if slow else (nothing, nothing)
        with contextlib.suppress(KeyboardInterrupt), work, beat:
            shown = commands.run(chat, line)
        self.put("command", *(shown if isinstance(shown, list) else [styled(visible(shown))]))
