"""Commands always end, take everything they started with them, and say how they ended."""

import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc

import pytest

from amas_code.events import ToolError
from amas_code.shell import Shell

WAIT_FOR_GO = "until [ -e go ]; do sleep 0.05; done"


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell = Shell()
    yield shell
    shell.close()


def alive(pid):
    stat = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return stat.stdout.strip()[:1] not in ("", "Z")


def eventually(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def assert_gone(pids):
    assert pids
    eventually(lambda: not any(alive(pid) for pid in pids))


def pids(text):
    return [int(word) for word in re.findall(r"^\d+$", text, re.M)]


def read_until(shell, id, word, text=""):
    """All that a background command printed until the word came."""
    seen = [text]

    def came():
        seen.append(shell.output(id))
        return word in "".join(seen)

    if word not in text:
        eventually(came)
    return "".join(seen)


# --- how a command ends -----------------------------------------------------------------------


def test_the_result_is_the_output_and_how_it_ended(shell):
    assert re.fullmatch(r"hello\n\(exit status 0, \d+\.\d s\)", shell.run("echo hello"))


def test_output_without_a_final_newline_keeps_the_last_line_apart(shell):
    assert shell.run("printf hello").startswith("hello\n(exit status 0")


def test_silence_is_only_the_ending(shell):
    assert shell.run("true").startswith("(exit status 0")


def test_the_exit_status_is_told(shell):
    assert "(exit status 3," in shell.run("exit 3")
    assert "(exit status 127," in shell.run("no_such_command_here")


def test_a_signal_is_told_by_its_name(shell):
    assert "(killed by SIGSEGV," in shell.run("ulimit -c 0; kill -SEGV $$")
    assert "(killed by SIGKILL," in shell.run("kill -KILL $$")


def test_a_signal_inside_the_command_is_told_too(shell):
    assert "(exit status 137 (SIGKILL)," in shell.run("sh -c 'kill -KILL $$'; exit $?")


def test_stdout_and_stderr_come_in_order(shell):
    result = shell.run("for i in 1 2 3; do echo out$i; echo err$i >&2; done")
    assert result.split("\n")[:6] == ["out1", "err1", "out2", "err2", "out3", "err3"]


def test_a_python_child_is_not_buffered_out_of_order(shell):
    code = "import sys; print('a'); print('b', file=sys.stderr); print('c')"
    assert shell.run(f'{sys.executable} -c "{code}"').startswith("a\nb\nc\n")


def test_nothing_waits_for_input(shell):
    assert shell.run("cat").startswith("(exit status 0")
    assert shell.run("read answer || echo nobody").startswith("nobody\n")


def test_no_pager_editor_or_password_prompt_is_waited_for(shell):
    variables = "$TERM $PAGER $GIT_PAGER $GIT_TERMINAL_PROMPT $GIT_EDITOR"
    assert shell.run(f"echo {variables}").startswith("dumb cat cat 0 true\n")


def test_the_environment_can_be_given(monkeypatch):
    monkeypatch.setenv("SECRET", "key")
    shell = Shell(env={"PATH": os.defpath, "COLOUR": "blue"})
    assert shell.run("echo $COLOUR:$SECRET:$TERM").startswith("blue::dumb\n")


def test_the_environment_is_inherited_otherwise(shell, monkeypatch):
    monkeypatch.setenv("COLOUR", "green")
    assert shell.run("echo $COLOUR").startswith("green\n")


def test_a_command_that_begins_with_a_dash_is_no_option(shell):
    assert "-x: command not found" in shell.run("-x")


def test_a_command_that_cannot_be_started_is_a_tool_error(shell):
    for command in ("echo \0", "echo \ud800", "echo " + "x" * 3_000_000):
        with pytest.raises(ToolError, match="could not be started"):
            shell.run(command)
        with pytest.raises(ToolError, match="could not be started"):
            shell.start(command)


# --- timeouts and what is left behind ---------------------------------------------------------


def test_a_timeout_returns_what_was_printed_and_what_to_do(shell):
    result = shell.run("echo first; sleep 1000", timeout=1)
    assert result.startswith("first\n(timed out after 1 s: ask for more with timeout=…")
    assert "background=true" in result


def test_a_timeout_takes_the_whole_tree(shell):
    result = shell.run("echo $$; sh -c 'sleep 1000 & echo $!; wait' & wait", timeout=1)
    assert len(pids(result)) == 2
    assert_gone(pids(result))


def test_a_command_that_ignores_sigterm_dies_too(shell):
    result = shell.run("trap '' TERM; echo $$; while :; do sleep 1; done", timeout=1)
    assert "timed out" in result
    assert_gone(pids(result))


def test_a_command_may_say_goodbye_on_timeout(shell):
    result = shell.run("trap 'echo goodbye; exit' TERM; while :; do sleep 0.1; done", timeout=1)
    assert "goodbye\n(timed out" in result


def test_a_command_that_closed_its_output_still_times_out(shell):
    assert shell.run("exec >&- 2>&-; sleep 1000", timeout=1).startswith("(timed out")


def test_too_long_a_timeout_is_cut_and_said():
    result = Shell(max_timeout=1).run("sleep 1000", timeout=9999)
    assert "timed out after 1 s" in result
    assert "timeout cut to 1 s, the longest" in result


def test_a_command_does_not_wait_for_what_it_left_running(shell):
    result = shell.run("sleep 1000 & echo $!")
    assert "(exit status 0" in result
    assert "background=true" in result
    assert_gone(pids(result))


def test_what_is_left_running_silently_is_ended_too(shell):
    result = shell.run("sleep 1000 >/dev/null 2>&1 & echo $!")
    assert "what it left running was ended" in result
    assert_gone(pids(result))


def test_the_last_words_of_a_helper_are_waited_for(shell):
    result = shell.run("echo hello > >(cat)")
    assert result.startswith("hello\n")
    assert "left running" not in result


def test_ctrl_c_ends_the_tree_and_flies_on(tmp_path):
    script = """
import signal
from amas_code.shell import Shell
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    Shell().run("trap '' TERM; sleep 1000 & echo $$ $! > pids; wait; sleep 1000")
except KeyboardInterrupt:
    print("interrupted")
"""
    arguments = [sys.executable, "-c", script]
    with subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as child:
        written = tmp_path / "pids"
        eventually(lambda: written.exists() and len(written.read_text().split()) == 2)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=30)[0] == "interrupted\n"
    assert_gone(written.read_text().split())


def test_a_front_that_breaks_leaves_no_command_behind(tmp_path):
    def break_down(chunk):
        raise RuntimeError(chunk)

    with pytest.raises(RuntimeError) as broken:
        Shell(show=break_down).run("echo $$; sleep 1000")
    assert_gone(pids(str(broken.value)))


# --- output of any size and kind --------------------------------------------------------------


def test_output_is_shown_as_it_comes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = []

    def show(chunk):
        shown.append(chunk)
        (tmp_path / "go").touch()

    result = Shell(show).run(f"echo ready; {WAIT_FOR_GO}; echo set")
    assert "".join(shown) == "ready\nset\n"
    assert result.startswith("ready\nset\n(exit status 0")


def test_long_output_keeps_its_head_and_its_tail(shell):
    result = shell.run("echo first; head -c 10000000 /dev/zero | tr '\\0' x; echo last")
    assert result.startswith("first\nxxx")
    assert "\n… 9970011 characters left out …\n" in result
    assert "xxx" + "last\n(exit status 0" in result
    assert len(result) < 30_200


def test_endless_output_stays_small():
    tracemalloc.start()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    result = Shell().run("yes", timeout=1)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert "timed out" in result
    assert len(result) < 30_200
    assert peak < 2_000_000


def test_binary_output_is_no_trouble(shell):
    assert "(exit status 3" in shell.run("head -c 200000 /dev/urandom; exit 3")
    assert shell.run(r"printf 'a\377b'").startswith("a\ufffdb\n")


def test_characters_are_not_torn_between_two_reads():
    shown = []
    Shell(shown.append).run("printf x; head -c 300000 /dev/zero | sed 's/\\x00/é/g'")
    assert "".join(shown) == "x" + "é" * 300_000


def test_a_torn_character_at_the_end_is_shown_as_such(shell):
    assert shell.run(r"printf 'a\303'").startswith("a\ufffd\n")


# --- in the background ------------------------------------------------------------------------


def test_a_background_command_is_started_listed_read_and_stopped(shell):
    started = shell.start("echo $$; echo one; sleep 1000")
    assert "background command 1: running" in started
    assert shell.running() == [("1", "echo $$; echo one; sleep 1000")]
    text = read_until(shell, "1", "one", started)
    assert "background command 1: exit status 143 (SIGTERM)" in shell.stop("1")
    assert shell.running() == []
    assert_gone(pids(text))


def test_only_what_is_new_is_read(shell, tmp_path):
    text = shell.start(f"echo one; {WAIT_FOR_GO}; echo two; exit 4")
    read_until(shell, "1", "one", text)
    assert "nothing new" in shell.output("1")
    (tmp_path / "go").touch()
    later = read_until(shell, "1", "exit status 4")
    assert "two" in later
    assert "one" not in later


def test_a_server_that_cannot_start_says_so(shell):
    text = shell.start("echo address in use >&2; exit 1")
    assert "address in use\n" in read_until(shell, "1", "background command 1: exit status 1", text)


def test_how_it_ended_can_be_asked_again(shell):
    read_until(shell, "1", "exit status 5", shell.start("exit 5"))
    assert shell.output("1") == "(nothing new; background command 1: exit status 5)"
    assert shell.stop("1") == "(nothing new; background command 1: exit status 5)"


def test_an_unknown_id_lists_the_known(shell):
    with pytest.raises(ToolError, match="'7'. Known: none"):
        shell.output("7")
    shell.start("sleep 1000")
    with pytest.raises(ToolError, match=r"'7'. Known: 1 \(sleep 1000\)"):
        shell.stop("7")


def test_a_flood_neither_stalls_a_background_command_nor_grows(shell, tmp_path):
    shell.start(f"{WAIT_FOR_GO}; seq 2000000; touch flooded; sleep 1000")
    (tmp_path / "go").touch()
    eventually((tmp_path / "flooded").exists)
    text = read_until(shell, "1", "\n2000000\n")
    assert text.startswith("1\n2\n3\n")
    assert "characters left out" in text
    assert all(len(each) < 30_300 for each in text.split("(background command 1"))


def test_an_endless_background_flood_can_be_stopped(shell):
    assert len(shell.start("yes")) < 30_300
    assert len(shell.output("1")) < 30_300
    assert "exit status 143 (SIGTERM)" in shell.stop("1")


def test_a_flood_that_nobody_read_does_not_look_alive(shell, tmp_path):
    shell.start(f"{WAIT_FOR_GO}; seq 2000000")
    (tmp_path / "go").touch()
    eventually(lambda: shell.running() == [])
    assert "\n2000000\n(background command 1: exit status 0)" in shell.output("1")


def test_what_a_background_command_leaves_running_still_counts_as_running(shell):
    text = read_until(shell, "1", "\n", shell.start("sleep 1000 & echo $!"))
    assert shell.running() == [("1", "sleep 1000 & echo $!")]
    shell.stop("1")
    assert_gone(pids(text))


def test_stopping_ends_what_ignores_sigterm(shell):
    text = shell.start("trap '' TERM; echo $$; while :; do sleep 1; done")
    text = read_until(shell, "1", "\n(background", text)
    assert "exit status 137 (SIGKILL)" in shell.stop("1")
    assert_gone(pids(text))


def test_the_last_words_after_stop_are_read(shell, tmp_path):
    text = shell.start("trap 'echo goodbye; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    read_until(shell, "1", "up", text)
    assert "goodbye\n(background command 1: exit status 0)" in shell.stop("1")


def test_nothing_survives_close(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell = Shell()
    texts = [shell.start("echo $$; sleep 1000 & echo $!; wait") for _ in range(2)]
    texts = [read_until(shell, str(n), "\n(back", text) for n, text in enumerate(texts, 1)]
    shell.close()
    shell.close()
    assert shell.running() == []
    assert len(pids("\n".join(texts))) == 4
    assert_gone(pids("\n".join(texts)))


def test_background_commands_die_when_amas_is_killed(tmp_path):
    script = """
from amas_code.shell import Shell
shell = Shell()
shell.start("sleep 1000 & echo $$ $! > pids; wait")
print("started", flush=True)
input()
"""
    arguments, pipe = [sys.executable, "-c", script], subprocess.PIPE
    with subprocess.Popen(arguments, cwd=tmp_path, stdin=pipe, stdout=pipe) as child:
        assert child.stdout.readline() == b"started\n"
        written = tmp_path / "pids"
        eventually(lambda: written.exists() and len(written.read_text().split()) == 2)
        child.kill()
    assert_gone(written.read_text().split())


def test_the_project_has_no_say_in_how_background_commands_are_kept(shell, tmp_path):
    (tmp_path / "selectors.py").write_text("raise SystemExit('hijacked')")
    (tmp_path / "amas_code").mkdir()
    (tmp_path / "amas_code" / "__init__.py").write_text("raise SystemExit('hijacked')")
    assert "fine" in read_until(shell, "1", "fine", shell.start("echo fine; sleep 1000"))
