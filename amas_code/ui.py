"""The terminal front: turns, questions, and the prompt between them."""

import contextlib
import sys
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

from amas_code import commands, look
from amas_code.commands import Chat
from amas_code.events import Action
from amas_code.look import styled
from amas_code.questions import choose, question
from amas_code.screen import Keyboard
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
            (self.later if line[0] in "/!" else self.chat.agent.queue).append(line)
        self.waiting = [*self.chat.agent.queue, *self.later, keyboard.line]

    def ask(self, action: Action) -> str:
        """ "" to go ahead, else why not."""
        if not self.keyboard:
            return self.chat.nobody(action)
        self.listen(self.keyboard)
        self.asking = True
        self.bell()
        try:
            key, why = question(self, self.keyboard, action)
        finally:
            self.asking, self.last, self.since = False, "question", time.monotonic()
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
        with contextlib.ExitStack() as stack:
            if self.keyboard:
                stack.enter_context(self.keyboard.taken())
            stack.enter_context(self.screen.working())
            yield

    def converse(self, chat: Chat, line: Any) -> int:
        """Turns until the user leaves. `line` asks for prompts."""
        chat.choose, chat.copy = partial(choose, self), self.screen.copy
        typed = ""
        with contextlib.suppress(EOFError):
            while (text := self.next(chat, line, typed)) is not None:
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
        if line.startswith("/") and "/" not in line[1:].split(" ")[0]:
            self.command(chat, line)
        elif line.startswith("!"):
            self.shell(chat, line)
        else:
            return self.say(chat, line)
        return ""

    def say(self, chat: Chat, line: str) -> str:
        """A turn. If nothing came of it the line goes back to the prompt."""
        before = len(chat.agent.messages)
        code = self.run(chat, line)
        if code == 130:  # whoever stops wants to think: nothing typed before starts by itself
            back = [*chat.agent.queue, *self.later]
            chat.agent.queue.clear()
            self.later.clear()
            return "\n".join(back)
        if code in (0, 130) or any(m["role"] == "assistant" for m in chat.agent.messages[before:]):
            return ""
        chat.agent.rewind(before)
        return line

    def command(self, chat: Chat, line: str) -> None:
        slow = line.startswith(("/compact", "/model"))  # they wait for the model, or its library
        shown: Any = "Stopped."
        work, beat = (self.at_work, self.beat) if slow else (contextlib.nullcontext, lambda: None)
        with contextlib.suppress(KeyboardInterrupt), work(), pulse(beat):
            shown = commands.run(chat, line)
        self.put("command", *(shown if isinstance(shown, list) else [styled(visible(shown))]))

    def shell(self, chat: Chat, line: str) -> None:
        """!command runs it and tells the model, !!command only runs it."""
        command = line.lstrip("!").strip()
        with self.at_work(), contextlib.suppress(KeyboardInterrupt), pulse(self.beat):
            result = chat.work.shell.run(command, chat.settings.max_shell_timeout)
            self.put("command", styled(visible(result)))
            if not line.startswith("!!"):
                chat.attached.append(f"I ran `{command}`:\n{result}")
