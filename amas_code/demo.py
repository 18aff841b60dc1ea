"""`amas demo`: the whole loop in a throw-away repository, with a script in the place of a model."""

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from amas_code import commands, look, startup
from amas_code.config import Settings
from amas_code.events import Action, Text, ToolError
from amas_code.keys import Keyring
from amas_code.places import Places
from amas_code.ui import Terminal

TASK = "Write roman(n), which turns a number into Roman numerals, with a test."

PROGRAM = '''"""Roman numerals."""

SIGNS = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}


def roman(n: int) -> str:
    """The number in Roman numerals, such as "XIV" for 14."""
    out = ""
    for sign, value in SIGNS.items():
        out += sign * (n // value)
        n %= value
    return out
'''

TEST = """from roman import roman

for number, wanted in {3: "III", 14: "XIV", 1994: "MCMXCIV"}.items():
    assert roman(number) == wanted, f"{number}: {roman(number)}, not {wanted}"
print("all good")
"""

OLD = 'SIGNS = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}'
NEW = """SIGNS = {
    "M": 1000, "CM": 900, "D": 500, "CD": 400, "C": 100, "XC": 90,
    "L": 50, "XL": 40, "X": 10, "IX": 9, "V": 5, "IV": 4, "I": 1,
}"""

RUN = {"command": "python3 test_roman.py"}
SCRIPT: list[tuple[str, list[tuple[str, dict]]]] = [
    (
        "I'll write the function and a small test beside it.",
        [
            ("create_file", {"path": "roman.py", "content": PROGRAM}),
            ("create_file", {"path": "test_roman.py", "content": TEST}),
        ],
    ),
    ("Now the test has its say.", [("shell_command", RUN)]),
    (
        "14 came out as `XIIII`: pairs such as **IV** and **IX** are missing from the table.",
        [("edit_file", {"path": "roman.py", "old_str": OLD, "new_str": NEW})],
    ),
    ("", [("shell_command", RUN)]),
    (
        "`roman()` works and its test passes:\n\n"
        "| number | numeral |\n|---|---|\n| 14 | XIV |\n| 1994 | MCMXCIV |\n",
        [],
    ),
]


class Alone(Terminal):
    """The terminal with nobody at it: it answers itself, and says so."""

    def ask(self, action: Action) -> str:
        if action.kind != "edit":
            self.put("question", look.styled(look.call_text(action), "bold"))
        self.put("question", look.styled("Go ahead? y (the demo answers itself)", "yellow"))
        return ""


def scripted(emit: Callable, pace: float) -> Callable[[list[dict], list[dict]], dict]:
    """A `complete` like any other that says what stands in SCRIPT.

    pace: seconds between pieces of text
    """
    replies = iter(SCRIPT)

    def complete(messages: list[dict], tools: list[dict]) -> dict:
        if "Refused" in (messages[-1]["content"] or ""):
            return spoken("You said no, so I stop here, and nothing of it is on disk.", [])
        return spoken(*next(replies, ("That was all.", [])))

    def spoken(text: str, calls: list[tuple[str, dict]]) -> dict:
        for start in range(0, len(text), 6):
            emit(Text(text[start : start + 6]))
            time.sleep(pace)
        made = [tool_call(f"call_{len(text)}_{n}", *call) for n, call in enumerate(calls)]
        return {"role": "assistant", "content": text or None} | (
            {"tool_calls": made} if made else {}
        )

    return complete


def tool_call(id: str, name: str, args: dict) -> dict:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}


def run(build: Callable) -> int:
    """Work, undo, redo, and what to do next. Returns the exit status."""
    console = startup.console()
    front = Terminal(console)
    front = front if front.keyboard else Alone(console)
    with repository() as root:
        say(
            front,
            f"A scripted model, not a real one, works in {root}. Nothing of yours is touched.",
        )
        settings, keyring = Settings(model="scripted model"), Keyring(root / "none", {})
        complete = scripted(front.show, 0.03 if front.keyboard else 0.0)
        places = Places(*[root / ".amas"] * 3)
        chat = build(settings, keyring, root, places, front, complete)
        say(front, f"› {TASK}", "bold")
        code = front.run(chat, TASK)
        try:
            say(front, "Every accepted edit is a commit of just that change:", "")
            say(front, git(root, "log", "--oneline"))
            done = chat.checkpoints.undo()
            say(front, "› /undo", "bold")
            say(front, "\n".join(commands.told(op) for op in done), "")
            say(
                front,
                "What you had changed yourself would be left as it is. /redo brings the edit back.",
            )
        except ToolError as error:
            say(front, str(error), "red")
            code = 1
        say(front, "Next: `amas config` sets up a model, then `amas` in a project of yours.", "")
    return code


def say(front: Terminal, text: str, style: str = "dim") -> None:
    front.put("demo", look.styled(text.rstrip(), style), gap=True)


@contextlib.contextmanager
def repository() -> Iterator[Path]:
    """A new git repository in a temporary directory, to work in for a while."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="amas-demo-") as name:
        root = Path(name).resolve()
        git(root, "init", "-q", "-b", "main")
        os.chdir(root)
        try:
            yield root
        finally:
            os.chdir(before)


def git(root: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True)
    return done.stdout or done.stderr
