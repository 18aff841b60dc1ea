"""Measures amas against its budget: time, memory and tokens on this machine, as a Markdown table.

    python -m tests.benchmark [--runs 3] [--quick]

Every number is of the real program, in a process of its own; the model is tests.server, which
answers at once. Beside it stands litellm alone: a process that imports it and sends the same
request. Nothing here fails because of a number.
"""

import argparse
import compileall
import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from amas_code import config, pipes, places, startup
from amas_code.amas import build
from amas_code.providers import Model
from tests.conftest import AMAS, git
from tests.server import PROTOCOLS, Reply, Request, Server, call, route, say
from tests.terminal import Terminal

COMMAND = "wc -l part0.py"
TASK = ["-p", "--yes", "--allow", COMMAND, "Work through the parts."]
EDGE = 20  # calls at each end of a long task, to see how the time between them grows

ALONE = """
import json, sys, litellm
for chunk in litellm.completion(**json.load(sys.stdin)):
    pass
"""
CLOCKED = "from tests.benchmark import clocked; clocked()"


class Row(NamedTuple):
    """A line of the table; what the budget does not name stays empty."""

    what: str
    amas: str
    alone: str = ""
    must: str = ""
    aim: str = ""


class Run(NamedTuple):
    """One process from start to exit; times are of the monotonic clock, in seconds."""

    started: float
    ended: float
    peak: float  # MB, of the largest resident set it had
    requests: list[Request]

    @property
    def whole(self) -> float:
        return self.ended - self.started

    @property
    def first(self) -> float:
        """Until the first request had arrived."""
        return self.requests[0].time - self.started


class Prompt(NamedTuple):
    """A chat that nobody types in."""

    ready: float  # seconds
    resident: float  # MB
    peak: float


# Something to do


def reads(count: int) -> list[Reply]:
    """Calls that take next to no time, no two of them alike."""
    return [call("read_file", path="tiny.txt", end_line=10 + n) for n in range(count)]


def work(count: int) -> list[Reply]:
    """Tool calls of a task: of each five two read, two change something, one is a command."""
    fives = [five(f"part{n}.py", f"new{n}.py") for n in range(count // 5)]
    return [one for each in fives for one in each]


def five(path: str, new: str) -> list[Reply]:
    return [
        call("read_file", path=path),
        call("edit_file", path=path, old_str="return 0", new_str="return 1"),
        call("create_file", path=new, content="def new():\n    return 2\n"),
        call("read_file", path=new),
        call("shell_command", command=COMMAND),
    ]


@contextlib.contextmanager
def desk() -> Iterator[tuple[Path, dict[str, str]]]:
    """A project under git, and an environment with a home of its own and no settings."""
    with tempfile.TemporaryDirectory() as name:
        home, project = Path(name).resolve() / "home", Path(name).resolve() / "project"
        home.mkdir()
        project.mkdir()
        git(project, "init", "-q", "-b", "main")
        (project / "tiny.txt").write_text("one\ntwo\n")
        for number in range(40):
            text = "".join(f"def part{n}():\n    return {n}\n\n\n" for n in range(20))
            (project / f"part{number}.py").write_text(text)
        git(project, "add", ".")
        git(project, "commit", "-q", "-m", "begin")
        yield project, environment(home)


def environment(home: Path) -> dict[str, str]:
    """Bytecode may be written; litellm looks for no price list on the net, alone or not."""
    names = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "XDG_CACHE_HOME")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "GIT_CONFIG_NOSYSTEM": "1"}
    return kept | offline | {"HOME": str(home)}


# Processes


def process(
    command: list[str], cwd: Path, env: dict, stdin: str = ""
) -> tuple[float, float, int, str]:
    """Run to the end: start, end, the peak of resident memory as the kernel has it, and stdout."""
    with contextlib.ExitStack() as stack:
        given, said, told = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
        given.write(stdin)
        given.seek(0)
        started = time.monotonic()
        child = subprocess.Popen(command, cwd=cwd, env=env, stdin=given, stdout=said, stderr=told)
        _, status, used = os.wait4(child.pid, 0)
        ended = time.monotonic()
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        told.seek(0)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)[:200]} failed:\n{told.read()[-2000:]}")
        return started, ended, used.ru_maxrss, said.read()


def megabytes(peak: int) -> float:
    """ru_maxrss counts kilobytes, on macOS bytes."""
    return peak / (1_000_000 if sys.platform == "darwin" else 1000)


def to(protocol: str, server: Server) -> dict[str, str]:
    return {f"AMAS_{name.upper()}": value for name, value in route(protocol, server.url).items()}


def amas(protocol: str, calls: list[Reply]) -> Run:
    """One task with these tool calls, one a request, over this wire."""
    with desk() as (project, env), Server([*calls, say("Done.")], protocol) as server:
        started, ended, peak, _ = process([*AMAS, *TASK], project, env | to(protocol, server))
        return Run(started, ended, megabytes(peak), server.requests)


def alone(protocol: str, body: dict) -> Run:
    """litellm by itself, for one answer that is a tool call.

    body: of amas's first request, in OpenAI's form
    """
    kept = {name: body[name] for name in ("messages", "tools")}
    options = {"stream": True, "stream_options": {"include_usage": True}, "max_retries": 0}
    with desk() as (project, env), Server(reads(1), protocol) as server:
        given = json.dumps({**kept, **options, **route(protocol, server.url)})
        started, ended, peak, _ = process([sys.executable, "-c", ALONE], project, env, given)
        return Run(started, ended, megabytes(peak), server.requests)


def prompt() -> Prompt:
    """A chat on a terminal; it is ready when the line at the bottom shows."""
    server = {"AMAS_MODEL": "openai/test-model", "AMAS_API_BASE": "http://127.0.0.1:9/v1"}
    with desk() as (project, env):
        started = time.monotonic()
        with Terminal(AMAS, project, env | server) as terminal:
            terminal.wait("· context ")
            ready = time.monotonic() - started
            settle(terminal)
            return Prompt(ready, *resident(terminal.process.pid))


def settle(terminal: Terminal) -> None:
    """Read until it has nothing more to show."""
    seen = -1
    while seen != len(terminal.raw):
        seen = len(terminal.raw)
        terminal.read(0.5)


def resident(pid: int) -> tuple[float, float]:
    """Memory now and at most, in MB; macOS does not tell the most of a running process."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(fields["VmRSS"].split()[0]) / 1000, int(fields["VmHWM"].split()[0]) / 1000
    told = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=True)
    return int(told.stdout) / 1000, float("nan")


# Within one process: what is litellm's and what is ours


class Clocked(Model):
    """Notes the moments when litellm is called and when its answer is all there."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.moments: list[float] = []

        self.library = Clock(self.library, self.moments)  # type: ignore[assignment]


class Clock:
    """Stands before the library, litellm and its streams, and notes when they are used."""

    def __init__(self, inner: Any, moments: list[float]):
        self.inner, self.moments = inner, moments

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def get(self) -> "Clock":
        return Clock(self.inner.get(), self.moments)

    def completion(self, **request: Any) -> "Stream":
        self.moments.append(time.monotonic())
        return Stream(self.inner.completion(**request), self.moments)


class Stream(Clock):
    def __iter__(self) -> Iterator:
        yield from self.inner
        self.moments.append(time.monotonic())


def clocked() -> None:
    """One task with all of amas's parts in this process; last it prints our seconds in between."""
    root = Path.cwd()
    settings, keyring, _ = config.load(root, {}, lambda what: False)
    front = pipes.Lines(startup.console(stderr=True))
    model = Clocked(settings, keyring, front.show)
    chat = build(settings, keyring, root, places.ours(), front, model.complete)
    model.emit = chat.model.emit
    front.run(chat, "Read.")
    answered, called = model.moments[1::2], model.moments[2::2]
    print(json.dumps([call - answer for answer, call in zip(answered, called, strict=False)]))


# The table


def at_start(runs: int) -> Iterator[Row]:
    with desk() as (project, env):
        versions = [process([*AMAS, "--version"], project, env) for _ in range(runs)]
    version = median(ended - started for started, ended, *_ in versions)
    yield Row("`amas --version`", seconds(version), must="< 1 s", aim="0.15 s")
    prompts = [prompt() for _ in range(runs)]
    ready = median(each.ready for each in prompts)
    yield Row("start → prompt ready", seconds(ready), must="< 1 s", aim="0.4 s")
    idle = size(median(each.resident for each in prompts))
    yield Row("memory idle at the prompt, RSS", idle, must="< 80 MB", aim="45 MB")
    yield Row("the same, at most (VmHWM)", size(median(each.peak for each in prompts)))


def over_each_wire(runs: int) -> Iterator[Row]:
    """20 calls of real work over each wire; that of OpenAI, whose times count, `runs` times."""
    ours = [amas("openai", work(20)) for _ in range(runs)]
    opening = ours[0].requests[0].body
    plain = [alone("openai", opening) for _ in range(runs)]
    begun, plainly = median(run.first for run in ours), median(run.first for run in plain)
    yield Row(
        "start → first model request, one-shot",
        f"{seconds(begun)} ({begun / plainly:.2f} of litellm alone)",
        seconds(plainly),
        "half of litellm alone",
        "< 1 s",
    )
    yield Row("20 tool calls, start → exit", seconds(median(run.whole for run in ours)))
    yield memory("openai", ours, plain)
    for wire in sorted(PROTOCOLS.keys() - {"openai"}):
        yield memory(wire, [amas(wire, work(20))], [alone(wire, opening)])
    yield from tokens(opening)


def memory(wire: str, ours: list[Run], plain: list[Run]) -> Row:
    return Row(
        f"memory at most (VmHWM), 20 tool calls, {wire}",
        size(median(run.peak for run in ours)),
        f"{size(median(run.peak for run in plain))} after one",
        "< 150 MB",
        "130 MB",
    )


def tokens(opening: dict) -> Iterator[Row]:
    """What we add to the user's words, a token taken for four characters."""
    system = len(opening["messages"][0]["content"]) // 4
    schemas = len(json.dumps(opening["tools"])) // 4
    yield Row("system prompt, characters / 4", f"{system:,} tokens", must="< 2,000 tokens")
    yield Row(f"schemas of {len(opening['tools'])} tools, characters / 4", f"{schemas:,} tokens")
    together = f"{system + schemas:,} tokens"
    yield Row("both together", together, must="< 4,000 tokens", aim="2,500 tokens")


def over_200_calls() -> Iterator[Row]:
    ours, pauses = between(200)
    theirs = [pause - own for pause, own in zip(pauses, ours, strict=True)]
    what = "answer → next request over 200 calls"
    yield Row(what, thousandths(pauses), thousandths(theirs), aim="litellm's part flat")
    yield Row("our own part of it", thousandths(ours), must="< 5 ms, flat")
    yield Row("200 tool calls, start → exit", seconds(amas("openai", work(200)).whole))


def between(calls: int) -> tuple[list[float], list[float]]:
    """Between each answer and the next request: our own part, and the whole for the server."""
    with desk() as (project, env), Server([*reads(calls), say("Done.")]) as server:
        here = {"PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, "-c", CLOCKED]
        *_, said = process(command, project, env | to("openai", server) | here)
    ends = [request.answered or request.time for request in server.requests]
    arrivals = [request.time for request in server.requests[1:]]
    return json.loads(said.splitlines()[-1]), [
        later - end for end, later in zip(ends, arrivals, strict=False)
    ]


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def size(value: float) -> str:
    return f"{value:.0f} MB"


def thousandths(values: list[float]) -> str:
    """In the middle of all, of the first and of the last ones."""
    middles = [1000 * median(some) for some in (values, values[:EDGE], values[-EDGE:])]
    return "{:.1f} ms (first 20: {:.1f}, last 20: {:.1f})".format(*middles)


def table(rows: Iterator[Row]) -> Iterator[str]:
    for row in (Row("what", "amas", "litellm alone", "must", "aim"), Row(*["---"] * 5), *rows):
        yield f"| {' | '.join(row)} |"


def machine() -> str:
    litellm = importlib.metadata.version("litellm")
    return (
        f"{processor()}, {os.cpu_count()} cores, {platform.system()}; "
        f"Python {platform.python_version()}, litellm {litellm}; {datetime.date.today()}"
    )


def processor() -> str:
    """As Linux names it; a Raspberry Pi has no model name but a Model."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        named = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
        return named.get("model name") or named.get("Model") or platform.machine()
    return platform.processor() or platform.machine()


def warm_up() -> None:
    """Compile what is not compiled yet and bring it into the page cache; nothing is measured."""
    found = importlib.util.find_spec("amas_code")
    if found and found.submodule_search_locations:
        compileall.compile_dir(found.submodule_search_locations[0], quiet=1)
    alone("openai", amas("openai", []).requests[0].body)


def measured(runs: int, quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        warm_up()
        yield from at_start(runs)
        yield from over_each_wire(runs)
        if not quick:
            yield from over_200_calls()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each start and of the openai task")
    parser.add_argument("--quick", action="store_true", help="one run, without 200 calls")
    options = parser.parse_args()
    for line in table(measured(1 if options.quick else options.runs, options.quick)):
        print(line, flush=True)
    print(f"\n{machine()}")


if __name__ == "__main__":
    main()
