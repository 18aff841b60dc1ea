"""The chat as a person has it: the real program on a pty, a scripted model behind real litellm."""

import os
import re
import signal
import subprocess
import termios
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from amas_code.commands import COMMANDS
from tests.conftest import AMAS, git, to
from tests.server import (
    Reply,
    Server,
    answer,
    bad_key,
    call,
    error,
    say,
    stall,
)
from tests.terminal import Terminal

ENTER, ESC, TAB, ALT_ENTER, SHIFT_TAB = "\r", "\x1b", "\t", "\x1b\r", "\x1b[Z"
CTRL_C, CTRL_D, CTRL_G, CTRL_R, CTRL_U = "\x03", "\x04", "\x07", "\x12", "\x15"
ADD = "def add(a, b):\n    return a + b\n"
SUBTRACT = "def add(a, b):\n    return a - b\n"


def fix() -> Reply:
    return call("edit_file", path="calc.py", old_str="a - b", new_str="a + b")


def ready(chat: Terminal) -> str:
    """Wait for the prompt: the bottom line is there only with it."""
    return chat.wait(lambda _: " · context " in chat.shown().split("\n")[-1])


def prompt(chat: Terminal) -> str:
    """What stands in the prompt."""
    ready(chat)
    rows = chat.shown().split("\n")
    start = max(n for n, row in enumerate(rows) if row.startswith("›"))
    return "\n".join(row[2:] for row in rows[start:-1]).rstrip()


def tell(chat: Terminal, line: str, wanted: str) -> str:
    """Type a line, wait until it has led to this once more and the prompt is back; all there is."""
    before = ready(chat).count(wanted)
    chat.send(line + ENTER)
    chat.wait(lambda text: text.count(wanted) > before)
    return ready(chat)


def leave(chat: Terminal) -> None:
    chat.send(CTRL_D)
    assert chat.ended() == 0


def said(server: Server, role: str = "user", request: int = -1) -> list[str]:
    """The texts of one role in a request."""
    messages = server.requests[request].body["messages"]
    return [str(message["content"]) for message in messages if message["role"] == role]


# --- edits ---------------------------------------------------------------------------------------


def test_edits_are_asked_about_undone_and_made_again(terminal: Callable, project: Path) -> None:
    calc, new = project / "calc.py", project / "new.py"
    long = "".join(f"row {n}\n" for n in range(80))
    script = [
        answer("I'll write it.", call("create_file", path="new.py", content="x = 1\n")),
        say("Created."),
        call("read_file", path="calc.py"),
        fix(),
        say("Declined, I see."),
        fix(),
        call("create_file", path="long.txt", content=long),
        call("delete_file", path="long.txt"),
        call("edit_file", path="calc.py", old_str="nowhere", new_str="x"),
        say("All of it is done."),
    ]
    with Server(script) as server:
        chat = terminal(**to(server.url))
        ready(chat)
        chat.send("create new.py" + ENTER)
        text = chat.wait("Go ahead?")
        assert "new file new.py\n    1 + x = 1\n" in text
        assert not new.exists()
        chat.send("y")
        chat.wait("Created.")
        text = ready(chat)
        assert new.read_text() == "x = 1\n"
        assert re.search(r"● create_file new\.py · \+1 −0", text)
        assert re.search(r"1 file changed \(\+1 −0\) · [\d.]+k tokens · cost unknown · \d+ s", text)

        chat.send("fix add" + ENTER)
        chat.wait("    2 -     return a - b\n    2 +     return a + b")
        chat.send("n")
        chat.wait("Why not?")
        chat.send("keep it as it is" + ENTER)
        chat.wait("Declined, I see.")
        ready(chat)
        assert calc.read_text() == SUBTRACT
        assert "keep it as it is" in said(server, "tool")[-1]

        chat.send("do it all" + ENTER)
        chat.wait(lambda text: text.count("Go ahead?") == 3)
        chat.send("a")  # all edits from now on
        chat.wait("Go ahead? y yes · n no, and why · a all edits from now on a")
        text = chat.wait("d the whole diff")  # of deleting it, which is asked about even so
        assert len(re.findall(r"\d [+-] row \d+", text)) < 60 and text.count(" more lines") == 2
        assert (project / "long.txt").read_text() == long and calc.read_text() == ADD
        assert "80 - row 79" not in text
        chat.send("d")
        chat.wait(lambda text: "80 - row 79" in text and text.count("d the whole diff") == 2)
        chat.send("y")
        chat.wait("All of it is done.")
        text = ready(chat)
        assert not (project / "long.txt").exists()
        assert re.search(r"● edit_file calc\.py · Error: old_str does not occur", text)
        assert "auto-edit" in chat.shown().split("\n")[-1]

        assert "Undone: delete long.txt" in tell(chat, "/undo", "Undone: delete")
        assert (project / "long.txt").read_text() == long
        tell(chat, "/redo", "Done again: delete")
        assert not (project / "long.txt").exists()
        tell(chat, "/undo 3", "Undone: edit calc.py")
        assert calc.read_text() == SUBTRACT and not (project / "long.txt").exists()
        tell(chat, "/undo x", "'x' is no number")
        chat.send("/quit" + ENTER)
        assert chat.ended() == 0
    assert b"\x1b[?1049" not in chat.raw
    assert b"\a" not in chat.raw
    assert git(project, "status", "--porcelain", "-uall") == ""


def test_what_a_command_did_is_looked_at_and_taken_back(terminal: Callable, project: Path) -> None:
    (project / "notes.txt").write_text("mine\n")
    command = (
        "rm notes.txt; mkdir out; echo 1 > out/a; echo '[red]' > out/b; sed -i s/add/plus/ calc.py"
    )
    script = [fix(), call("shell_command", command=command), say("Cleaned up.")]
    with Server(script) as server:
        chat = terminal("--mode", "auto-edit", **to(server.url))
        ready(chat)
        chat.send("clean up" + ENTER)
        chat.wait("Go ahead?")
        chat.send("y")
        chat.wait("Cleaned up.")
        ready(chat)
        result = [m for m in server.requests[-1].body["messages"] if m["role"] == "tool"][-1]
        assert "changed 4 files: calc.py, notes.txt, out/a, out/b" in result["content"]
        chat.send("/undo" + ENTER)
        text = chat.wait("Number (Enter: none)")
        for row in ("new file notes.txt", "1 + mine", "delete out/b", "1 - [red]"):
            assert row in text
        assert re.search(r"- def plus\(a, b\):\n +1 \+ def add", text)
        chat.send(ENTER)
        chat.wait("Nothing was brought back.")
        assert not (project / "notes.txt").exists()
        ready(chat)
        chat.send("/undo" + ENTER)
        chat.wait(lambda text: text.count("Number (Enter: none)") == 2)
        chat.send("2" + ENTER)
        chat.wait("Which files?")
        chat.send("1-2" + ENTER)
        chat.wait("Undone: ran rm notes.txt")
        assert (project / "notes.txt").read_text() == "mine\n"
        assert (project / "calc.py").read_text() == ADD and (project / "out/a").exists()
        tell(chat, "!rm out/a", "changed 1 file")
        ready(chat)
        chat.send("/undo" + ENTER)
        chat.wait(lambda text: text.count("Number (Enter: none)") == 4)
        chat.send("1" + ENTER)
        chat.wait("Undone: ran rm out/a")
        assert (project / "out/a").exists()
        leave(chat)


def test_no_key_reaches_model_screen_or_journal(
    terminal: Callable, project: Path, home: Path
) -> None:
    secret, known = "ghp_" + "a1B2c3D4e5F6" * 3, "my-own-key-0123"
    (project / "deploy.py").write_text(f"TOKEN = '{secret}'\n" + "\n" * 9 + "retries = 3\n")
    mark = "<redacted:github token>"
    show = "cat deploy.py; printf %s $AMAS_API_KEY; sleep 0.3; echo"
    script = [
        call("read_file", path="deploy.py"),
        call("shell_command", command=show),
        call("edit_file", path="deploy.py", old_str="retries = 3", new_str=f"old = '{mark}'"),
        call("edit_file", path="deploy.py", old_str=f"TOKEN = '{mark}'", new_str="x"),
        call("edit_file", path="deploy.py", old_str="TOKEN = 1", new_str="TOKEN"),
        call("shell_command", command=f"echo '{mark}' > deploy.py"),
        say("Seen."),
        say("Yes."),
    ]
    with Server(script) as server:
        chat = terminal(**to(server.url) | {"AMAS_API_KEY": known})
        ready(chat)
        chat.send(f"look at @deploy.py with {secret}" + ENTER)
        chat.wait("Go ahead?")
        chat.send("y")
        chat.wait("Seen.")
        tell(chat, "!cat deploy.py", "exit status 0")
        tell(chat, "and now?", "Yes.")
        told = str([request.body for request in server.requests])
        journals = "".join(p.read_text() for p in (project / ".amas/sessions").iterdir())
        history = (home / ".local/state/amas/history").read_text()
        after = chat.all().partition("Not shown to the model: github token.")[2]  # not as typed
        assert "TOKEN" in after
        for text in (told, journals, history, after):
            assert secret not in text and known not in text
        messages = server.requests[-1].body["messages"]
        results = [m["content"] for m in messages if m["role"] == "tool"]
        assert f"TOKEN = '{mark}'" in results[0]
        assert f"TOKEN = '{mark}'\n" in results[1] and "3\n<redacted:api key>\n" in results[1]
        assert "real value was never shown to you" in results[2]
        assert "does not occur" in results[3] and "quote lines without it" in results[3]
        assert mark in results[4]
        assert "real value was never shown to you" in results[5]
        assert secret in (project / "deploy.py").read_text()
        leave(chat)


def test_rewind_takes_conversation_and_files_back_to_an_earlier_prompt(
    terminal: Callable, project: Path
) -> None:
    calc, new = project / "calc.py", project / "new.txt"
    work = [
        call("create_file", path="new.txt", content="x\n"),
        call("shell_command", command="rm calc.py"),
        say("Broken."),
    ]
    with Server([fix(), say("Fixed."), *work, say("Again."), *work, say("Seen.")]) as server:
        chat = terminal("--mode", "auto-edit", "--allow", "rm calc.py", **to(server.url))

        tell(chat, "fix it", "Fixed.")
        tell(chat, "now break it", "Broken.")
        assert new.exists() and not calc.exists()
        chat.send(ESC + ESC)
        text = chat.wait("2  fix it\n")
        assert re.search(r"1  now break it\n +2  fix it\n", text)
        chat.send("1" + ENTER)
        text = chat.wait("3  both\n")
        assert re.search(r"1  files only\n +2  the conversation only\n +3  both\n", text)
        chat.send("3" + ENTER)
        chat.wait("Take back?")
        chat.send("1" + ENTER)
        chat.wait("The conversation is back before this prompt.")
        assert prompt(chat) == "now break it"
        assert calc.read_text() == ADD and not new.exists()
        tell(chat, " again", "Again.")
        assert said(server) == [said(server)[0], "now break it again"]
        tell(chat, "break it", "Broken.")
        chat.send("/rewind" + ENTER)
        chat.wait(lambda text: text.count("Back to before which prompt?") == 2)
        chat.send("3" + ENTER)
        chat.wait(lambda text: text.count("What goes back?") == 2)
        chat.send("1" + ENTER)  # files only, from the first prompt on
        chat.wait(lambda text: text.count("Take back?") == 2)
        chat.send("1" + ENTER)
        chat.wait("Undone: edit calc.py")
        assert not new.exists() and calc.read_text() == SUBTRACT
        tell(chat, "and now?", "Seen.")
        assert "The user brought files back" in said(server)[-1]
        leave(chat)


def test_checkpoints_are_set_listed_and_gone_back_to(terminal: Callable, project: Path) -> None:
    script = [call("read_file", path="calc.py"), fix(), say("Fixed.")]
    with Server(script) as server:
        chat = terminal("--yes", **to(server.url))
        tell(chat, "/checkpoint", "No checkpoints yet")
        tell(chat, "/checkpoint save before", "is set")
        tell(chat, "fix it", "Fixed.")
        assert (project / "calc.py").read_text() == ADD
        listed = tell(chat, "/checkpoint list", "before")
        assert re.search(r"● \w+  \d\d:\d\d  edit calc\.py: fix it", listed)
        tell(chat, "/diff", "    2 +     return a + b")
        tell(chat, "/checkpoint restore before", "Undone: edit calc.py")
        assert (project / "calc.py").read_text() == SUBTRACT
        tell(chat, "/checkpoint restore nonsense", "nonsense")
        chat.send("/checkpoint squash" + ENTER)
        chat.wait("Number")
        chat.send(ENTER)
        chat.wait("Nothing was folded.")


# --- the turn ------------------------------------------------------------------------------------


def test_tokens_are_shown_as_they_come_and_nothing_typed_meanwhile_is_echoed(
    terminal: Callable, project: Path
) -> None:
    thinking, talking, asking = (threading.Event() for _ in range(3))
    script = [
        stall(thinking, say("Half of the answer is here, and now the rest of it."), after=30),
        stall(talking, say("Another half, and that was all."), after=12),
        stall(asking, answer("Now an edit.", call("read_file", path="calc.py")), after=8),
        fix(),
        say("So be it."),
    ]
    with Server(script) as server:
        chat = terminal(AMAS_BELL_AFTER="0", **to(server.url))
        ready(chat)
        chat.send("hello" + ENTER)
        chat.wait("Half of the answer")
        chat.wait(lambda text: re.search(r"· [1-9]\d* s · Esc stops", text) is not None)
        assert not termios.tcgetattr(chat.master)[3] & termios.ECHO
        assert "rest of it" not in chat.all()
        chat.send("/mode plan" + ENTER + "/mode ask" + ENTER)  # commands wait for the end
        chat.wait("› /mode ask")
        thinking.set()
        chat.wait("Nothing is changed or run.")
        chat.wait("Every edit and command is asked about.")
        text = ready(chat)
        assert text.count("Half of the answer is here, and now the rest of it.") == 1
        assert "Esc stops" not in text
        assert b"\a" in chat.raw

        # What is typed and not sent stands in the next prompt.
        chat.send("again" + ENTER)
        chat.wait("Another half")
        chat.send("half a thought")
        chat.wait("› half a thought")
        talking.set()
        chat.wait("that was all.")
        assert prompt(chat) == "half a thought"
        chat.send(CTRL_U)

        # A 'y' typed before the question is there does not answer it.
        chat.send("edit" + ENTER)
        chat.wait("Now an")
        chat.send("y" + ENTER + "y")
        chat.wait("› y\n› y")
        asking.set()
        chat.wait("Go ahead?")
        chat.send("n")
        chat.wait("Why not?")
        chat.send(ENTER)
        chat.wait("So be it.")
        assert prompt(chat) == "y"
        assert (project / "calc.py").read_text() == SUBTRACT
        assert said(server)[-1] == "y"  # the line that was sent
        assert "user said no" in said(server, "tool")[-1]


def test_lines_typed_while_it_works_are_sent_after_the_running_tool(
    terminal: Callable, project: Path
) -> None:
    wait = "echo started; until [ -e go ]; do sleep 0.05; done; rm go"
    script = [call("shell_command", command=wait), say("Noted.")]
    with Server(script) as server:
        chat = terminal(AMAS_ALLOW=wait, **to(server.url))
        ready(chat)
        chat.send("work" + ENTER)
        chat.wait("    started")  # its output as it comes
        chat.send("and mind the tests" + ENTER + "one more thing" + ENTER)
        chat.wait("› and mind the tests\n› one more thing")
        (project / "go").touch()
        chat.wait("Noted.")
        text = ready(chat)
        assert said(server)[1:] == ["and mind the tests", "one more thing"]
        roles = [message["role"] for message in server.requests[-1].body["messages"]]
        assert roles[-4:] == ["assistant", "tool", "user", "user"]
        assert re.search(r"● shell_command echo started; until .* · exit status 0, [\d.]+ s", text)
        assert "1 command" in text
        assert "› and mind the tests\n› one more thing\n\nNoted." in text


@pytest.mark.parametrize("key", [CTRL_C, ESC], ids=["ctrl-c", "esc"])
def test_a_turn_can_be_stopped_and_what_was_said_is_kept(
    terminal: Callable, project: Path, key: str
) -> None:
    never = threading.Event()
    script = [
        stall(never, say("The first half stays, the second never came."), after=25),
        call("shell_command", command="echo begun; sleep 100"),
        call("edit_file", path="calc.py", old_str="a - b", new_str="a + b"),
        say("Here again."),
    ]
    with Server(script) as server:
        chat = terminal("--allow", "echo begun; sleep 100", **to(server.url))
        ready(chat)
        chat.send("talk" + ENTER)
        chat.wait("The first half")
        chat.send(key)
        chat.wait("Stopped.")
        assert "The first half" in ready(chat)
        chat.send("run" + ENTER)
        chat.wait("    begun")
        chat.send(key)
        chat.wait(lambda text: text.count("Stopped.") == 2)
        ready(chat)
        assert said(server, "assistant")[0].startswith("The first half")
        chat.send("edit" + ENTER)
        chat.wait("Go ahead?")
        chat.send(key)
        chat.wait(lambda text: text.count("Stopped.") == 3)
        tell(chat, "and now?", "Here again.")
        assert (project / "calc.py").read_text() == SUBTRACT
        assert "Stopped" in said(server, "tool")[0] and "Stopped" in said(server, "tool")[1]
        assert chat.process.poll() is None


def test_a_wrong_key_or_no_network_costs_the_turn_and_not_the_line(terminal: Callable) -> None:
    def script(body: dict) -> object:
        return next(replies)

    replies = iter([bad_key(), error(400, "no such thing"), say("Now it works.")])
    with Server(script) as server:
        chat = terminal(**to(server.url))
        ready(chat)
        chat.send("say something" + ENTER)
        text = chat.wait("the key was not accepted")
        assert "amas config" in text.replace("\n", " ") and "Traceback" not in text
        assert prompt(chat) == "say something"
        chat.send(ENTER)
        chat.wait("no such thing")
        assert prompt(chat) == "say something"
        chat.send(" again" + ENTER)
        chat.wait("Now it works.")
        ready(chat)
        assert len(said(server)) == 1 and said(server)[0].startswith("say something again")


def test_a_long_chat_is_compacted_and_goes_on(terminal: Callable) -> None:
    script = [
        say("First answer."),
        say("Second answer."),
        say("The user greeted twice."),
        say("Third answer."),
    ]
    with Server(script) as server:
        chat = terminal(**to(server.url))
        tell(chat, "/compact", "nothing to compact")
        tell(chat, "hello " + "and so on " * 400, "First answer.")
        tell(chat, "hello again", "Second answer.")
        tell(chat, "/compact the names", "goes on from the summary")
        assert "the names" in said(server)[0] and "hello and so on" in said(server)[0]
        tell(chat, "and now?", "Third answer.")
        assert "The user greeted twice." in said(server)[0]
        assert len(str(server.requests[-1].body["messages"])) < len(
            str(server.requests[1].body["messages"])
        )


# --- input ---------------------------------------------------------------------------------------


def test_several_lines_are_one_message_and_files_are_put_into_it(
    terminal: Callable, project: Path
) -> None:
    (project / "many.txt").write_text("".join(f"line {n}\n" for n in range(1, 51)))
    (project / "docs").mkdir()
    (project / "docs/plan.md").write_text("the plan\n")
    with Server(lambda body: say(f"Answer {len(body['messages'])}.")) as server:
        chat = terminal(**to(server.url))
        ready(chat)
        chat.send("one" + ALT_ENTER + "two\\" + ENTER + "three" + ENTER)
        chat.wait("Answer 2.")
        assert said(server)[0].startswith("one\ntwo\nthree\n\n(")
        ready(chat)
        chat.send("\x1b[200~pasted\nlines [red]\x1b[201~")
        chat.wait("lines [red]")
        chat.send(ENTER)
        chat.wait("Answer 4.")
        assert said(server)[1] == "pasted\nlines [red]"
        tell(chat, "see @many.txt:10-12 and @docs and @nothing.txt", "Answer 6.")
        text = said(server)[2]
        assert "    10\tline 10\n    11\tline 11\n    12\tline 12" in text
        assert "line 13" not in text and "  plan.md" in text
        assert "@nothing.txt: no such file" in chat.all()

        # Commands of the user's own.
        tell(chat, "!echo to both of us", "exit status 0")
        tell(chat, "!!echo to me alone", "to me alone\n")
        chat.send("!echo waiting; sleep 100" + ENTER)
        chat.wait("    waiting")
        chat.send(CTRL_C)
        tell(chat, "go on", "Answer 8.")
        assert "I ran `echo to both of us`:\nto both of us" in said(server)[3]
        assert "alone" not in str(server.requests[-1].body)
        tell(chat, "/attach docs/plan.md", "With the next message")
        tell(chat, "and this", "Answer 10.")
        assert "the plan" in said(server)[4]


def test_the_prompt_completes_remembers_and_searches(
    terminal: Callable, project: Path, home: Path
) -> None:
    (project / "some_module.py").touch()
    editor = project.parent / "editor"
    editor.write_text('#!/bin/sh\necho "edited elsewhere" > "$1"\n')
    editor.chmod(0o755)
    chat = terminal("-m", "openai/x", OPENAI_API_KEY="k", EDITOR=str(editor))
    assert ready(chat).startswith("Amas ")
    chat.send("/chec")
    chat.wait("[list] | save NAME")  # the menu tells what each does
    chat.send(TAB)
    chat.wait("› /checkpoint")
    chat.send(CTRL_U + "see @smod")
    chat.wait("some_module.py")
    chat.send(TAB)
    chat.wait("› see @some_module.py")
    chat.send(CTRL_U + CTRL_G)
    chat.wait("› edited elsewhere")
    chat.send(CTRL_U)
    for mode in ("auto-edit", "plan", "ask"):
        chat.send(SHIFT_TAB)
        chat.wait(lambda _, mode=mode: f" · {mode} · " in chat.shown().split("\n")[-1])
    tell(chat, "/mode plan", "Nothing is changed or run.")
    tell(chat, "/mode ask", "is asked about.")
    assert chat.shown().split("\n")[-1].strip() == ("openai/x · ask · context 0% · $0.0000 · main")
    chat.send("not sent" + CTRL_C)
    chat.wait("Ctrl-C again")
    chat.send(CTRL_C)
    assert chat.ended() == 0
    assert (home / ".local/state/amas/history").stat().st_mode & 0o077 == 0

    again = terminal("-m", "openai/x", OPENAI_API_KEY="k")
    ready(again)
    again.send("\x1b[A")
    again.wait("› /mode ask")
    again.send(CTRL_U + CTRL_R + "pla")
    again.wait("/mode plan")
    again.send(ENTER)  # takes what was found, and sends nothing yet
    again.wait("› /mode plan")
    again.send(ENTER)
    again.wait("Nothing is changed or run.")
    ready(again)
    leave(again)


# --- commands ------------------------------------------------------------------------------------

EACH = {
    "help": ("", "/checkpoint"),
    "model": ("openai/test-model", "Model: openai/test-model."),
    "mode": ("nonsense", "There is no mode nonsense; choose from ask"),
    "undo": ("", "There is nothing to bring back."),
    "redo": ("", "There is nothing to bring back."),
    "checkpoint": ("", "No checkpoints yet"),
    "diff": ("", "This session changed nothing."),
    "context": ("", "of 128,000 tokens"),
    "cost": ("", "openai/test-model: "),
    "attach": ("", "Usage: /attach"),
    "copy": ("", "Copied the last answer (12 characters)."),
    "history": ("", "hello there"),
    "resume": ("nonsense", "No session begins with nonsense."),
    "export": ("talk.md", "Written: talk.md"),
    "config": ("", "max_turns: 0"),
    "clear": ("", "A new conversation."),
    "new": ("", "A new conversation."),
    "rewind": ("", "There is no earlier prompt."),
}


def test_every_slash_command_answers(terminal: Callable, project: Path) -> None:
    assert {*EACH, "compact", "quit"} == set(COMMANDS)
    with Server([say("Good [b]day."), say("Another.")]) as server:
        chat = terminal(rows=60, **to(server.url))
        tell(chat, "/compact", "There is nothing to compact yet.")
        tell(chat, "hello there", "Good [b]day.")
        for name, (rest, wanted) in EACH.items():
            tell(chat, f"/{name} {rest}".strip(), wanted)
        assert b"\x1b]52;c;R29vZCBbYl1kYXku\a" in chat.raw
        written = (project / "talk.md").read_text()
        assert written.startswith("## You\n\nhello there") and "## Amas\n\nGood [b]day." in written
        tell(chat, "/hlep", "There is no /hlep. Did you mean /help?")
        tell(chat, "/zzzzzz", "There is no /zzzzzz. /help lists all.")
        tell(chat, "/export talk.md", "File exists")
        tell(chat, "/etc/passwd is a file", "Another.")  # a path is no command
        assert "hello there" not in str(said(server))  # the conversation is a new one
        chat.send("/quit" + ENTER)
        assert chat.ended() == 0


def test_earlier_conversations_are_taken_up_again(terminal: Callable, project: Path) -> None:
    with Server(lambda body: say(f"Answer {len(body['messages'])}.")) as server:
        chat = terminal(**to(server.url))
        tell(chat, "the first talk", "Answer 2.")
        tell(chat, "/clear", "A new conversation.")
        tell(chat, "the second talk", "Answer 2.")
        chat.send("/resume" + ENTER)
        chat.wait("Number")
        chat.send("1" + ENTER)
        chat.wait("Resumed ")
        chat.wait(": the first talk")
        tell(chat, "go on", "Answer 4.")
        assert said(server)[0].startswith("the first talk")
        chat.send("/quit" + ENTER)
        assert chat.ended() == 0
        id = re.findall(r"Go on with: amas -r (\S+)", chat.all())[0]
        assert len(list((project / ".amas/sessions").iterdir())) == 2

        chat = terminal("-c", **to(server.url))  # the one written to last
        assert f"Resumed {id}: the first talk" in ready(chat)
        tell(chat, "still there?", "Answer 6.")
        assert [text.split("\n")[0] for text in said(server)] == [
            "the first talk",
            "go on",
            "still there?",
        ]
        chat.send(CTRL_D)
        chat.ended()
        missing = terminal("-r", "nonsense", **to(server.url))
        assert missing.ended() == 2
        assert "No session begins with nonsense" in missing.all()
        chat = terminal("-r", id[:-1], **to(server.url))
        chat.wait(f"Resumed {id}")
        ready(chat)
        assert git(project, "status", "--porcelain", "-uall") == ""


# --- terminals -----------------------------------------------------------------------------------

MARKDOWN = """# Title

日本語 and 🎉

- item

```python
x = 1  # note
```

| a | b |
|---|---|
| 1 | 2 |
"""


@pytest.mark.parametrize(
    "columns, more",
    [(60, {}), (200, {}), (80, {"NO_COLOR": "1"}), (80, {"TERM": "dumb"})],
    ids=["60 columns", "200 columns", "NO_COLOR", "TERM=dumb"],
)
def test_any_terminal_shows_a_turn(
    terminal: Callable, project: Path, columns: int, more: dict
) -> None:
    script = [answer("I fix it.", call("read_file", path="calc.py")), fix(), say(MARKDOWN)]
    with Server(script) as server:
        chat = terminal(columns=columns, rows=24, **to(server.url), **more)
        chat.wait("›")
        chat.send("fix" + ENTER)
        chat.wait("a all edits from now on")
        chat.send("y")
        chat.wait("1 file changed")
        text = chat.all()
        for part in ("Title", "日本語 and 🎉", "• item", "  x = 1  # note", "a  b", "1  2"):
            assert part in text.replace("日 本 語", "日本語"), text
        assert (project / "calc.py").read_text() == ADD
        chat.send("/quit" + ENTER)
        assert chat.ended() == 0
    raw = chat.raw.decode()
    assert "\x1b[?1049" not in raw and "Esc stops" not in chat.all()
    if more:
        assert not re.search(r"\x1b\[(?:[\d;]*;)?[349]\d(?:;[\d;]*)?m", raw)
    if more.get("TERM") == "dumb":
        assert not re.search(r"\x1b\[[\d;]*[ABCDHJ]", raw)


def test_in_a_pipe_it_is_plain_text(project: Path, env: dict) -> None:
    script = [call("read_file", path="calc.py"), fix(), say(MARKDOWN)]
    with Server(script) as server:
        done = subprocess.run(
            [*AMAS, "--yes", "fix"],
            cwd=project,
            env=env | to(server.url),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout and "Esc stops" not in done.stdout
    assert "● edit_file calc.py · +1 −1" in done.stdout and "日本語 and 🎉" in done.stdout
    assert done.stdout.count("Title") == 1


def test_hostile_names_and_texts_never_reach_the_terminal_raw(
    terminal: Callable, project: Path
) -> None:
    hostile = "\x1b]0;owned\x07\x9b31m\u202e\x1b[2J[red]"
    name = f"evil{hostile}.txt".replace("/", "")
    (project / name).write_text(hostile)
    script = [
        answer(f"See {hostile}", call("read_file", path=name), thought=hostile),
        call("shell_command", command="cat evil*"),
        call("list_files", path="."),
        call("create_file", path=f"new{hostile}", content=hostile),
        call("no_such_tool" + "x", path=hostile),
        say(hostile),
    ]
    with Server(script) as server:
        chat = terminal("--allow", "cat evil*", **to(server.url))
        ready(chat)
        chat.send("see @ev")
        chat.send(CTRL_U)
        chat.send("look" + ENTER)
        chat.wait("Go ahead?")
        chat.send("n")
        chat.wait("Why not?")
        chat.send(ENTER)
        chat.wait("tokens")
        ready(chat)
        tell(chat, "/history", "look")
        tell(chat, "!cat evil*", "exit status")
    raw = chat.raw.decode("utf-8", "replace")
    assert "owned" in raw and "[red]" in raw
    for bad in ("\x1b]0", "\x9b", "\u202e", "\x1b[2J"):
        assert bad not in raw, repr(raw[max(raw.index(bad) - 80, 0) : raw.index(bad) + 20])


# --- crashes -------------------------------------------------------------------------------------


def test_a_chat_killed_in_the_middle_of_a_turn_goes_on_without_doing_anything_twice(
    terminal: Callable, project: Path
) -> None:
    command = "echo ran >> log; sleep 100"
    script = [
        answer("I run it.", call("shell_command", command=command), call("list_files")),
        say("I see that it was cut short."),
    ]
    with Server(script) as server:
        chat = terminal("--allow", command, **to(server.url))
        ready(chat)
        chat.send("run it" + ENTER)
        chat.wait(lambda _: (project / "log").exists())
        os.kill(chat.process.pid, signal.SIGKILL)
        chat.process.wait()
        again = terminal("-c", "--allow", command, **to(server.url))
        ready(again)
        tell(again, "what happened?", "cut short.")
        assert said(server)[0].startswith("run it") and said(server)[1] == "what happened?"
        assert said(server, "tool") == ["Interrupted; unknown whether it ran."] * 2
        assert (project / "log").read_text() == "ran\n"
