"""What goes wrong around a chat: each fault, what must be seen of it, and what must be so after it.

The tables hold the faults. One chat goes through a whole table and must survive all of it; which
row it was that failed stands at the end of the message. After every row: the prompt is back, the
server was sent nothing it would refuse, no process and no half-written file is left, git shows
nothing but what the row says, and nothing has steered the terminal.
"""

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import AMAS, git, to
from tests.server import (
    Answer,
    Page,
    Reply,
    Server,
    answer,
    call,
    cut,
    empty,
    end_early,
    error,
    fail_midway,
    html,
    raw_call,
    say,
    stall,
    truncated,
)
from tests.terminal import Terminal
from tests.test_chat import CTRL_D, CTRL_U, ENTER, ESC, prompt, ready, said, tell

QUESTION = "Go ahead?"
STEERING = ("\x1b]0", "\x1b]52", "\x9b", "\u202e", "\u2066", "\x1b[2J")  # as in HOSTILE
HOSTILE = "\x1b]0;owned\x07\x1b]52;c;aGk=\x07\x9b31m\u202e\u2066\x1b[2J[red][/nope]"


class Fault(NamedTuple):
    """A turn in which something goes wrong."""

    name: str  # what the user types, too
    script: Sequence[Answer]  # what the model says before it says that all is well
    seen: str  # a pattern: what the screen shows of the turn
    told: str = ""  # a pattern: what the model reads as the last result
    asked: Callable[[Path], object] | None = None  # done to the project while the question is open
    back: bool = False  # nothing came of it: the line stands in the prompt again
    status: str = ""  # what git shows after it
    files: dict[str, str | None] = {}  # what is in them after it; None: no such file


class World:
    """A chat, the server and the project that it works with."""

    def __init__(self, chat: Terminal, server: Server, replies: list[Answer], project: Path):
        self.chat, self.server, self.replies, self.project = chat, server, replies, project
        self.inside = project  # as the chat sees it

    def survive(self, faults: Sequence[Fault]) -> None:
        ready(self.chat)
        for fault in faults:
            with row(fault.name):
                self.go_through(fault)

    def go_through(self, fault: Fault) -> None:
        """Type a line, see what must be seen; then all is as it should be, and the chat goes on."""
        well = f"All is well after {fault.name}."
        self.replies[:] = [*fault.script, say(well, chunk=40)]
        self.chat.screen.history.top.clear()  # what is long gone is not looked through again
        self.chat.send(CTRL_U + fault.name + ENTER)
        if fault.asked:
            self.wait(fault, QUESTION)
            fault.asked(self.inside)
            self.chat.send("y")
        self.wait(fault, fault.seen)
        ready(self.chat)
        assert len(self.replies) < 2, "the turn did not get to its end"
        if self.replies:  # it ended with the fault
            assert prompt(self.chat) == (fault.name if fault.back else "")
            self.chat.send(CTRL_U + "go on" + ENTER)
        self.wait(fault, re.escape(well))
        ready(self.chat)
        self.check(fault)

    def wait(self, fault: Fault, wanted: str) -> None:
        """Until this fits what stands below the line that was typed."""

        def there(text: str) -> bool:
            turn = text.partition(f"› {fault.name}\n")[2]
            return re.search(wanted, turn, re.DOTALL) is not None

        there.__qualname__ = wanted  # for the message if it never comes
        self.chat.wait(there, 30)

    def check(self, fault: Fault) -> None:
        assert not self.server.errors
        assert re.search(fault.told, said(self.server, "tool")[-1] if fault.told else "", re.DOTALL)
        for name, text in fault.files.items():
            path = self.inside / name
            assert (path.read_text() if path.exists() else None) == text, name
        assert git(self.project, "status", "--porcelain", "-uall") == fault.status
        calm(self.chat)
        nothing_left(self.project.parent, self.chat)
        git(self.project, "add", "--all")  # the next row begins with a clean work tree
        git(self.project, "commit", "--quiet", "--allow-empty", "-m", fault.name)


@contextlib.contextmanager
def row(name: str) -> Iterator[None]:
    """Say which row of a table it was."""
    try:
        yield
    except AssertionError as failed:
        raise AssertionError(f"{failed}\n\nIn the row: {name}") from None


@contextlib.contextmanager
def world(terminal: Callable, project: Path, **more: str) -> Iterator[World]:
    replies: list[Answer] = []
    with Server(lambda body: replies.pop(0) if replies else None) as server:
        yield World(terminal(rows=20, **to(server.url), **more), server, replies, project)


def calm(chat: Terminal) -> None:
    """Nothing of Python's, and nothing that steers the terminal, got onto the screen."""
    raw = chat.raw.decode("utf-8", "replace")
    for bad in ("Traceback", "Exception", *STEERING):
        assert bad not in raw, repr(raw[max(raw.find(bad) - 80, 0) : raw.find(bad) + 80])
    chat.raw = b""


def nothing_left(tmp: Path, chat: Terminal | None = None) -> None:
    """No process of this test but the chat's runs, no temporary file of ours lies about."""
    known, deadline = chat.process.pid if chat else 0, time.monotonic() + 10
    while (left := strays(tmp, known)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left
    assert not [*tmp.rglob(".amas-*")]


def strays(tmp: Path, known: int) -> list[str]:
    """The commands with this directory in their environment. (Without /proc it finds none.)"""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            mine = f"{tmp}/".encode() in environ.read_bytes()
            if mine and int(environ.parent.name) != known:
                found.append((environ.parent / "cmdline").read_text())
    return found


def peak(chat: Terminal) -> int:
    """The most memory that it ever held, in KB; 0 where /proc does not tell."""
    status = Path(f"/proc/{chat.process.pid}/status")
    found = re.search(r"VmHWM:\s*(\d+)", status.read_text() if status.exists() else "")
    return int(found[1]) if found else 0


def nothing(project: Path) -> None:
    """For questions that are answered at once."""


# --- the model and its provider ------------------------------------------------------------------


def stream(*events: str) -> Page:
    """A stream that holds these events, however wrong."""
    data = "".join(f"data: {event}\n\n" for event in events)
    return Page("text/event-stream", data.encode("latin-1"))


def chunk(delta: str) -> str:
    choice = f'{{"index": 0, "delta": {delta}, "finish_reason": "stop"}}'
    return f'{{"id": "1", "object": "chat.completion.chunk", "choices": [{choice}]}}'


EDIT = answer("I mend it.", call("edit_file", path="calc.py", old_str="a - b", new_str="a + b"))
AGAIN = r"{0}\. Trying again in 1 s.*{0}\.\n"
BROKE, NONE = AGAIN.format("the connection broke off"), AGAIN.format("no answer came back")
NO_CREDIT = Page("application/json", b'{"error": {"message": "no credit left", "code": 402}}')
LATIN = stream(chunk('{"content": "gr\xfc\xdfe \xff"}'))

PROVIDER = [
    Fault("cut in the text", [cut("text")] * 2, BROKE),
    Fault("cut in a call", [cut("call", EDIT)] * 2, BROKE),
    Fault("cut before the first byte", [cut("start")] * 2, BROKE, back=True),
    Fault("no end", [end_early("call", EDIT)] * 2, AGAIN.format("the answer broke off")),
    Fault("stalled", [stall(60.0)], r"no answer in time \(request_timeout\)\. Trying again"),
    Fault("stalled at first", [stall(60.0, after="start")], r"no answer in time.* Trying again"),
    Fault("overloaded on the way", [fail_midway("text")], r"overloaded\)\. Trying again"),
    Fault("too many requests", [error(429, "slow down")], r"\(slow down\)\. Trying again in 1 s"),
    Fault("told when", [error(429, "wait", retry_after=0)], r"\(wait\)\. Trying again in 0 s"),
    Fault("told tomorrow", [error(429, "", 86400)], r"left alone for 86400 s", back=True),
    Fault("broken", [error(500, "boom", 0)] * 5, r"(\(boom\).*){4}\(boom\)\.\n", back=True),
    Fault("no such page", [html()] * 2, NONE, back=True),
    Fault("nothing", [empty()] * 2, AGAIN.format("the answer was empty"), back=True),
    Fault("garbage", [stream("{", "no")] * 2, NONE, back=True),
    Fault("an error as the answer", [NO_CREDIT], "test-model: no credit left", back=True),
    Fault("no UTF-8", [LATIN], "gr\ufffd"),
    Fault(
        "too long",
        [truncated("half an answer")],
        r"half an answer\n\nThe answer was cut [^·]*on\.\n\n[\d.]+k tok",
    ),
    Fault("a wrong type", [stream(chunk('{"content": 5}'))], r"trouble at the provider.*again"),
]


def args(text: str) -> list[Reply]:
    """A call of read_file with these arguments."""
    return [answer(raw_call("read_file", text), chunk=2**16)]


def new(path: str, content: str = "new\n") -> list[Reply]:
    return [answer(call("create_file", path=path, content=content), chunk=2**16)]


NO_OBJECT = "The arguments were not one JSON object"
DEEP = "[" * 5000 + "]" * 5000
TWO_MB = "one line of many\n" * 125_000
BIG = r"new file big.*… 124976 more lines.*● create_file big · \+125000 −0.*Compacted"

CALLS = [
    Fault("unknown", [call("rm_rf", path="/")], "● rm_rf", r"There is no tool rm_rf; choose from"),
    Fault("no name", [raw_call("", "{}")], "● unnamed", "There is no tool unnamed"),
    Fault("empty", args("{}"), "Error: Missing: path", "Missing: path"),
    Fault("a list", args('{"path": ["calc.py"]}'), "Error: path must", "of type string, not list"),
    Fault("no number", args('{"path": "calc.py", "start_line": "two"}'), "Error", "type integer"),
    Fault("infinite", args('{"path": "calc.py", "start_line": 1e999}'), "Error", "type integer"),
    Fault("not a number", args('{"path": "calc.py", "start_line": NaN}'), "Error", NO_OBJECT),
    Fault("no JSON", args('{"path": '), "Error", NO_OBJECT),
    Fault("an array", args('["calc.py"]'), "Error", NO_OBJECT),
    Fault("two objects", args('{"path": "a"}{"path": "b"}'), "Error", NO_OBJECT),
    Fault("too deep", args(f'{{"path": {DEEP}}}'), "Error", NO_OBJECT),
    Fault("one too many", args('{"path": "calc.py", "colour": 1}'), "Error", "No parameter colour"),
    Fault("half a letter", args('{"path": "\\ud800"}'), r"read_file <U\+D800> · Error", "Error"),
    Fault("a zero byte", args('{"path": "calc.py\\u0000"}'), "read_file calc.py␀ · Error", "Error"),
    Fault("a long name", args(json.dumps({"path": "x" * 5000})), "read_file xx.*… · Error", "long"),
    Fault("cut off", [truncated(*args('{"path": "ca'))], "cut off at your length limit", "cut off"),
    Fault("large", [*new("big", TWO_MB), say("A sum.")], BIG, "", nothing, files={"big": TWO_MB}),
]


def test_one_chat_survives_all_that_a_model_and_its_provider_get_wrong(
    terminal: Callable, project: Path
) -> None:
    with world(terminal, project, AMAS_REQUEST_TIMEOUT="2") as chat:
        chat.survive([*PROVIDER, *CALLS])
        assert (project / "calc.py").read_text() == "def add(a, b):\n    return a - b\n"


# --- commands ------------------------------------------------------------------------------------


def ran(name: str, command: str, seen: str, told: str, timeout: int = 20) -> Fault:
    return Fault(name, [call("shell_command", command=command, timeout=timeout)], seen, told)


TIMED_OUT = r"\(timed out after 1 s: ask for more"
ENDED = r"\(exit status 0, [\d.]+ s\)$"
ODD = r"printf '\033]0;owned\007\033]52;c;aGk=\007\302\233\342\200\256\342\201\246\033[2J[red]\n'"

COMMANDS = [
    ran("little", "echo a word", "\n    a word\n", ENDED),
    ran("much", "seq 1500000", r"… \d+ lines before\n.*\n    1500000\n", r"left out.*1500000\n"),
    ran(
        "one long line", "head -c 10000000 /dev/zero | tr '\\0' x", "\n    xx.*…\n", "9970000 char"
    ),
    ran("endless", "yes", "timed out after 1 s.*\n    y\n    y\n", TIMED_OUT, 1),
    ran(
        "binary",
        "head -c 9999 /dev/urandom; printf '\\n\\0\\377\\376\\n'",
        "␀\ufffd\ufffd\n",
        ENDED,
    ),
    ran("deaf", "trap '' TERM; echo on; while :; do sleep 9; done", "\n    on\n", TIMED_OUT, 1),
    ran("left behind", "sleep 99 & echo bye", "\n    bye\n", "it left running was ended too"),
    ran("left holding", "(trap '' TERM HUP; sleep 99) & echo bye", "bye\n", "was ended too"),
    ran(
        "steering",
        ODD,
        r"\n    ␛\]0;owned␇␛\]52;c;aGk=␇<U\+009B><U\+202E><U\+2066>␛\[2J\[red\]",
        ENDED,
    ),
    ran("asking", "read -p name? x; echo got $x", "\n    .*got\n", ENDED),
    ran("killed", "kill -KILL $$", "killed by SIGKILL", r"\(killed by SIGKILL"),
    ran("missing", "no-such-program", "exit status 127", r"\(exit status 127"),
]


def commands(faults: Sequence[Fault]) -> list[str]:
    return [json.loads(f.script[0].calls[0].arguments)["command"] for f in faults]  # type: ignore[union-attr]


def test_one_chat_survives_every_kind_of_command(terminal: Callable, project: Path) -> None:
    with world(terminal, project, AMAS_ALLOW="\n".join(commands(COMMANDS))) as chat:
        chat.survive(COMMANDS[:1])
        before = peak(chat.chat)
        chat.survive(COMMANDS[1:])
        assert peak(chat.chat) < before + 80_000  # not what the commands printed


# --- files ---------------------------------------------------------------------------------------


def edit(path: str, text: str = "new") -> list[Reply]:
    return [call("edit_file", path=path, old_str="old", new_str=text)]


def delete(path: str) -> list[Reply]:
    return [call("delete_file", path=path)]


def fill(project: Path) -> None:
    """Leave no room for the private log."""
    with contextlib.suppress(OSError), open(project / ".git/amas/filler", "wb", 0) as file:
        while True:
            file.write(bytes(4096))


LARGE = "a line of text\n" * 10_000
FULL, FIXED, DENIED = "No space left on device", "Read-only file system", "Permission denied"
STAYED = "Nothing was changed: (full|fixed|closed).*: [A-Z]"
RUN = "echo > made"

UNWRITABLE = [
    Fault("new on full", new("full/x", LARGE), STAYED, FULL, nothing, files={"full/x": None}),
    Fault("on full", edit("full/old"), STAYED, FULL, nothing, files={"full/old": "old\n"}),
    Fault("new on fixed", new("fixed/x"), STAYED, FIXED, nothing, files={"fixed/x": None}),
    Fault("on fixed", edit("fixed/old"), STAYED, FIXED, nothing, files={"fixed/old": "old\n"}),
    Fault("off fixed", delete("fixed/old"), STAYED, FIXED, nothing, files={"fixed/old": "old\n"}),
    Fault("new in closed", new("closed/x"), STAYED, DENIED, nothing, files={"closed/x": None}),
    Fault("in closed", edit("closed/old"), STAYED, DENIED, nothing, files={"closed/old": "old\n"}),
    Fault("secret", edit("secret"), "secret cannot be read: Permission denied", DENIED),
    Fault("over a secret", new("secret"), "secret exists", "exists"),
    Fault(
        "no room for the log", edit("open", "x"), "the log for", FULL, fill, files={"open": "old\n"}
    ),
    Fault(
        "no room to remember",
        [call("shell_command", command=RUN)],
        "/undo will not cover what commands do here",
        "exit status 0",
        status="?? made\n",
    ),
]

# The chat in a file system of its own, and without root's right to pass over permissions.
PREPARE = """
mount -t tmpfs -o size=64k tmpfs full && echo old > full/old
cat /dev/zero > full/filler 2>/dev/null
mount -t tmpfs tmpfs fixed && echo old > fixed/old && mount -o remount,ro fixed
mkdir -p .git/amas && mount -t tmpfs -o size=256k,mode=700 tmpfs .git/amas
exec setpriv --bounding-set -dac_override,-dac_read_search "$@"
"""


@functools.cache
def private_mounts() -> list[str]:
    """How to run something that may mount; [] if there is no way."""
    probe = "mount -t tmpfs tmpfs /tmp && exec setpriv --bounding-set -dac_override true"
    for flags in (["-m"], ["-rm"]):
        command = ["unshare", *flags, "sh", "-c"]
        with contextlib.suppress(OSError):
            if subprocess.run([*command, probe], capture_output=True).returncode == 0:
                return command
    return []


def test_a_file_that_cannot_be_written_stays_as_it_is_and_the_chat_goes_on(
    project: Path, env: dict
) -> None:
    if not private_mounts():
        pytest.skip("needs Linux, and the right to mount in a namespace of one's own")
    for name in ("full", "fixed", "closed"):
        (project / name).mkdir()
    lay(project, "closed/old", "secret", "open")
    for name, mode in {"closed/old": 0o400, "closed": 0o500, "secret": 0}.items():
        (project / name).chmod(mode)
    start = [*private_mounts(), PREPARE, "sh", *AMAS]

    def terminal(rows: int, **more: str) -> Terminal:
        return Terminal(start, project, env | more, rows=rows)

    with world(terminal, project, AMAS_ALLOW=RUN) as chat, chat.chat:
        ready(chat.chat)
        chat.inside = Path(f"/proc/{chat.chat.process.pid}/root{project}")
        chat.survive(UNWRITABLE)
        assert not [*chat.inside.rglob(".amas-*")]


def lay(project: Path, *names: str) -> None:
    """Commit files that say "old"."""
    for name in names:
        (project / name).write_text("old\n")
    git(project, "add", "--all")
    git(project, "commit", "-q", "-m", "more")


def mine(name: str) -> Callable[[Path], object]:
    return lambda project: (project / name).write_text("old and mine\n")


def gone(name: str) -> Callable[[Path], object]:
    return lambda project: (project / name).unlink()


def linked(project: Path) -> None:
    (project / "linked").rename(project / "aim")
    (project / "linked").symlink_to("aim")


def folder(project: Path) -> None:
    (project / "folder").unlink()
    (project / "folder").mkdir()


def away(project: Path) -> None:
    (project / "away").symlink_to(project.parent / "outside")


MINE, GONE, AIM = {"changed": "old and mine\n"}, {"gone": None}, {"aim": "old\n"}
MADE, OUTSIDE = {"made": "old and mine\n"}, {"../outside": None}
LATE, LINK = "Error.*(changed|exists|gone|no file)", "is a link or behind one"

ONE_LINE = "x" * 50_000 + "\n"

MEANWHILE = [
    Fault("changed", edit("changed"), LATE, LATE, mine("changed"), False, " M changed\n", MINE),
    Fault("deleted", edit("gone"), LATE, LATE, gone("gone"), False, " D gone\n", GONE),
    Fault("linked", edit("linked"), "Error", LINK, linked, False, " T linked\n?? aim\n", AIM),
    Fault("a folder now", edit("folder"), "Error", "irectory", folder, False, " D folder\n"),
    Fault("there now", new("made"), LATE, LATE, mine("made"), False, "?? made\n", MADE),
    Fault("out of here", new("away"), "Error", LINK, away, False, "?? away\n", OUTSIDE),
    Fault("a folder for a file", edit("some"), "some is a directory", "is a directory"),
    Fault("over a folder", new("some"), "Error: some", "some"),
    Fault("a file for a folder", new("calc.py/x"), "Error", "File exists|irectory", nothing),
    Fault("mistyped", edit("chnged"), "Did you mean changed", "no file chnged. Did you mean"),
    Fault("a pipe", edit("pipe"), "pipe is a pipe", "is a pipe"),
    Fault("a huge file", edit("huge"), r"huge is too large \(600 MB\)", "too large"),
    Fault(
        "one line", new("one", ONE_LINE), r"… 49040\s+more", "", nothing, files={"one": ONE_LINE}
    ),
    Fault("a circle", edit("circle"), "circle cannot be read", "symbolic links"),
]


def test_a_file_that_changes_while_the_question_is_open_is_left_as_it_is_then(
    terminal: Callable, project: Path
) -> None:
    (project / "some").mkdir()
    (project / "circle").symlink_to("circle")
    os.mkfifo(project / "pipe")
    (project / ".git/info/exclude").write_text("huge\n")
    with open(project / "huge", "wb") as file:
        file.truncate(600_000_000)
    lay(project, "changed", "gone", "linked", "folder", "some/file")
    with world(terminal, project) as chat:
        chat.survive(MEANWHILE)


# --- hostile text --------------------------------------------------------------------------------

NAME = f"evil{HOSTILE}".replace("/", "")
SHOWN = r"␛\]0;owned␇␛\]52;c;aGk=␇<U\+009B>31m<U\+202E><U\+2066>␛\[2J\[red\]\[/nope\]"
TABLE = f"# {HOSTILE}\n\n| a | {HOSTILE} |\n|---|---|\n| 1 | 2 |\n\n```py\nx = '{HOSTILE}'\n```\n"

HOSTILITIES = [
    Fault("text", [answer(TABLE, thought=HOSTILE)], f"(?s){SHOWN}.*a  {SHOWN}.*x = '{SHOWN}'"),
    Fault(
        "an edit",
        [call("edit_file", path=NAME, old_str="old", new_str=HOSTILE)],
        rf"change evil␛.*1 - old\n    1 \+ {SHOWN}.*● edit_file evil␛.*\+1 −1",
        asked=nothing,
        files={NAME: HOSTILE + "\n"},
    ),
    Fault(
        "a new file",
        [call("create_file", path=NAME + "2", content=HOSTILE)],
        rf"new file evil␛.*1 \+ {SHOWN}",
        asked=nothing,
    ),
    Fault("a command", [call("shell_command", command=f"cat evil* # {HOSTILE}")], SHOWN, "owned"),
    Fault("a search", [call("search_files", pattern="owned")], "● search_files", "owned"),
    Fault("a list", [call("list_files")], "● list_files", "evil"),
    Fault("no such file", [call("read_file", path=HOSTILE)], "There is no file ␛", "no file"),
    Fault("no such tool", [call("x" + HOSTILE, x=HOSTILE)], "● x__0_owned_", "no tool x__0_owned_"),
    Fault("a refusal", [error(400, HOSTILE)], r"test-model:.*owned.*\[red\]", back=True),
    Fault("a reason", [error(500, HOSTILE, retry_after=0)], r"owned.*\[red\]\[/nope\]"),
]


def test_hostile_text_from_anywhere_never_steers_the_terminal(
    terminal: Callable, project: Path
) -> None:
    git(project, "config", "user.name", f"Eve {HOSTILE}")
    git(project, "config", "user.email", "eve@example.org")
    lay(project, NAME)
    with world(terminal, project, AMAS_ALLOW=f"cat evil* # {HOSTILE}") as hostile:
        chat = hostile.chat
        hostile.survive(HOSTILITIES)
        assert "Eve" in git(project, "log", "--format=%an", "--grep=amas")
        for line, wanted in {
            "/undo": "Undone: create evil",
            "/checkpoint": "create evil",
            "/diff": "change evil",
            "/history": "text",
            "!!git log --all": "Author: Eve ␛",
            "!!ls": "evil␛",
            "/model x/[red][/nope]": "Model: x/[red][/nope].",
            "/[red]": "There is no /[red].",
        }.items():
            with row(line):
                tell(chat, line, wanted)
                calm(chat)
        (project / ".git/HEAD").write_text(f"ref: refs/heads/{HOSTILE}\n")
        tell(chat, "/help", "/undo")
        assert "· ␛]0;owned␇␛" in chat.shown().split("\n")[-1]
        calm(chat)


# --- the terminal --------------------------------------------------------------------------------


def test_a_narrow_terminal_a_resize_keys_typed_too_soon_and_a_stop_spoil_no_turn(
    terminal: Callable, project: Path
) -> None:
    soon, half = threading.Event(), threading.Event()
    (project / "calc.py").write_text("def add(a, b):\n    return a - b  # 日本語 and so on\n")
    git(project, "commit", "-qam", "longer")
    script = [EDIT, say("Not at 20."), stall(soon, EDIT), say("Not at once."), EDIT, say("Done.")]
    script += [stall(half, say("A first half, and a second.")), stall(600.0), say("Here again.")]
    with Server(script) as server:
        chat = terminal(columns=20, rows=24, **to(server.url))
        chat.wait("›")
        chat.send("narrow" + ENTER)
        text = chat.wait("edits from now on")
        assert "    2 -     return a\n- b" in text and "Go ahead? y yes · n" in text
        for columns in (40, 200, 100):  # neither redrawn nor answered
            chat.resize(columns, 24)
        chat.send("n")
        chat.wait("Why not?")
        chat.send("too wide" + ENTER)
        chat.wait("Not at 20.")
        ready(chat)
        assert chat.all().count(QUESTION) == 1
        assert "the user said no: too wide" in said(server, "tool")[-1]

        chat.send("at once" + ENTER)  # what is typed too soon is a line, and answers nothing
        chat.wait(lambda text: text.count("I mend") == 2)
        chat.send("yyyy" + ENTER)
        chat.wait("› yyyy")
        soon.set()
        chat.wait(lambda text: text.count(QUESTION) == 2)
        chat.send("n")
        chat.wait(lambda text: text.count("Why not?") == 2)
        chat.send(ENTER)
        chat.wait("Not at once.")
        ready(chat)
        assert said(server)[-1] == "yyyy"
        assert git(project, "status", "--porcelain") == ""

        chat.send("stopped" + ENTER)  # by the system, as a laptop that sleeps, while it asks
        chat.wait(lambda text: text.count(QUESTION) == 3)
        os.killpg(chat.process.pid, signal.SIGSTOP)
        chat.send("y")
        os.killpg(chat.process.pid, signal.SIGCONT)
        chat.wait("Done.")
        ready(chat)
        assert "a + b" in (project / "calc.py").read_text()

        chat.send("talk" + ENTER)  # and while it answers
        chat.wait("A first half")
        os.killpg(chat.process.pid, signal.SIGSTOP)
        half.set()
        chat.resize(60, 24)
        os.killpg(chat.process.pid, signal.SIGCONT)
        chat.wait("and a second.")
        ready(chat)

        chat.send("talk on" + ENTER)  # a model that stands still
        chat.wait("I will read")
        chat.send(ESC)
        chat.wait("Stopped.")
        assert prompt(chat) == ""
        assert server.requests[-1].gone.wait(20)  # it hung up
        tell(chat, "and now?", "Here again.")
        assert "I will read" in said(server, "assistant")[-1]
        calm(chat)
        nothing_left(project.parent, chat)


def test_a_terminal_that_goes_away_takes_its_commands_with_it(
    terminal: Callable, project: Path
) -> None:
    chat = terminal("-m", "openai/x", OPENAI_API_KEY="k")
    ready(chat)
    chat.send("!!echo begun; sleep 99" + ENTER)
    chat.wait("    begun")
    os.close(chat.master)
    chat.master = -1
    assert chat.process.wait(20) in (128 + signal.SIGHUP, 120)  # 120: nowhere to print to
    nothing_left(project.parent)
    assert git(project, "status", "--porcelain", "-uall") == ""


def test_without_git_bash_home_letters_and_cursor_it_works_all_the_same(
    terminal: Callable, project: Path, tmp_path: Path
) -> None:
    """PATH holds sh and little more; TERM is dumb, the locale C, TMPDIR and HOME do not exist."""
    (tmp_path / "bin").mkdir()
    for name in ("sh", "env", "cat"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    bare = {"PATH": tmp_path / "bin", "TMPDIR": tmp_path / "no/tmp", "HOME": tmp_path / "no/home"}
    script = [EDIT, call("shell_command", command="echo $0 grüß; cat calc.py"), say("Done.")]
    with Server(script) as server:
        chat = terminal(
            **to(server.url), TERM="dumb", LC_ALL="C", **{k: str(v) for k, v in bare.items()}
        )
        chat.wait("›")
        chat.send("mend it" + ENTER)
        chat.wait(QUESTION)
        chat.send("y")
        chat.wait(lambda text: text.count(QUESTION) == 2)
        chat.send("y")
        text = chat.wait("1 file changed (+1 −1) · 1 command")
        assert "Not committed: git is not installed. /undo works all the same." in text
        assert "    sh grüß\n" in text
        chat.send("/undo" + ENTER)
        chat.wait("Undone: edit calc.py")
        assert git(project, "status", "--porcelain") == ""
        chat.send("/quit" + ENTER)
        assert chat.ended() == 0
        calm(chat)
        nothing_left(tmp_path)


# --- the environment -----------------------------------------------------------------------------


class Place(NamedTuple):
    """A start in a place where something is wrong, and what comes of it."""

    name: str
    files: dict[str, str | bytes | None]  # below the test's directory; None: a directory
    said: str  # a pattern: all that is printed
    mode: int = 0o600
    env: dict[str, str] = {}
    args: tuple[str, ...] = ("-c", "hi")  # after all settings are read: there is nothing to resume


CONFIG, STATE = "home/.config/amas", "home/.local/state/amas"
OURS, PROJECTS, TRUST = f"{CONFIG}/config.yaml", "project/.amas/config.yaml", f"{STATE}/trust.json"
SESSION = "project/.amas/sessions/1.jsonl"
TAKEN = r"amas: there is no earlier session in this project\n"  # the settings were read
LEFT_OUT = rf"\S+: not trusted, so left out: mode \(start with --trust to use them\)\n{TAKEN}"
NOT_KEPT = rf"\S+{TRUST}: Is a directory, so this will be asked again\n{TAKEN}"
LINES = "expected lines of `name: value`"


def settings(name: str, data: str | bytes | None, said: str, mode: int = 0o600) -> Place:
    return Place(f"settings: {name}", {OURS: data}, rf"amas: \S+{OURS}: {said}\n", mode)


def keys(name: str, data: str | bytes | None, said: str, mode: int = 0o600) -> Place:
    file = f"{CONFIG}/keys.yaml"
    return Place(f"keys: {name}", {file: data}, rf"amas: \S+{file}: {said}\n", mode)


def trust(name: str, data: str | bytes | None, said: str, *args: str) -> Place:
    files = {TRUST: data, PROJECTS: "mode: plan\n"}
    return Place(f"trust: {name}", files, said, args=(*args, "-c", "hi"))


PLACES = [
    settings("no YAML", "model: [\n", "line 2: not valid YAML: .+"),
    settings("a tab", "\tmodel: x\n", "line 1: not valid YAML: .+"),
    settings("zeros", b"model: \0\n", "not valid YAML: .+"),
    settings("a list", "- a\n", LINES),
    settings("a word", "hello\n", LINES),
    settings("a wrong type", "stream: 7\n", "stream: expected true or false, found 7"),
    settings("a wrong number", "max_turns: -1\n", "max_turns: expected a whole number.+ -1"),
    settings("bytes", b"\xff\xfe\0\1", "it is not UTF-8 text"),
    settings("a directory", None, "cannot be read: Is a directory"),
    settings("closed", "mode: ask\n", "cannot be read: Permission denied", 0),
    Place("settings: a mode", {OURS: "mode: yolo\n"}, r"amas: .*mode: .*'yolo'; choose from .+\n"),
    Place(
        "settings: unknown", {OURS: "strem: 1\n"}, rf"\S+: .* setting strem; .+ stream\?\n{TAKEN}"
    ),
    Place("settings: hostile", {OURS: json.dumps({HOSTILE: 1})}, rf"\S+: .* {SHOWN}\n{TAKEN}"),
    Place("settings: empty", {OURS: ""}, TAKEN),
    Place("settings: marked", {OURS: "\ufeffmodel: openai/x\r\n"}, TAKEN),
    keys("no YAML", "A: [\n", "line 2: not valid YAML: .+"),
    keys("a list", "- a\n", LINES),
    keys("a number", "OPENAI_API_KEY: 5\n", "OPENAI_API_KEY: expected text; put quotes .+"),
    keys("bytes", b"\xff\xfe", "it is not UTF-8 text"),
    keys("a directory", None, "cannot be read: Is a directory"),
    keys("closed", "A: b\n", "cannot be read: Permission denied", 0),
    keys("open", "A: b\n", r"others can read it; run: chmod 600 \S+", 0o644),
    trust("no JSON", "{", LEFT_OUT),
    trust("a list", "[]", LEFT_OUT),
    trust("bytes", b"\xff\0", LEFT_OUT),
    trust("a directory", None, LEFT_OUT),
    trust("given, and cannot be kept", None, NOT_KEPT, "--trust"),
    Place("a variable's type", {}, r"amas: .*: stream: .+\n", env={"AMAS_STREAM": "x"}),
    Place("a hostile variable", {}, r"amas: .*owned.+\n", env={"AMAS_MAX_TURNS": HOSTILE}),
    Place("no home", {}, TAKEN, env={"HOME": "{tmp}/no/home"}),
    Place("an impossible home", {}, TAKEN, env={"HOME": "/dev/null/home"}),
    Place("a home that is a file", {"file": ""}, TAKEN, env={"HOME": "{tmp}/file"}),
    Place("a session cut short", {SESSION: '{"type": "as'}, TAKEN),
    Place("a session of bytes", {SESSION: b"\0\xff\n{}\n[]\n5\n" * 99}, TAKEN),
    Place("a session that is a directory", {SESSION: None}, TAKEN),
]

# Root passes over permissions unless it gives up the right.
MODEST = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]


@pytest.mark.parametrize("place", PLACES, ids=[place.name for place in PLACES])
def test_what_is_wrong_where_it_starts_is_told_in_a_line_and_left_alone(
    project: Path, env: dict, tmp_path: Path, place: Place
) -> None:
    modest = MODEST if os.geteuid() == 0 and place.mode == 0 else []
    if modest and not shutil.which("setpriv"):
        pytest.skip("root may read everything, and there is no setpriv")
    files = {n: d.encode() if isinstance(d, str) else d for n, d in place.files.items()}
    for name, data in files.items():
        put(tmp_path / name, data, place.mode)
    more = {name: value.format(tmp=tmp_path) for name, value in place.env.items()}
    done = subprocess.run(
        [*modest, *AMAS, *place.args],
        cwd=project,
        env={**env, "OPENAI_API_KEY": "k", **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert re.fullmatch(place.said, done.stderr + done.stdout), done.stderr
    assert (done.returncode, "\x1b" in done.stderr) == (2, False)
    for name, data in files.items():
        assert there(tmp_path / name) == data
    nothing_left(tmp_path)


def put(path: Path, data: bytes | None, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if data is None:
        return path.mkdir()
    path.write_bytes(data)
    path.chmod(mode)


def there(path: Path) -> bytes | None:
    path.chmod(0o700)
    return None if path.is_dir() else path.read_bytes()


FUTURE = 2**33  # seconds: in the year 2242


def test_a_clock_that_went_back_changes_only_which_session_is_the_last(
    terminal: Callable, project: Path
) -> None:
    sessions = project / ".amas/sessions"
    sessions.mkdir(parents=True)
    for id, when in {"22420101-000000-aaaa": FUTURE, "20250101-000000-bbbb": 0}.items():
        said = {"type": "said", "message": {"role": "user", "content": f"from {when}"}}
        asked = {"type": "asked", "prompt": f"from {when}"}
        (sessions / f"{id}.jsonl").write_text(f"{json.dumps(asked)}\n{json.dumps(said)}\n")
        os.utime(sessions / f"{id}.jsonl", (when, when))
    chat = terminal("-c", "-m", "openai/x", OPENAI_API_KEY="k")
    ready(chat)
    assert f"Resumed 22420101-000000-aaaa: from {FUTURE}" in chat.all()
    tell(chat, "/history", "from 0")
    tell(chat, "/resume 2025", "Resumed 20250101-000000-bbbb: from 0")
    tell(chat, "/clear", "A new conversation.")
    chat.send(CTRL_D)
    assert chat.ended() == 0
    calm(chat)


@pytest.mark.parametrize(
    "data, mode",
    [(bytes(range(256)) * 9, 0o600), (b"+old\n", 0), (None, 0)],
    ids=["bytes", "closed", "a directory"],
)
def test_a_history_that_cannot_be_read_is_no_history(
    home: Path, project: Path, env: dict, data: bytes | None, mode: int
) -> None:
    modest = MODEST if os.geteuid() == 0 and shutil.which("setpriv") else []
    put(home / ".local/state/amas/history", data, mode)
    start = [*modest, *AMAS, "-m", "openai/x"]
    with Terminal(start, project, env | {"OPENAI_API_KEY": "k"}) as chat:
        tell(chat, "/mode plan", "Nothing is changed or run.")
        chat.send("\x1b[A")
        chat.wait("› /mode plan\n")
        chat.send(CTRL_U + CTRL_D)
        assert chat.ended() == 0
        calm(chat)


def test_a_working_directory_that_goes_away_costs_the_turn_and_not_the_chat(
    terminal: Callable, project: Path
) -> None:
    (project / "sub").mkdir()
    chat = terminal("-C", "sub", "-m", "openai/x", OPENAI_API_KEY="k")
    ready(chat)
    (project / "sub").rmdir()
    tell(chat, "go on", "The working directory is gone")
    assert prompt(chat) == "go on"
    chat.send(CTRL_U)
    tell(chat, "/undo", "There is nothing to bring back.")
    chat.send(CTRL_D)
    assert chat.ended() == 0
    calm(chat)
