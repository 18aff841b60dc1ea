"""The values that flow between the loop, the tools, the model and whoever listens."""

from pathlib import Path
from typing import NamedTuple


class Edit(NamedTuple):
    """A change to one file that a tool proposes; nothing is on disk until the agent lands it."""

    path: Path  # absolute
    before: bytes | None  # None: the file is new
    after: bytes | None  # None: the file goes away
    note: str = ""  # what the model should know of how the place was found


class Action(NamedTuple):
    """One thing the model wants done, as the rules, the user and an editor see it."""

    id: str
    turn: int
    kind: str  # "read", "edit" or "run"
    name: str
    args: dict
    edits: tuple[Edit, ...] = ()


class Asked(NamedTuple):
    """A turn begins with this prompt."""

    prompt: str


class Text(NamedTuple):
    """The model's answer grew by this much."""

    chunk: str


class Thought(NamedTuple):
    """The model's reasoning grew by this much."""

    chunk: str


class Said(NamedTuple):
    """A message joined the conversation."""

    message: dict


class Rewound(NamedTuple):
    """The conversation went back to its first `length` messages."""

    length: int


class Replaced(NamedTuple):
    """The whole conversation is now this one: compacted."""

    messages: list[dict]
    why: str


class Began(NamedTuple):
    """A tool call is about to be carried out, if the rules and the user let it."""

    action: Action


class Output(NamedTuple):
    """A running command printed this."""

    chunk: str


class Ended(NamedTuple):
    """A tool call was carried out, refused or failed: what the model reads of it."""

    id: str
    result: str
    ok: bool


class Usage(NamedTuple):
    """What one request to the model took: tokens, US dollars (None: price unknown), seconds."""

    model: str
    input: int
    output: int
    cached: int
    cost: float | None
    seconds: float


class Notice(NamedTuple):
    """One line for the user that is neither an answer nor a result."""

    text: str


class ToolError(Exception):
    """The call could not be done. The model reads the message, so it says what to try next."""


class Refused(ToolError):
    """The rules or the user said no. The model reads why."""


class Stopped(BaseException):
    """The turn must end here; the conversation is intact.

    `code` is the exit status of a one-shot run. Like KeyboardInterrupt it is no Exception: it may
    be raised by a pulse in the middle of a library that catches those.
    """

    def __init__(self, why: str, code: int = 1):
        super().__init__(why)
        self.code = code


class Cut(Stopped):
    """The model's answer broke off; `text` is what had come of it."""

    def __init__(self, why: str, code: int = 1, text: str = ""):
        super().__init__(why, code)
        self.text = text


class ContextExceeded(Stopped):
    """The conversation is longer than the model takes."""
