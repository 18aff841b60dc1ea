"""The journal: what was said can be rebuilt from it, and it never costs the chat."""

import json
import os
import re
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from amas_code import session
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
    Usage,
)
from amas_code.session import Journal
from tests.conftest import git, to
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
    assert again.id == journal.id


def test_what_was_taken_back_or_compacted_stays_so(journal: Journal) -> None:
    record(journal, *map(Said, TALK), Rewound(2))
    assert session.load(journal.path).messages == TALK[:2]
    record(journal, Replaced(TALK[:1], "compacted"), Said(TALK[1]))
    assert session.load(journal.path).messages == TALK[:2]


def test_a_torn_last_line_is_passed_over_and_written_after(journal: Journal) -> None:
    record(journal, Asked("hello"), *map(Said, TALK))
    whole = journal.path.read_bytes()
    for cut in (1, 2, 50, 90_000):
        journal.path.write_bytes(whole[:-cut])
        again = Journal(journal.directory, lambda event: None, journal.id)
        kept = len(session.load(again.path).messages)
        assert kept in (3, 4, 5)
        record(again, Said({"role": "user", "content": "after the crash"}))
        messages = session.load(again.path).messages
        assert messages == [*TALK[:kept], {"role": "user", "content": "after the crash"}]


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
    assert [json.loads(line)["type"] for line in text.splitlines()] == ["began", "ended"]


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
        journal.switch(f"s{number}")
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


def test_the_chat_goes_on_where_nothing_can_be_saved(terminal: Callable, project: Path) -> None:
    (project / ".amas").write_text("in the way")
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
