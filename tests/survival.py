"""A turn of twenty tool calls with a script in the place of the model, to be killed at any moment.

`python -m tests.survival [-c] [-r ID] [--strike CALLS SIGNAL] PROMPT` works in the current
directory. It gets the signal at its CALLS-th call of a function; if none, it prints how many calls
there were. With `--echo` it calls no tools and answers with the first lines of all prompts: JSON.
"""

import argparse
import itertools
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from amas_code import amas, demo, signals, startup
from amas_code.config import Settings
from amas_code.keys import Keyring
from amas_code.pipes import Lines
from amas_code.places import ours
from tests.server import PROTOCOLS

PORT = 9  # nobody listens there
NOTES = "".join(f"line {n}\n" for n in range(30))


def shout(number: int) -> tuple[str, dict]:
    """An edit of one line of its own."""
    change = {"old_str": f"line {number}\n", "new_str": f"LINE {number}\n"}
    return "edit_file", {"path": "notes.txt", **change}


def note(number: int) -> tuple[str, dict]:
    """A command that leaves a line of its own, outside of the project."""
    return "shell_command", {"command": f"echo {number} >> ../ran"}


def make(number: int) -> tuple[str, dict]:
    return "create_file", {"path": f"new{number}.py", "content": f"{number}\n"}


LOOK = ("read_file", {"path": "notes.txt"})
ROUNDS = [
    [LOOK, ("list_files", {})],
    [shout(13)],
    [note(1)],
    [make(1), make(2)],
    [LOOK, note(2), shout(17)],
    [note(3), note(4)],
    [("search_files", {"pattern": "LINE"})],
    [shout(21), LOOK, note(5)],
    [note(6)],
    [make(3), shout(25), note(7)],
    [LOOK],
]
ALLOWED = [args["command"] for calls in ROUNDS for _, args in calls if "command" in args]


def next_round(messages: list[dict]) -> tuple[int, list[tuple[str, dict]]]:
    """How many calls were made, and those that come next; none when all is done."""
    made = sum(len(message.get("tool_calls") or ()) for message in messages)
    begun = itertools.accumulate(map(len, ROUNDS), initial=0)
    return made, next((calls for at, calls in zip(begun, ROUNDS, strict=False) if at >= made), [])


def scripted(messages: list[dict], tools: list[dict]) -> dict:
    """The model's next message. A request that a provider would refuse ends it all."""
    with socket.socket() as one:
        one.connect_ex(("127.0.0.1", PORT))  # where others would send the request
    if faults := [*PROTOCOLS["openai"].faults({"messages": messages, "tools": tools})]:
        sys.exit(f"refused: {faults}")
    made, calls = next_round(messages)
    return asking(made, calls) if calls else {"role": "assistant", "content": "All done."}


def asking(made: int, calls: list[tuple[str, dict]]) -> dict:
    named = [demo.tool_call(f"call_{made + n}", *call) for n, call in enumerate(calls, 1)]
    return {"role": "assistant", "content": None, "tool_calls": named}


def echo(messages: list[dict], tools: list[dict]) -> dict:
    prompts = [m["content"].split("\n")[0] for m in messages if m["role"] == "user"]
    return {"role": "assistant", "content": json.dumps(prompts)}


class Strike:
    """Counts calls of functions, and sends ourselves a signal at one of them, or soon after.

    Not in a destructor: Python lets no exception out of one, so a SIGTERM is lost there.
    """

    def __init__(self, at: int, number: int):
        self.at, self.number, self.calls, self.struck = at, number, 0, not at

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        self.calls += event in ("call", "c_call")
        if self.calls >= self.at and not self.struck and not destroying(frame):
            self.struck = True
            os.kill(os.getpid(), self.number)


def destroying(frame: FrameType | None) -> bool:
    while frame and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def chat(front: Any, complete: Callable[[list[dict], list[dict]], dict]) -> Any:
    """A chat in the current directory."""
    settings = Settings(model="scripted", mode="auto-edit", allow=[*ALLOWED])
    keyring = Keyring(ours().config / "keys.yaml", {})
    return amas.build(settings, keyring, Path.cwd(), ours(), front, complete)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-c", "--continue", action="store_true")
    parser.add_argument("-r", "--resume")
    parser.add_argument("--strike", type=int, nargs=2, default=(0, 0))
    parser.add_argument("--echo", action="store_true")
    parser.add_argument("prompt")
    options = vars(parser.parse_args())
    startup.begin(None)
    signals.terminate_cleanly()
    front = Lines(startup.console(stderr=True))
    talk, strike = chat(front, echo if options["echo"] else scripted), Strike(*options["strike"])
    sys.setprofile(strike)
    startup.tell(*talk.checkpoints.recover())
    startup.tell(*startup.resumed(talk, options, True))
    code = front.run(talk, options["prompt"])
    sys.setprofile(None)
    if not options["echo"]:
        print(strike.calls)
    return code


if __name__ == "__main__":
    sys.exit(main())
