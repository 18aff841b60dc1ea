"""A small machine: all processes of amas together held to 256 MB, and to a fifth of one core."""

import contextlib
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import AMAS, git, to
from tests.server import Server, call, say
from tests.terminal import Terminal

GROUPS = Path("/sys/fs/cgroup")
MEMORY = 256 * 1024 * 1024  # bytes
SHARE = 20_000, 100_000  # microseconds of processor time in each so many
INTO = 'for group; do [ "$group" = -- ] && break; echo $$ > "$group/cgroup.procs"; shift; done'
SLOWLY = 110.0  # seconds until we give up on it; five times as long as otherwise

WORK = [
    call("read_file", path="calc.py"),
    call("edit_file", path="calc.py", old_str="return a - b", new_str="return a + b"),
    call("shell_command", command="wc -l calc.py > lines.txt"),
    say("It adds now."),
]


@contextlib.contextmanager
def control_groups() -> Iterator[list[Path]]:
    """Groups of our own with both limits, of either version of the kernel's interface."""
    name, made = f"amas-{uuid.uuid4().hex[:8]}", list[Path]()
    limits = (
        {"": {"memory.max": MEMORY, "cpu.max": " ".join(map(str, SHARE))}}
        if (GROUPS / "cgroup.controllers").exists()
        else {
            "memory": {"memory.limit_in_bytes": MEMORY},
            "cpu": {"cpu.cfs_period_us": SHARE[1], "cpu.cfs_quota_us": SHARE[0]},
        }
    )
    try:
        for controller, files in limits.items():
            group = GROUPS / controller / name
            group.mkdir()
            made.append(group)
            for file, value in files.items():
                (group / file).write_text(str(value))
        yield made
    except OSError as error:
        pytest.skip(f"this machine lets us make no control groups: {error}")
    finally:
        for group in made:
            with contextlib.suppress(OSError):
                group.rmdir()


@pytest.fixture
def small(project: Path, env: dict) -> Iterator:
    """Start amas with these arguments on a pty, within the limits."""
    with control_groups() as groups, contextlib.ExitStack() as stack:
        inside = ["sh", "-c", f'{INTO}; shift; exec "$@"', "sh", *map(str, groups), "--"]

        def start(*args: str, **more: str) -> Terminal:
            return stack.enter_context(Terminal([*inside, *AMAS, *args], project, env | more))

        yield start
        held(groups[0])


def held(group: Path) -> None:
    """Make sure that it was the group that amas ran in, and nothing was killed in it."""
    for peak in ("memory.peak", "memory.max_usage_in_bytes"):
        if (group / peak).exists():
            assert 20_000_000 < int((group / peak).read_text()) <= MEMORY
    for file in ("memory.events", "memory.oom_control"):
        if (group / file).exists():
            told = dict(row.split() for row in (group / file).read_text().splitlines())
            assert told.get("oom_kill", "0") == "0", told


pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have what is compiled once there already: that is not what is tried here."""
    with Server([say("Hello.")]) as server:
        settings = to(server.url) | {"HOME": str(tmp_path_factory.mktemp("home"))}
        subprocess.run([*AMAS, "-p", "hello"], env={**os.environ, **settings}, check=True)


def test_a_task_a_continued_one_and_undo(small, project: Path) -> None:
    with Server([*WORK, say("You are welcome.")]) as server:
        there = to(server.url) | {"AMAS_YES": "1", "AMAS_ALLOW": "wc -l calc.py > lines.txt"}
        assert small("fix it", **there).ended(SLOWLY) == 0
        assert "return a + b" in git(project, "show", "HEAD:calc.py")
        assert (project / "lines.txt").exists()
        thanks = small("-c", "thanks", **there)
        assert thanks.ended(SLOWLY) == 0 and "You are welcome." in thanks.all()
    assert small("undo", "2", "-y").ended(SLOWLY) == 0
    assert "return a - b" in (project / "calc.py").read_text()


def test_a_chat_answers_keys_while_litellm_is_imported(small, project: Path) -> None:
    with Server(WORK) as server:
        chat = small(**to(server.url))
        chat.wait("· context ", SLOWLY)
        chat.send("fix it")  # from here on it is imported, in the pauses
        chat.wait("fix it", SLOWLY)
        chat.send(" soon")
        chat.wait("fix it soon", SLOWLY)
        chat.send("\r")
        for number in (1, 2):  # the edit, the command
            chat.wait(lambda text, number=number: text.count("Go ahead?") == number, SLOWLY)
            chat.send("y")
        chat.wait("It adds now.", SLOWLY)
        assert "return a + b" in (project / "calc.py").read_text()
        chat.wait(lambda text: "· context " in text.splitlines()[-1], SLOWLY)
        chat.send("/quit\r")
        assert chat.ended(SLOWLY) == 0


@pytest.mark.long
def test_the_demo(small) -> None:
    demo = small("demo")
    for _ in range(5):
        seen = demo.all().count("Go ahead?")
        demo.wait(lambda text, n=seen: text.count("Go ahead?") > n or "Next:" in text, SLOWLY)
        demo.send("y")
    demo.wait("Next: `amas config`", SLOWLY)
    assert demo.ended(SLOWLY) == 0
