"""The journal: what was said can be rebuilt from it, and it never costs the chat."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from amas_code import __version__, session
from amas_code.events import (
    Action,
    Asked,
    Began,
    Edit,
    Ended,
    Notice,
    Output,
    Replaced,
    Rewound,
    Said,
    Text,
    Thought,
    ToolError,
    Usage,
)
from amas_code.recorded import INTERRUPTED, load
from amas_code.session import OPEN, Journal, listed
from tests.conftest import AMAS, git, to
from tests.server import Server, answer, call, say
from tests.terminal import Terminal

CALL = {
    "id": "call_1__thought__q/w==",
    "type": "function",
    "function": {"name": "read_file", "arguments": '{"path":  "ä.py", "n": 1.50}'},
}
TALK: list[dict] = [
    {"role": "system", "content": "You are…\n\x1b[31m\u202e\u2028"},
    {"role": "user", "content": "日本語 🎉 \t\\ \" ' \r\n"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "thinking_blocks": [{"a": [1]}]},
    {"role": "tool", "tool_call_id": CALL["id"], "content": "x" * 100_000},
    {"role": "assistant", "content": ""},
]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / ".amas/sessions", lambda event: None)


def record(journal: Journal, *events: object) -> None:
    for event in events:
        journal.listen(event)


def test_a_conversation_is_rebuilt_byte_for_byte(journal: Journal) -> None:
    usage = Usage("openai/x", 10, 20, 5, None, 1.5)
    record(journal, Asked("hello"), *map(Said, TALK), usage)
    again = session.load(journal.path)
    assert json.dumps(again.messages) == json.dumps(TALK)
    assert again.usage == [usage]


def test_what_was_taken_back_or_compacted_stays_so(journal: Journal) -> None:
    record(journal, *map(Said, TALK), Rewound(2))
    assert session.load(journal.path).messages == TALK[:2]
    record(journal, Replaced(TALK[:1], "compacted"), Said(TALK[1]))
    assert session.load(journal.path).messages == TALK[:2]


def test_a_torn_last_line_is_passed_over_and_written_after(journal: Journal) -> None:
    record(journal, Asked("hello"), *map(Said, TALK))
    whole = journal.path.read_bytes()
    for cut in (1, 2, 50, 90_000):
        journal.close()
        journal.path.write_bytes(whole[:-cut])
        again = Journal(journal.directory, lambda event: None, journal.id)
        kept = len(session.load(again.path).messages)
        assert kept in (3, 4, 5)
        record(again, Said({"role": "user", "content": "after the crash"}))
        messages = session.load(again.path).messages
        assert messages[:kept] == TALK[:kept]
        assert messages[-1] == {"role": "user", "content": "after the crash"}
        again.close()


def test_lines_that_are_no_events_are_passed_over(journal: Journal) -> None:
    record(journal, Said(TALK[1]))
    with journal.path.open("ab") as file:
        file.write(
            b'\n[]\nnull\n"x"\n{}\n\xff\xfe\n{"type": "said"}\n{"type": "said", "message": 1}\n'
        )
    record(journal, Said(TALK[4]))
    assert session.load(journal.path).messages == [TALK[1], TALK[4]]


def test_only_what_lasts_is_kept_and_no_file_contents(journal: Journal) -> None:
    edit = Edit(Path("/a.py"), b"before the edit", b"after the edit")
    action = Action("1", 1, "edit", "edit_file", {"path": "a.py"}, (edit,))
    record(journal, Text("x"), Thought("x"), Output("x"))
    assert not journal.path.exists()
    record(journal, Began(action), Ended("1", "Changed.", True))
    text = journal.path.read_text()
    assert '"paths": ["/a.py"]' in text and "the edit" not in text
    types = [json.loads(line)["type"] for line in text.splitlines()]
    assert types == ["session", "began", "ended"]


def test_a_journal_begins_with_what_wrote_it_and_where(journal: Journal) -> None:
    record(journal, Asked("hello"))
    first, second = map(json.loads, journal.path.read_text().splitlines())
    assert first.pop("time") and second.pop("time")
    about = {"type": "session", "version": 1, "id": journal.id}
    assert first == about | {"cwd": os.getcwd(), "amas": __version__}
    assert (second["type"], second["prompt"]) == ("asked", "hello")


def test_a_full_disk_costs_the_journal_and_is_told_once(tmp_path: Path) -> None:
    told: list = []
    journal = Journal(tmp_path / "sessions", told.append)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))  # no file may grow beyond it
    try:
        record(journal, Asked("hello"), *(Said(TALK[1]) for _ in range(20)))
        assert TALK[1] in session.load(journal.path).messages
        journal.switch()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert [type(event) for event in told] == [Notice]
    assert "This chat is not being saved" in told[0].text and "too large" in told[0].text
    record(journal, Asked("again"))
    assert journal.path.exists() and len(told) == 1


def test_it_is_private_and_out_of_git(journal: Journal) -> None:
    record(journal, Asked("hello"))
    assert journal.path.stat().st_mode & 0o777 == 0o600
    assert journal.directory.stat().st_mode & 0o777 == 0o700
    assert journal.directory.parent.stat().st_mode & 0o777 == 0o700
    root = journal.directory.parents[1]
    git(root, "init", "-q")
    assert git(root, "status", "--porcelain", "-uall") == ""
    (journal.directory.parent / "config.yaml").touch()  # what a team shares stays visible
    assert git(root, "status", "--porcelain", "-uall") == "?? .amas/config.yaml\n"


def test_sessions_are_listed_newest_first_by_their_first_prompt(journal: Journal) -> None:
    for number in range(3):
        journal = Journal(journal.directory, lambda event: None, f"s{number}")
        record(journal, Asked(f"prompt {number}"), Asked("another"))
        os.utime(journal.path, (number, number))
    (journal.directory / "broken.jsonl").write_bytes(b"\xff\n{")
    (journal.directory / "folder.jsonl").mkdir()
    assert [each.prompt for each in session.listed(journal.directory)] == [
        "prompt 2",
        "prompt 1",
        "prompt 0",
    ]
    assert session.listed(journal.directory / "nowhere") == []


def test_a_conversation_is_exported_as_markdown() -> None:
    text = session.markdown(TALK)
    assert text.startswith("## You\n\n日本語 🎉")
    assert '- `read_file` `{"path":  "ä.py", "n": 1.50}`' in text
    assert "You are" not in text


def test_the_chat_goes_on_where_nothing_can_be_saved(
    terminal: Callable, project: Path, home: Path
) -> None:
    for path in (project / ".amas", home / ".local"):
        path.write_text("in the way")
    with Server(lambda body: say(f"Answer {len(body['messages'])}.")) as server:
        chat: Terminal = terminal(**to(server.url))
        for wanted in ("Answer 2.", "Answer 4."):
            chat.wait(lambda _: " · context " in chat.shown().split("\n")[-1])
            chat.send("hello\r")
            text = chat.wait(wanted)
        assert text.count("This chat is not being saved") == 1


def test_a_resumed_conversation_extends_the_last_request_byte_for_byte(
    amas: Callable, project: Path
) -> None:
    script = [
        answer("Let me see.", call("read_file", path="calc.py"), call("list_files")),
        say("It subtracts. 日本語"),
        say("As I said."),
    ]
    with Server(script) as server:
        assert amas("-p", "what is wrong?", **to(server.url)).returncode == 0
        assert amas("-p", "-c", "and now?", **to(server.url)).returncode == 0
        before, after = (json.dumps(server.requests[n].body["messages"]) for n in (1, 2))
        assert after.startswith(before[:-1])
        tools = [json.dumps(request.body["tools"]) for request in server.requests]
        assert len(set(tools)) == 1
    assert re.fullmatch("", git(project, "status", "--porcelain", "-uall"))


# Where each prompt was said


def asked(prompt: str, *answers: dict) -> list:
    said = [{"role": "user", "content": prompt}, *answers]
    return [Asked(prompt), *map(Said, said)]


SYSTEM, DONE = {"role": "system", "content": "Be."}, {"role": "assistant", "content": "Done."}


def prompts(journal: Journal) -> list[tuple]:
    return [tuple(each) for each in load(journal.path).turns.prompts]


def test_prompts_are_told_with_the_length_of_the_conversation_before_them(journal: Journal) -> None:
    record(journal, Said(SYSTEM), *asked("one", DONE), *asked("two", DONE), *asked("three"))
    assert prompts(journal) == [(1, "one", 0), (2, "two", 3), (3, "three", 5)]


def test_prompts_beyond_a_rewind_are_gone_and_their_numbers_never_come_again(
    journal: Journal,
) -> None:
    record(journal, Said(SYSTEM), *asked("one", DONE), *asked("two", DONE), *asked("three", DONE))
    record(journal, Rewound(3), *asked("four", DONE))
    assert prompts(journal) == [(1, "one", 0), (4, "four", 3)]
    record(journal, Rewound(0), Said(SYSTEM), *asked("five"))
    assert prompts(journal) == [(5, "five", 0)]
    assert load(journal.path).turns.asked == 5


def test_a_compaction_leaves_prompts_that_no_conversation_goes_back_to(journal: Journal) -> None:
    record(journal, Said(SYSTEM), *asked("one", DONE), *asked("two", DONE))
    record(journal, Replaced([SYSTEM, DONE], "compacted"), *asked("three", DONE), *asked("four"))
    assert prompts(journal) == [(1, "one", None), (2, "two", None), (3, "three", 2), (4, "four", 4)]
    record(journal, Rewound(2))
    assert prompts(journal) == [(1, "one", None), (2, "two", None)]


# One writer


def test_a_session_that_is_open_elsewhere_is_not_touched(journal: Journal) -> None:
    record(journal, *asked("hello"))
    with journal.path.open("ab") as file:
        file.write(b'{"torn')
    before = journal.path.read_bytes(), journal.path.stat().st_mtime_ns
    other = Journal(journal.directory, lambda event: None)
    record(other, *asked("something else"))
    mine = other.path
    with pytest.raises(ToolError, match="^That session is open in another amas; close it there"):
        other.switch(journal.id)
    record(other, Said(DONE))
    assert other.path == mine and load(mine).messages[-1] == DONE
    assert (journal.path.read_bytes(), journal.path.stat().st_mtime_ns) == before
    journal.close()
    assert other.switch(journal.id).messages == [{"role": "user", "content": "hello"}]
    record(other, Said(DONE))
    assert load(journal.path).messages[-1] == DONE


def test_a_session_is_free_once_another_is_gone_on_with(journal: Journal) -> None:
    record(journal, *asked("hello"))
    first = journal.id
    journal.switch()
    other = Journal(journal.directory, lambda event: None)
    other.switch(first)
    with pytest.raises(FileNotFoundError):
        other.switch("there is none")
    assert other.id == first
    with pytest.raises(ToolError):
        journal.switch(first)


def test_an_open_chat_keeps_others_out_until_it_is_gone_however_it_ends(
    amas: Callable, terminal: Callable, talk: Callable, project: Path
) -> None:
    with Server([say("Hi.")]) as server:
        chat: Terminal = terminal(**to(server.url))
        chat.wait("context ")
        chat.send("hello\r")
        chat.wait("Hi.")
        [session] = listed(project / ".amas/sessions")
        wait(lambda: b'"Hi."' in session.path.read_bytes())
        before = session.path.read_bytes()
        done = amas("-p", "-c", "me too", **to(server.url))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"amas: {OPEN}\n"

        other: Terminal = terminal(**to(server.url))
        other.wait("context ")
        other.send(f"/resume {session.id}\r")
        other.wait(OPEN[:60])
        chat.process.kill()
        chat.process.wait()
        assert session.path.read_bytes() == before
        assert talk("-r", session.id, "me too").prompts == ["hello", "me too"]


def test_a_command_that_outlives_a_killed_amas_keeps_nobody_out(
    talk: Callable, project: Path, env: dict
) -> None:
    command = "echo $$ > ../pid; exec sleep 300"
    with Server([call("shell_command", command=command)]) as server:
        arguments = [*AMAS, "-p", "--allow", command, "wait"]
        with subprocess.Popen(arguments, cwd=project, env=env | to(server.url)) as started:
            pid = project.parent / "pid"
            wait(lambda: pid.exists() and pid.read_text().endswith("\n"))
            started.kill()
    assert talk("-c", "go on").prompts == ["wait", "go on"]
    os.kill(int(pid.read_text()), signal.SIGKILL)
    [session] = listed(project / ".amas/sessions")
    answers = [m["content"] for m in load(session.path).messages if m["role"] == "tool"]
    assert answers == [INTERRUPTED]


# A start that nothing stops


def wait(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Talk(NamedTuple):
    """What came of saying something."""

    prompts: list[str]  # that the model was sent
    told: str  # to the user


@pytest.fixture
def talk(project: Path, env: dict) -> Callable:
    """Say something in a process of its own, started by the words `before`."""

    def talk(*arguments: str, before: Sequence[str] = ()) -> Talk:
        done = subprocess.run(
            [*before, sys.executable, "-m", "tests.survival", "--echo", *arguments],
            cwd=project,
            env=env | {"PYTHONPATH": str(Path(__file__).parent.parent)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return Talk(json.loads(done.stdout), done.stderr)

    return talk


def test_whatever_lies_in_the_folder_the_last_session_is_gone_on_with(
    talk: Callable, project: Path
) -> None:
    folder = project / ".amas/sessions"
    assert talk("hello").prompts == ["hello"]
    (folder / "directory.jsonl").mkdir()
    os.mkfifo(folder / "pipe.jsonl")
    for name, target in (("loop", "loop.jsonl"), ("dangling", "nowhere"), ("zero", "/dev/zero")):
        (folder / f"{name}.jsonl").symlink_to(target)
    (folder / "\n\x1b.jsonl").write_bytes(b"\xff" * 1000)
    (folder / "deep.jsonl").write_text('{"a":' * 100_000)
    (folder / "untold.jsonl").write_text('{"type": "asked"}\n{"type": "asked", "prompt": 1}\n')
    (folder / "empty.jsonl").touch()
    with (folder / "large.jsonl").open("wb") as large:
        large.truncate(200_000_000)
    assert talk("-c", "again").prompts == ["hello", "again"]


def test_a_session_with_200_MB_of_rubbish_is_listed_at_once_and_gone_on_with(
    talk: Callable, project: Path
) -> None:
    assert talk("hello").prompts == ["hello"]
    [session] = listed(project / ".amas/sessions")
    os.truncate(session.path, session.size + 200_000_000)
    assert talk("-c", "again").prompts == ["hello", "again"]
    assert talk("-c", "and again").prompts == ["hello", "again", "and again"]


def test_lines_of_the_wrong_form_do_not_stop_a_start(talk: Callable, project: Path) -> None:
    assert talk("hello").prompts == ["hello"]
    [session] = listed(project / ".amas/sessions")
    with session.path.open("a") as file:
        for message in (
            {},
            {"role": "tool", "content": "x"},
            {"role": "tool", "tool_call_id": "1", "content": "no such call"},
            {"role": "assistant", "content": None, "tool_calls": 1},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        ):
            file.write(json.dumps({"type": "said", "message": message}) + "\n")
        file.write('{"type": "replaced", "messages": [{}]}\n{"type": "rewound", "length": -1}\n')
        file.write('{"type": "usage", "model": 1, "input": "x", "output": 1, "cached": 1}\n')
    assert talk("-c", "again").prompts == ["hello", "again"]


def test_only_the_beginning_of_a_first_prompt_is_read(journal: Journal) -> None:
    record(journal, Said(SYSTEM), Asked("Grüße\n" * 1_000_000), Said(DONE))
    [session] = listed(journal.directory)
    assert session.prompt.startswith("Grüße\nGrüße\n") and len(session.prompt) < 25_000


def test_the_last_session_is_the_last_though_the_clock_went_backwards(
    talk: Callable, project: Path
) -> None:
    assert talk("in 2099").prompts == ["in 2099"]
    [first] = listed(project / ".amas/sessions")
    os.utime(first.path, (4_070_908_800,) * 2)
    assert talk("today").prompts == ["today"]
    assert talk("-c", "again").prompts == ["today", "again"]
    assert talk("-r", first.id, "once more").prompts == ["in 2099", "once more"]
    assert talk("-c", "and again").prompts == ["in 2099", "once more", "and again"]
    assert all(each.when <= time.time() for each in listed(project / ".amas/sessions"))


def test_sessions_of_the_same_moment_are_in_the_order_of_their_names(journal: Journal) -> None:
    for id in ("b", "c", "a"):
        journal = Journal(journal.directory, lambda event: None, id)
        record(journal, Asked(id))
        journal.close()
    for path in journal.directory.iterdir():
        os.utime(path, (1, 1))
    assert [each.id for each in listed(journal.directory)] == ["c", "b", "a"]


@pytest.mark.parametrize("what", ["a file", "folder a file", "a loop", "a link", "dangling"])
def test_where_the_project_has_no_place_for_sessions_ours_has(
    talk: Callable, project: Path, home: Path, what: str
) -> None:
    ours = project / ".amas"
    if what == "a file":
        ours.touch()
    elif what == "folder a file":
        ours.mkdir()
        (ours / "sessions").touch()
    else:
        target = {"a loop": ".amas", "a link": str(home), "dangling": "nowhere"}[what]
        ours.symlink_to(target)
    assert talk("hello").prompts == ["hello"]
    assert talk("-c", "again").prompts == ["hello", "again"]
    assert len(list(home.glob(".local/state/amas/sessions/project-*/*.jsonl"))) == 1


def test_projects_whose_paths_look_alike_have_sessions_of_their_own(tmp_path: Path) -> None:
    there = {session.place(root, tmp_path) for root in (Path("/a/b-c"), Path("/a-b/c"))}
    assert len(there) == 2


@pytest.fixture
def unprivileged() -> list[str]:
    """What a command begins with that shall have no more rights than other users."""
    if os.geteuid():
        return []
    if not shutil.which("setpriv"):
        pytest.skip("the superuser may do everything, and setpriv is not here")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]


def test_what_may_not_be_read_or_written_does_not_stop_a_start(
    talk: Callable, project: Path, unprivileged: list[str]
) -> None:
    folder = project / ".amas/sessions"
    talk("one")
    [first] = listed(folder)
    talk("two")
    [second, _] = listed(folder)
    second.path.chmod(0)  # no right to read it: the one before is the last
    again = talk("-c", "again", before=unprivileged)
    assert (again.prompts, again.told) == (["one", "again"], f"Resumed {first.id}: one\n")
    first.path.chmod(0o400)  # to read it, but not to write
    again = talk("-c", "unsaved", before=unprivileged)
    assert again.prompts == ["one", "again", "unsaved"]
    assert "This chat is not being saved" in again.told and "Permission denied" in again.told
    (project / ".amas").chmod(0)  # as when another user made it
    assert talk("three", before=unprivileged).prompts == ["three"]
    assert talk("-c", "again", before=unprivileged).prompts == ["three", "again"]
    (project / ".amas").chmod(0o700)
    assert load(first.path).turns.asked == 2


def test_a_read_only_project_has_its_sessions_in_our_state_directory(
    talk: Callable, project: Path, unprivileged: list[str]
) -> None:
    project.chmod(0o555)
    assert talk("hello", before=unprivileged).prompts == ["hello"]
    assert talk("-c", "again", before=unprivileged).prompts == ["hello", "again"]
    assert not (project / ".amas").exists()


def test_a_full_disk_stops_no_chat_and_what_was_saved_is_gone_on_with(
    talk: Callable, project: Path
) -> None:
    """On a real file system of 40 KB, where one may be mounted."""
    unshare = shutil.which("unshare")
    if not unshare or subprocess.run([unshare, "-m", "true"], capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    folder = project / ".amas/sessions"
    folder.mkdir(parents=True)
    mounted = 'mount -t tmpfs -o size=40k none .amas/sessions && "$@"; cp .amas/sessions/* ..'
    full = talk("one " + "x" * 15_000, before=[unshare, "-m", "sh", "-c", mounted, "sh"])
    assert full.told.count("This chat is not being saved") == 1
    assert "No space left on device" in full.told
    [left] = project.parent.glob("*.jsonl")
    left.rename(folder / left.name)
    assert talk("-c", "again").prompts == [*full.prompts, "again"]


def test_a_file_system_without_locks_will_do(talk: Callable) -> None:
    strace = ["strace", "-f", "-qq", "-e", "trace=flock", "-e", "inject=flock:error=ENOLCK"]
    if not shutil.which("strace") or subprocess.run([*strace, "true"]).returncode:
        pytest.skip("strace is not here, or may not trace")
    told = talk("hello", before=strace).told
    assert "ENOLCK" in told and "not being saved" not in told
    assert talk("-c", "again", before=strace).prompts == ["hello", "again"]
