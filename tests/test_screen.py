"""What a turn looks like: the view and the screen, their bytes fed to a terminal emulator."""

import io
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest
from rich.console import Console

from amas_code import look
from amas_code.events import (
    Action,
    Asked,
    Began,
    Edit,
    Ended,
    Notice,
    Output,
    Said,
    Text,
    Thought,
    Usage,
)
from amas_code.signals import pulse, uninterrupted
from amas_code.view import View
from tests.conftest import AMAS, to
from tests.server import Server, say, stall


class Shown(io.StringIO):
    """A terminal of so many columns and rows on which a view draws."""

    def __init__(self, columns: int = 80, rows: int = 24, colour: str | None = "standard"):
        super().__init__()
        self.emulator = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.001)
        self.emulator.set_mode(pyte.modes.LNM)
        self.stream = pyte.Stream(self.emulator)
        self.raw = ""
        console = Console(
            file=self,
            force_terminal=True,
            color_system=colour,
            width=columns,
            height=rows,
            highlight=False,
            emoji=False,
            _environ={"TERM": "xterm"},
        )
        self.view = View(console)

    def write(self, text: str) -> int:
        self.raw += text
        self.stream.feed(text)
        return len(text)

    def now(self) -> str:
        return "\n".join(line.rstrip() for line in self.emulator.display).rstrip()

    def all(self) -> str:
        columns = range(self.emulator.columns)
        gone = ["".join(row[x].data for x in columns) for row in self.emulator.history.top]
        return "\n".join([*(row.rstrip() for row in gone), self.now()])

    def turn(self, *events: object) -> str:
        """Show these events as one turn, drawing the live area after each; all that is left."""
        with self.view.screen.working():
            for event in events:
                self.view.show(event)
                self.view.draw()
            self.view.finish()
        return self.all()


def pieces(text: str, size: int = 5) -> list[Text]:
    return [Text(text[start : start + size]) for start in range(0, len(text), size)]


def ran(result: str, ok: bool = True, **args: str) -> list:
    kind = "run" if "command" in args else "read"
    name = "shell_command" if "command" in args else "read_file"
    return [Began(Action("1", 1, kind, name, args)), Ended("1", result, ok)]


def changed(before: str | None, after: str | None, name: str = "calc.py") -> list:
    edit = Edit(
        Path(name).absolute(),
        None if before is None else before.encode(),
        None if after is None else after.encode(),
    )
    action = Action("1", 1, "edit", "edit_file", {"path": name}, (edit,))
    return [Began(action), Ended("1", "Changed.", True)]


# --- streaming ----------------------------------------------------------------------------------


def test_tokens_appear_as_they_come() -> None:
    shown = Shown()
    with shown.view.screen.working():
        for piece in pieces("The answer is forty"):
            shown.view.show(piece)
        shown.view.draw()
        assert "The answer is forty" in shown.now()


@pytest.mark.parametrize("columns, rows", [(60, 12), (80, 24), (200, 50)])
def test_everything_said_lands_in_the_scrollback_exactly_once(columns: int, rows: int) -> None:
    parts = [f"Paragraph number {n:03} of the answer." for n in range(40)]
    parts += ["- " + "\n- ".join(f"item {n:03}" for n in range(60))]
    parts += ["```python\n" + "\n".join(f"x{n:03} = {n}" for n in range(90)) + "\n```"]
    parts += ["| a | b |\n|---|---|\n" + "\n".join(f"| cell {n:03} | b |" for n in range(70))]
    text = Shown(columns, rows).turn(Asked("?"), *pieces("\n\n".join(parts), 11))
    for name, count in {"number ": 40, "item ": 60, "x": 90, "cell ": 70}.items():
        for n in range(count):
            assert len(re.findall(rf"\b{name}{n:03}\b", text)) == 1, f"{name}{n:03}"


def test_a_long_code_block_is_committed_line_by_line() -> None:
    shown = Shown(rows=24)
    with shown.view.screen.working():
        for piece in pieces("```\n" + "\n".join(f"line {n:03}" for n in range(200))):
            shown.view.show(piece)
            shown.view.draw()
        live = shown.emulator.lines - shown.emulator.cursor.y
    assert "line 150" in shown.all()
    assert live <= 12  # a third of the screen, and the row that says what is going on


def test_a_long_paragraph_stays_whole_though_only_its_end_is_live() -> None:
    words = " ".join(f"word{n:04}" for n in range(250))
    shown = Shown(60, 12)
    text = shown.turn(*pieces(words))
    assert re.findall(r"word\d{4}", text) == words.split()


def test_nothing_of_the_live_area_is_left_behind() -> None:
    said = Said({"role": "assistant", "content": "Done."})
    events = [Thought("Hm, "), Thought("let me see."), *pieces("Done."), said]
    text = Shown().turn(*events, *ran("(exit status 0, 0.1 s)", command="make"))
    assert "stops" not in text and "Hm" not in text
    assert text.startswith("Done.\n\n● shell_command make · exit status 0")


def test_reasoning_is_dim_and_takes_one_row() -> None:
    shown = Shown(60)
    with shown.view.screen.working():
        for n in range(100):
            shown.view.show(Thought(f"thought {n} 考え\n"))
        shown.view.draw()
        rows = shown.now().split("\n")
    assert [row for row in rows if "thought" in row] == rows[:1]
    assert "thought 99" in rows[0]  # the latest of it
    assert "\x1b[2;3m" in shown.raw


def test_it_says_what_goes_on_and_for_how_long() -> None:
    shown = Shown()
    with shown.view.screen.working():
        shown.view.show(Asked("?"))
        shown.view.draw()
        assert re.search(r"[⠋-⠿] thinking · 0 s · Esc stops", shown.now())
        shown.view.show(ran("", command="make test")[0])
        shown.view.show(Output("compiling\ncompiled\n"))
        shown.view.draw()
        assert "shell_command make test · 0 s" in shown.now()
        assert "    compiled" in shown.now()


def test_a_pulse_in_the_middle_of_drawing_garbles_nothing() -> None:
    shown = Shown(80, 24)
    text = "\n\n".join(f"Paragraph {n:03} with `code` and **bold**." for n in range(300))

    def beat() -> None:
        if not shown.view.screen.busy:
            shown.view.draw()

    with shown.view.screen.working(), pulse(beat, 0.0005):
        for piece in pieces(text, 9):
            shown.view.show(piece)
        shown.view.finish()
    assert re.findall(r"Paragraph (\d{3}) with code and bold\.", shown.all()) == [
        f"{n:03}" for n in range(300)
    ]


def test_the_clock_goes_on_after_a_moment_that_nothing_may_interrupt() -> None:
    beats: list[float] = []
    with pulse(lambda: beats.append(time.monotonic()), 0.001):
        with uninterrupted():
            until = time.monotonic() + 0.02
            while time.monotonic() < until:
                pass
        over = time.monotonic()
        while time.monotonic() < over + 30 and not [beat for beat in beats if beat > over]:
            pass
    assert beats and beats[-1] > over


def test_ctrl_c_in_the_middle_of_drawing_loses_nothing() -> None:
    shown = Shown(80, 24)
    given: list[int] = []
    over = threading.Event()
    inside = False

    def stop(number: int, frame: object) -> None:
        """Ctrl-C while something is shown; between, this test could not tell where it struck."""
        nonlocal inside
        if inside:
            inside = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)

    def press() -> None:
        while not over.wait(0.002):
            signal.raise_signal(signal.SIGINT)

    pressing = threading.Thread(target=press)
    interrupted = 0
    with shown.view.screen.working():
        pressing.start()
        try:
            while len(given) < 400:
                try:
                    given.append(len(given))
                    inside = True
                    shown.view.show(Text(f"Said {given[-1]:04}.\n\n"))
                    inside = False
                except KeyboardInterrupt:
                    interrupted += 1
        finally:
            over.set()
            pressing.join()
            signal.signal(signal.SIGINT, before)
        shown.view.finish()
    numbers = [int(number) for number in re.findall(r"Said (\d{4})\.", shown.all())]
    assert interrupted > 5
    assert numbers == sorted(set(numbers))
    assert len(numbers) >= 390  # all but those interrupted before they were shown


# --- sizes --------------------------------------------------------------------------------------


def test_after_a_resize_only_the_live_area_is_redrawn() -> None:
    shown = Shown(60, 24)
    with shown.view.screen.working():
        shown.view.show(Text("First paragraph.\n\n" + "still live " * 20))
        shown.view.draw()
        shown.emulator.resize(24, 120)
        shown.view.screen.console.size = (120, 24)
        shown.view.screen.print("printed before the next pulse")
        shown.view.draw()
        shown.view.show(Text("\n\nLast."))
        shown.view.finish()
    assert shown.all().count("First paragraph.") == 1
    assert shown.all().count("still live") == 20
    assert "Esc stops" not in shown.all()


def test_an_emoji_that_is_wider_than_thought_breaks_no_row() -> None:
    shown = Shown(40, 12)
    with shown.view.screen.working():
        for n in range(30):
            shown.view.show(Text(f"{n} 🇩🇪🇯🇵❤️日本語のとても長い文章です。🎉 " * 2 + "\n"))
            shown.view.draw()
        shown.view.show(Text("\n"))
        shown.view.finish()
    assert "Esc stops" not in shown.all()
    assert shown.all().count("29 ") == 2


def test_wide_characters_wrap_within_the_screen() -> None:
    text = Shown(60).turn(*pieces("日本語の文章" * 30 + " 🎉🎉🎉", 7))
    assert text.replace("\n", "").replace(" ", "").count("日") == 30
    assert text.count("🎉") == 3


def test_a_tool_call_takes_one_row_at_any_width() -> None:
    for columns in (60, 200):
        command = "pytest -q tests/a_very_long_path " * 20
        text = Shown(columns).turn(*ran("ok\n(exit status 0, 1.0 s)", command=command))
        rows = [row for row in text.split("\n") if row]
        assert len(rows) == 2, text  # the call, and the one line it printed
        assert rows[0].startswith("● shell_command pytest") and "exit status 0" in rows[0]


def test_without_colour_there_is_none() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"NO_COLOR": "1"})
    view = View(console)
    view.show(Text("# Title\n\n```python\nx = 'a'\n```\n\n`code`\n\n"))
    for event in changed("a\n", "b\n"):
        view.show(event)
    assert not re.search(r"\x1b\[(?:[\d;]*;)?[349]\d", console.file.getvalue())


# --- diffs --------------------------------------------------------------------------------------


def test_a_diff_has_line_numbers_and_colours() -> None:
    shown = Shown()
    text = shown.turn(*changed("one\ntwo\nthree\n", "one\nTWO\nthree\n"))
    assert "change calc.py" in text
    assert "    2 - two\n    2 + TWO\n" in text
    assert "\x1b[31m    2 - two" in shown.raw and "\x1b[32m    2 + TWO" in shown.raw


def test_a_long_diff_is_folded() -> None:
    text = Shown(rows=100).turn(*changed(None, "".join(f"row {n}\n" for n in range(300))))
    assert "new file calc.py" in text
    assert len(re.findall(r"\+ row", text)) < 30
    assert re.search(r"… \d+ more lines", text)


def test_the_summary_tells_files_commands_tokens_and_cost() -> None:
    edit = changed("a\n", "b\nc\n")[0].action
    run = ran("", command="make")[0].action
    usage = [Usage("m", 1200, 300, 0, 0.0123, 1.0)]
    assert look.summary([edit, run], usage, 7.2) == (
        "1 file changed (+2 −1) · 1 command · 1.5k tokens · $0.0123 · 7 s"
    )
    unknown = usage + [Usage("n", 1, 1, 0, None, 1.0)]
    assert "$0.0123 + unknown" in look.summary([], unknown, 1.0)


# --- untrusted text -----------------------------------------------------------------------------

HOSTILE = "a\x1b[2Jb\x1b]0;owned\x07c\x9b31md\u202ee\u2066f\x00g\x7f[red]h[/red][link=x]"
ALLOWED = re.compile(r"\x1b\[(?:[\d;]*[mKJAH]|\?(?:7|25)[hl])")


def steering(raw: str) -> list[str]:
    """Control sequences and characters that are none of ours."""
    return re.findall("[^\n\r\t -~\xa0-\u200a\u2010-\u2027\u2030-\u205f\u2070-\U0010ffff]|\x07",
                      ALLOWED.sub("", raw))  # fmt: skip


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(pieces(HOSTILE + "\n\n```\n" + HOSTILE + "\n```\n"), id="model"),
        pytest.param([Said({"role": "assistant", "content": HOSTILE})], id="whole message"),
        pytest.param([Thought(HOSTILE)], id="reasoning"),
        pytest.param(ran(HOSTILE + "\n(exit status 0)", command=HOSTILE), id="command"),
        pytest.param([ran("", command="x")[0], Output(HOSTILE)], id="live output"),
        pytest.param(ran(f"Error: {HOSTILE}", False, path=HOSTILE), id="error"),
        pytest.param(changed(HOSTILE, HOSTILE + "!", HOSTILE.replace("\0", "")), id="diff"),
        pytest.param([Notice(HOSTILE)], id="notice"),
    ],
)
def test_untrusted_text_never_steers_the_terminal(events: list) -> None:
    shown = Shown(200)
    shown.view.waiting = [HOSTILE]
    shown.turn(*events)
    assert steering(shown.raw) == []
    assert "[red]h[/red]" in shown.raw


# --- a real terminal ----------------------------------------------------------------------------


class Tmux:
    """amas in tmux, which wraps anew what it shows when its size changes."""

    def __init__(self, cwd: Path, env: dict, columns: int, rows: int):
        self.base = ["tmux", "-L", f"amas-{os.getpid()}", "-f", "/dev/null"]
        given = [f"{name}={value}" for name, value in env.items()]
        size = ["-x", str(columns), "-y", str(rows)]
        self.tmux("new-session", "-d", *size, "-c", str(cwd), "env", "-i", *given,
                  "TERM=screen-256color", *AMAS)  # fmt: skip

    def tmux(self, *args: str) -> str:
        return subprocess.run(
            [*self.base, *args], capture_output=True, text=True, check=True
        ).stdout

    def wait(self, there: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + 30
        while not there(shown := self.tmux("capture-pane", "-p", "-S", "-")):
            assert time.monotonic() < deadline, shown
        return shown


@pytest.fixture
def tmux(project: Path, env: dict) -> Iterator[Callable]:
    started: list[Tmux] = []

    def start(columns: int, rows: int, **more: str) -> Tmux:
        started.append(Tmux(project, env | more, columns, rows))
        return started[-1]

    yield start
    for each in started:
        subprocess.run([*each.base, "kill-server"], capture_output=True)


@pytest.mark.skipif(not shutil.which("tmux"), reason="needs a terminal that wraps anew")
def test_resizing_a_real_terminal_doubles_and_loses_nothing(tmux: Callable) -> None:
    first = "\n\n".join(f"Paragraph {n:02} which is said before." for n in range(30))
    live = " ".join(f"live{n:02}" for n in range(20))
    after = "\n\n".join(f"Paragraph {n:02} which is said after." for n in range(30))
    reply = say(f"{first}\n\n{live}\n\n{after}\n\nThe end.", chunk=7)
    gate = threading.Event()
    with Server([stall(gate, reply, after=len(first) + len(live))]) as server:
        screen = tmux(100, 40, **to(server.url))
        screen.wait(lambda text: "context" in text)
        screen.tmux("send-keys", "go", "Enter")
        screen.wait(lambda text: "live16" in text)
        for columns, rows in ((60, 40), (60, 15), (140, 30), (90, 12)):
            screen.tmux("resize-window", "-x", str(columns), "-y", str(rows))
            size = f"{columns}x{rows}"
            screen.wait(lambda text: text.count("Esc stops") == 1 and "live16" in text)
            assert screen.tmux("display", "-p", "#{window_width}x#{window_height}") == f"{size}\n"
        gate.set()
        text = screen.wait(lambda text: "The end." in text and "context" in text.split("stops")[-1])
    for n in range(30):
        assert text.count(f"Paragraph {n:02} which is said before.") == 1
        assert text.count(f"Paragraph {n:02} which is said after.") == 1
    assert re.findall(r"live\d\d", text) == live.split()
    assert "Esc stops" not in text
