"""The line where the user types: history, completion of commands and files, keys.

A leaf of its own because prompt_toolkit is heavy and only a chat needs it.
"""

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.styles import Style

from amas_code.mentions import best, index, mention, typed_mention
from amas_code.visible import visible

TWICE = 2.0  # seconds within which a second Ctrl-C quits
LEAVING = "Ctrl-C again, or Ctrl-D, leaves."
STYLE = Style.from_dict(
    {"bottom-toolbar": "noreverse", "mark": "ansicyan bold", "dim": "ansibrightblack"}
)


class Names(Completer):
    """Slash commands at the start of the line, files after an @."""

    def __init__(self, commands: dict[str, str], files: Callable[[], list[str]]):
        self.commands, self.files = commands, files
        self.known, self.read = "", 0.0

    def get_completions(self, document: Any, event: Any) -> Iterable[Completion]:
        before = document.text_before_cursor
        if command_begun(before):
            for name, about in self.commands.items():
                if name.startswith(before[1:]):
                    yield Completion(f"/{name}", -len(before), display_meta=about)
        elif (typed := typed_mention(before)) is not None:
            if time.monotonic() - self.read > 10.0:  # the list of files, again now and then
                names = [name for name in self.files() if visible(name) == name]
                self.known, self.read = index(names), time.monotonic()
            for name in best(self.known, typed):
                yield Completion(mention(name), -len(typed))


class Kept(FileHistory):
    """The prompts of all chats, without keys. A full disk costs the history, not the chat."""

    def __init__(self, path: str, redact: Callable[[str], str]):
        super().__init__(path)
        self.redact = redact

    def load_history_strings(self) -> Iterable[str]:
        with contextlib.suppress(OSError):  # such as a file that is another user's
            yield from super().load_history_strings()

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(self.redact(string))


def kept(path: Path, redact: Callable[[str], str]) -> History:
    """The history in this file, or in memory where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return Kept(str(path), redact)


def command_begun(before: str) -> bool:
    """Whether a slash command is being typed, and not yet what comes after it."""
    return before.startswith("/") and " " not in before and "\n" not in before


class InputLine:
    """Asks for the next prompt. None means the user wants to leave."""

    def __init__(
        self,
        history: Path,
        commands: dict[str, str],
        files: Callable[[], list[str]],
        status: Callable[[], str],
        typed: Callable[[], None],
        next_mode: Callable[[], None],
        redact: Callable[[str], str] = str,
    ):
        self.next_mode, self.interrupted = next_mode, 0.0
        self.above = ""  # an empty line sets a prompt off from what came before it
        self.session: PromptSession = PromptSession(
            history=kept(history, redact),
            completer=Names(commands, files),
            complete_while_typing=Condition(self.completing),
            key_bindings=self.bindings(),
            bottom_toolbar=lambda: FormattedText([("class:dim", " " + status())]),
            style=STYLE,
            multiline=True,
            enable_open_in_editor=True,
            prompt_continuation="  ",
            tempfile_suffix=".md",
            reserve_space_for_menu=6,
        )
        self.session.default_buffer.on_text_changed += lambda buffer: typed()

    def completing(self) -> bool:
        """Only then is room kept for the menu; else the bottom line is close to the prompt."""
        before = self.session.default_buffer.document.text_before_cursor
        return command_begun(before) or typed_mention(before) is not None

    def is_empty(self) -> bool:
        return not self.session.default_buffer.text

    def bindings(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter", filter=~is_searching)
        def send(event: Any) -> None:
            buffer = event.current_buffer
            if buffer.document.char_before_cursor == "\\":
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            elif buffer.text.strip():
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def newline(event: Any) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-g", filter=~is_searching)
        def editor(event: Any) -> None:
            event.current_buffer.open_in_editor()

        @keys.add("escape", "escape", filter=Condition(self.is_empty))
        def rewind(event: Any) -> None:
            event.current_buffer.text = "/rewind"
            event.current_buffer.validate_and_handle()

        @keys.add("s-tab")
        def mode(event: Any) -> None:
            self.next_mode()
            event.app.invalidate()

        return keys

    def next(self, typed: str = "") -> str | None:
        """The next prompt, `typed` standing in it already."""
        hint = ""
        while True:
            try:
                if hint:
                    print_formatted_text(FormattedText([("class:dim", hint)]), style=STYLE)
                mark, self.above = [("", self.above), ("class:mark", "› ")], "\n"
                return self.session.prompt(FormattedText(mark), default=typed).strip()
            except EOFError:
                return None
            except KeyboardInterrupt:
                again = time.monotonic() - self.interrupted < TWICE
                if again and not self.session.default_buffer.text:
                    return None
                self.interrupted, typed, hint = time.monotonic(), "", LEAVING
