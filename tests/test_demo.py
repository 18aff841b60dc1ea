"""The README's first command: the whole loop with no key and no network."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import AMAS


def test_the_demo_answers_itself_where_nobody_is(amas, project: Path, home: Path) -> None:
    done = amas("demo")
    assert done.returncode == 0, done.stderr
    for words in ("scripted model", "XIIII, not XIV", "all good", "[amas] edit roman.py", "Undone"):
        assert words in done.stdout
    assert done.stdout.index("exit status 1") < done.stdout.index("exit status 0")
    assert "\x1b" not in done.stdout
    assert sorted(p.name for p in project.iterdir()) == [".git", "calc.py"]
    assert not list(home.iterdir())


def test_the_demo_needs_no_network(project: Path, env: dict) -> None:
    probe = ["unshare", "-rn", "true"]
    try:
        if subprocess.run(probe, capture_output=True).returncode:
            pytest.skip("no network namespaces here")
    except FileNotFoundError:
        pytest.skip("no unshare here")
    done = subprocess.run(
        ["unshare", "-rn", *AMAS, "demo"], cwd=project, env=env, capture_output=True
    )
    assert done.returncode == 0 and b"all good" in done.stdout


def test_the_demo_asks_a_person(terminal) -> None:
    with terminal("demo") as screen:
        for _ in range(5):
            seen = screen.all().count("Go ahead?")
            screen.wait(lambda text, seen=seen: text.count("Go ahead?") > seen or "Next:" in text)
            screen.send("y")
        screen.wait("Next: `amas config`")
        assert screen.ended() == 0
        assert "all good" in screen.all() and "Undone" in screen.all()


def test_declining_in_the_demo_changes_nothing(terminal) -> None:
    with terminal("demo") as screen:
        screen.wait("Go ahead?")
        screen.send("n")
        screen.wait("Why not?")
        screen.send("not today\n")
        screen.wait(lambda text: text.count("Go ahead?") == 2)
        screen.send("n")
        screen.wait(lambda text: text.count("Why not?") == 2)
        screen.send("\n")
        screen.wait("You said no")
        assert screen.ended() == 0


def test_the_module_can_be_run_too(project: Path, env: dict) -> None:
    command = [sys.executable, "-m", "amas_code", "--version"]
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True)
    assert done.stdout.startswith("amas, version ")
