"""Chats survive: killed at any moment, cut anywhere, they go on where they were."""

import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from amas_code.checkpoint import Checkpoints
from amas_code.recorded import INTERRUPTED, load, records
from amas_code.session import PASSING, listed
from tests import survival
from tests.conftest import AMAS, git, to
from tests.server import PROTOCOLS, Reply, Server, answer, call, say

CALLS = list(itertools.chain(*survival.ROUNDS))
STOPPED, NOT_DONE = "Stopped; unknown whether it was done.", "Not done: the turn was stopped."
HELD = "the last commit holds it already"  # the crash came between the commit and its entry
GONE = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGHUP: 129}  # exit statuses


@pytest.fixture
def work(project: Path, env: dict) -> Path:
    """The project that the script works on."""
    env["PYTHONPATH"] = str(Path(__file__).parent.parent)
    (project / "notes.txt").write_text(survival.NOTES)
    git(project, "add", "notes.txt")
    git(project, "commit", "-q", "-m", "notes")
    return project


@pytest.fixture
def run(work: Path, env: dict) -> Callable:
    """Run the script with these arguments, to its end."""

    def run(*args: object) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "tests.survival", *map(str, args)]
        return subprocess.run(command, cwd=work, env=env, capture_output=True, text=True)

    return run


def journal(work: Path) -> Path:
    [session] = listed(work / ".amas/sessions")
    return session.path


# Killed in the middle of a turn


def check_survival(work: Path, run: Callable, *strikes: tuple[int, int]) -> None:
    """Get these signals, one after another, then go on to the end: nothing is lost or done twice.

    strikes: at which call of a function, and which signal
    """
    messages: list[dict] = []
    for at, number in strikes:
        again = ["-c"] if listed(work / ".amas/sessions") else []
        died = run(*again, "--strike", at, int(number), "Do the work.")
        assert died.returncode == GONE[signal.Signals(number)], died.stderr
        messages = check_extended(work, messages)
    done = run(*(["-c"] if messages else []), "Go on.")
    assert (done.returncode, done.stdout[:9]) == (0, "All done."), done.stderr
    check_extended(work, messages)
    check_calls(work)
    check_files(work)


def check_extended(work: Path, before: list[dict]) -> list[dict]:
    """What was said so far is said still."""
    if not listed(work / ".amas/sessions"):
        assert not before
        return []
    after = load(journal(work)).messages
    assert after[: len(before)] == before
    asked = [r["prompt"] for r in records(journal(work)) if r["type"] == "asked"]
    said = [m["content"] for m in after if m["role"] == "user"]
    assert all(text.startswith(prompt) for text, prompt in zip(said, asked, strict=True))
    return after


def check_calls(work: Path) -> None:
    """Each tool call was made once and answered once, and the answer is true."""
    messages = load(journal(work)).messages
    made = [call for m in messages for call in m.get("tool_calls") or ()]
    asked = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in made]
    assert asked == CALLS
    answers = [(m["tool_call_id"], m["content"]) for m in messages if m["role"] == "tool"]
    assert [id for id, _ in answers] == [each["id"] for each in made]
    began = {r["action"]["id"] for r in records(journal(work)) if r["type"] == "began"}
    ran = Counter((work.parent / "ran").read_text().split())
    for (name, args), (id, result) in zip(CALLS, answers, strict=True):
        if name == "shell_command":
            times = ran.pop(args["command"].split()[1], 0)
            assert times <= (id in began and result != NOT_DONE), (args, result)
            assert times == 1 or result in (INTERRUPTED, STOPPED, NOT_DONE), (args, result)
    assert not ran


def check_files(work: Path) -> None:
    """What the model was told is on disk; the log of checkpoints tells of all that is."""
    messages = load(journal(work)).messages
    results = [m["content"] for m in messages if m["role"] == "tool"]
    for (_, args), result in zip(CALLS, results, strict=True):
        if result.startswith("Changed"):
            assert args["new_str"] in (work / "notes.txt").read_text()
        if result.startswith("Created"):
            assert (work / args["path"]).read_text() == args["content"]
        assert "Error" not in result
    assert git(work, "status", "--porcelain", "-uall") == ""
    checkpoints = Checkpoints(work)
    edits = [op for op in checkpoints.list() if op.kind == "edit"]
    assert checkpoints.recover() == []
    assert all(op.commit or op.private == HELD for op in edits), edits
    assert len(git(work, "log", "--grep", "^.amas.", "--format=%H").split()) == len(edits)
    checkpoints.undo(len(edits))
    assert (work / "notes.txt").read_text() == survival.NOTES
    assert not list(work.glob("new*")) and git(work, "status", "--porcelain", "-uall") == ""


@pytest.fixture(scope="session")
def total(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many calls of functions there are in a run that nobody disturbs."""
    home = tmp_path_factory.mktemp("whole")
    (home / "work").mkdir()
    git(home / "work", "init", "-q")
    (home / "work/notes.txt").write_text(survival.NOTES)
    root = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-m", "tests.survival", "Do the work."],
        cwd=home / "work",
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": root},
        capture_output=True,
        check=True,
    )
    return int(done.stdout.split()[-1])


def moments(seed: int, total: int, *numbers: int) -> list[tuple[int, int]]:
    chosen = random.Random(seed)
    return [(chosen.randrange(1, total * 9 // 10 // len(numbers)), number) for number in numbers]


@pytest.mark.parametrize("seed", range(6))
def test_kill_9_at_any_moment_loses_nothing_and_repeats_nothing(work, run, total, seed) -> None:
    check_survival(work, run, *moments(seed, total, signal.SIGKILL))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_chat_loses_nothing_and_repeats_nothing(work, run, total, number) -> None:
    check_survival(work, run, *moments(7, total, number))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_kill_9_at_any_of_forty_moments(work, run, total, seed) -> None:
    check_survival(work, run, *moments(seed, total, signal.SIGKILL))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200, 210))
def test_one_blow_after_another_is_survived(work, run, total, seed) -> None:
    numbers = random.Random(seed).choices([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP], k=3)
    check_survival(work, run, *moments(seed, total, *numbers))


# Cut or damaged anywhere


class Watcher:
    """A front that keeps what the conversation was after each line of the journal."""

    def __init__(self) -> None:
        self.chat: Any
        self.after: list[list[dict]] = [[], []]  # no line, and the one that the journal begins with

    def show(self, event: Any) -> None:
        if not isinstance(event, PASSING):
            self.after.append([*self.chat.agent.messages])

    def ask(self, action: Any) -> str:
        return "nobody is there"


@pytest.fixture
def recording(work: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    """A chat that read, edited, ran, went back and was compacted, in short messages."""
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(home))
    (work / "notes.txt").write_text("line 13\n")
    watcher = Watcher()
    talk = survival.chat(watcher, from_script())
    talk.system = "Be brief."
    for prompt in ("Do it.", "Grüße 🎉", "Do more.", "Well?"):
        if prompt == "Do more.":
            talk.agent.rewind(talk.turns.prompts[-1].length)
        talk.turn(prompt)
        if prompt == "Do more.":
            first, *_, last = talk.agent.messages
            summary = {"role": "user", "content": "(Summary) …"}
            talk.agent.replace([first, summary, last], "compacted")
    return watcher


def from_script() -> Callable[[list[dict], list[dict]], dict]:
    look, shout, note = survival.LOOK, survival.shout, survival.note
    calls = [[look, shout(13)], [note(1)], [], [], [], []]
    numbers = itertools.accumulate(map(len, calls), initial=0)
    replies = iter(
        survival.asking(made, each) if each else {"role": "assistant", "content": f"Done: {made}."}
        for made, each in zip(numbers, calls, strict=False)
    )
    return lambda messages, tools: next(replies)


def faults(messages: list[dict]) -> list[str]:
    """What a provider would refuse in the next request."""
    following = [*messages, {"role": "user", "content": "Go on."}]
    return [*PROTOCOLS["openai"].faults({"messages": following})]


def check_resumed(talk: Any, path: Path) -> list[dict]:
    """The session is gone on with, and what its journal tells is what the chat has.

    Returns the conversation that it goes on from.
    """
    talk.resume(path.stem)
    before = [*talk.agent.messages]
    assert not faults(before)
    talk.agent.say({"role": "assistant", "content": "So be it."})
    again = load(path)
    assert again.messages == talk.agent.messages
    assert vars(again.turns) == vars(talk.turns)
    talk.begin()
    return before


def test_a_journal_that_ends_at_any_byte_is_gone_on_with(recording: Watcher) -> None:
    talk, after = recording.chat, [*recording.after]
    path = talk.journal.path
    talk.begin()
    whole = path.read_bytes()
    assert json.dumps(load(path).messages) == json.dumps(after[-1])
    assert whole.count(b"\n") == len(after) - 1
    rows = [json.loads(line) for line in whole.splitlines()]
    for size in range(len(whole), -1, -1):
        os.truncate(path, size)
        lines = whole[: size + 1].count(b"\n")  # a last line that lacks but its end counts
        wanted = after[lines]
        match rows[lines - 1] if lines else {}:  # what is due is said
            case {"type": "asked", "prompt": prompt}:
                wanted = [*wanted, {"role": "user", "content": prompt}]
            case {"type": "ended"}:
                wanted = after[lines + 1]
        messages = check_resumed(talk, path)
        assert messages[: len(wanted)] == wanted
        assert all(m["content"] == INTERRUPTED for m in messages[len(wanted) :])


def test_a_journal_that_lost_any_line_is_gone_on_with(recording: Watcher) -> None:
    talk, path = recording.chat, recording.chat.journal.path
    talk.begin()
    lines = path.read_bytes().splitlines(keepends=True)
    for lost in range(2, len(lines)):
        for broken in (b"", b"\0" * 50 + b"\n", lines[lost][:-9], lines[lost] * 2):
            path.write_bytes(b"".join([*lines[:lost], broken, *lines[lost + 1 :]]))
            check_resumed(talk, path)


# The whole program, with the library that talks to models


def reply(body: dict) -> Reply:
    _, calls = survival.next_round(body["messages"])
    return answer(*(call(name, **args) for name, args in calls)) if calls else say("All done.")


def arguments(*words: str) -> list[str]:
    allowed = [word for command in survival.ALLOWED for word in ("--allow", command)]
    return [*AMAS, "-p", "--yes", *allowed, *words]


def wait(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def written(work: Path) -> int:
    """How many lines the journals have."""
    return sum(path.read_bytes().count(b"\n") for path in work.glob(".amas/sessions/*"))


def check_whole_program(work: Path, env: dict, lines: int, number: int) -> None:
    """Get the signal when the journal has so many lines, then go on to the end."""
    with Server(reply) as server:
        env = env | to(server.url)
        command = arguments("Do the work.")
        with subprocess.Popen(command, cwd=work, env=env, stderr=subprocess.DEVNULL) as started:
            wait(lambda: written(work) >= lines)
            started.send_signal(number)
        assert started.returncode == GONE[signal.Signals(number)]
        messages = check_extended(work, [])
        done = subprocess.run(
            arguments("-c", "Go on."), cwd=work, env=env, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (0, "All done.\n"), done.stderr
        cut_off = "the body is not a JSON object"  # it may have been killed while it sent one
        server.errors = [error for error in server.errors if not error.endswith(cut_off)]
    check_extended(work, messages)
    check_calls(work)
    check_files(work)


def test_the_whole_program_is_killed_and_goes_on(work: Path, env: dict) -> None:
    check_whole_program(work, env, 30, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_the_whole_program_is_killed_at_any_moment_and_goes_on(work, env, seed) -> None:
    chosen = random.Random(seed)
    number = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP][seed % 4]
    check_whole_program(work, env, chosen.randrange(3, 65), number)


# In which order it reaches the disk, by the system calls


class Called(NamedTuple):
    """A system call, as strace shows it: of fsync when it was over, of others when they began."""

    name: str
    what: str  # the arguments


TRACED = "trace=fsync,write,rename,renameat,renameat2,execve,connect"


def traced(command: list[str], work: Path, env: dict) -> list[Called]:
    """The system calls of a command and what it starts, in their order."""
    strace = shutil.which("strace")
    log = work.parent / "strace"
    if not strace or subprocess.run([strace, "-o", log, "true"], capture_output=True).returncode:
        pytest.skip("strace is not here, or may not trace")
    done = subprocess.run(
        [strace, "--seccomp-bpf", "-f", "-y", "-s", "2000", "-e", TRACED, "-o", log, *command],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return list(in_order(log.read_text(errors="replace").split("\n")))


def in_order(rows: list[str]) -> Iterator[Called]:
    unfinished: dict[str, str] = {}  # what each thread is to sync
    for row in rows:
        if found := re.match(r"(\d+) +<\.\.\. fsync resumed>", row):
            yield Called("fsync", unfinished.pop(found[1]))
        elif found := re.match(r"(\d+) +(\w+)\((.*)", row):
            thread, name, what = found.groups()
            if name == "fsync" and "<unfinished" in what:
                unfinished[thread] = what
            else:
                yield Called(name, what)


def check_order(calls: list[Called], port: str) -> None:
    """What tells of it is on the disk before a model is asked, a file replaced, a command run."""

    def place(name: str, *parts: str, after: int = 0) -> int:
        """Where the first such system call is."""
        return next(
            at
            for at, each in enumerate(calls)
            if at >= after and each.name.startswith(name) and all(p in each.what for p in parts)
        )

    journal, log = "/.amas/sessions/", "/.git/amas/log.jsonl>"
    said = place("write", journal, r"\"type\": \"said\"", r"\"role\": \"user\"")
    assert said < place("fsync", journal, after=said) < place("connect", f"htons({port})")
    landed = place("rename", '/notes.txt"')
    began = place("write", journal, r"\"type\": \"began\"", r"\"name\": \"edit_file\"")
    assert began < place("fsync", journal, after=began) < landed
    intent = place("write", log, r"\"state\": \"intent\"")
    assert began < intent < place("fsync", log, after=intent) < landed
    began = place("write", journal, r"\"type\": \"began\"", r"\"name\": \"shell_command\"")
    ran = place("execve", f'"--", "{survival.ALLOWED[0]}"]')
    assert began < place("fsync", journal, after=began) < ran


def test_what_is_said_and_meant_is_on_the_disk_before_it_is_done(work: Path, env: dict) -> None:
    """Shown by the order of the system calls, and claimed no further."""
    command = [sys.executable, "-m", "tests.survival", "Do the work."]
    check_order(traced(command, work, env), str(survival.PORT))


@pytest.mark.long
def test_the_whole_program_has_it_on_the_disk_before_it_is_done(work: Path, env: dict) -> None:
    with Server(reply) as server:
        calls = traced(arguments("Do the work."), work, env | to(server.url))
        check_order(calls, server.url.rpartition(":")[2])
