"""Measures amas against its budget: time, memory and tokens on this machine, as Markdown tables.

    python -m tests.benchmark [--runs 5] [--quick]

Every number is of the real program, in a process of its own, with the grammar of bash loaded; the
model is tests.server, which answers at once. Beside it stands litellm alone: a plain Python that
imports it as a whole and sends the same requests. Nothing here fails because of a number.
"""

import argparse
import atexit
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
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from amas_code import config, pipes, places, session, startup
from amas_code.amas import build, main
from amas_code.events import Action, Asked, Began, Ended, Said, Usage
from amas_code.providers import Model
from tests.conftest import AMAS, git
from tests.server import PROTOCOLS, Reply, Request, Server, call, route, say
from tests.terminal import Terminal

COMMAND = "wc -l part0.py > lines.txt"  # it may change something, so it is watched
TASK = ["-p", "--yes", "--allow", COMMAND, "Work through the parts."]
EDGE = 20  # calls at each end of a long task, to see how the time between them grows
CACHED = "XDG_CACHE_HOME"
PATIENCE = 5.0  # seconds for a key to show

GRAMMAR = """
import tree_sitter, tree_sitter_bash
language = tree_sitter.Language(tree_sitter_bash.language())
tree_sitter.Parser(language).parse(b"wc -l part0.py | sort && echo done")
from amas_code.amas import main
main()
"""
WITH_GRAMMAR = [sys.executable, "-c", GRAMMAR]
ALONE = """
import json, sys, litellm
for request in map(json.loads, sys.stdin):
    for chunk in litellm.completion(**request):
        pass
"""
CLOCKED = "from tests.benchmark import clocked; clocked()"
WATCHED = "from tests.benchmark import watched; watched()"


class Row(NamedTuple):
    """A line of the first table; what the budget does not name stays empty."""

    what: str
    amas: str
    alone: str = ""
    must: str = ""
    aim: str = ""


class Run(NamedTuple):
    """One process from start to exit; times are of the monotonic clock, in seconds."""

    started: float
    ended: float
    requests: list[Request]
    said: str

    @property
    def whole(self) -> float:
        return self.ended - self.started

    @property
    def first(self) -> float:
        """Until the first request had arrived."""
        return self.requests[0].time - self.started

    def pauses(self) -> list[float]:
        """From the end of each answer to the arrival of the next request."""
        ends = [request.answered or request.time for request in self.requests]
        arrivals = [request.time for request in self.requests[1:]]
        return [later - end for end, later in zip(ends, arrivals, strict=False)]


class Memory(NamedTuple):
    """At most, in MB."""

    resident: float  # of the process alone, VmHWM
    children: float  # of all its children together, PSS: nan where that cannot be told


class Parts(NamedTuple):
    """Where the time of a task went, in seconds."""

    own: list[float]  # between each answer and the next request, the tools' part taken off
    tools: list[tuple[str, float]]  # kind and time of each call, with all that guards it
    sent: list[dict]  # the messages and tools of each request, as litellm got them


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


def edits(count: int) -> list[Reply]:
    return [five(f"part{n}.py", "")[1] for n in range(count)]


@contextlib.contextmanager
def desk(files: int = 0) -> Iterator[tuple[Path, dict[str, str]]]:
    """A project under git, and an environment with a home of its own and no settings.

    files: how many more there are, in directories of 100
    """
    with tempfile.TemporaryDirectory() as name:
        home, project = Path(name).resolve() / "home", Path(name).resolve() / "project"
        home.mkdir()
        project.mkdir()
        git(project, "init", "-q", "-b", "main")
        (project / "tiny.txt").write_text("one\ntwo\n")
        for number in range(40):
            text = "".join(f"def part{n}():\n    return {n}\n\n\n" for n in range(20))
            (project / f"part{number}.py").write_text(text)
        for number in range(files):
            path = project / f"more{number // 100}" / f"{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{number}\n")
        git(project, "add", ".")
        git(project, "commit", "-q", "-m", "begin")
        yield project, environment(home)


def environment(home: Path) -> dict[str, str]:
    """Bytecode may be written; litellm looks for no price list on the net, alone or not."""
    names = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", CACHED)
    kept = {name: os.environ[name] for name in names if name in os.environ}
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "GIT_CONFIG_NOSYSTEM": "1"}
    return kept | offline | {"HOME": str(home)}


# Processes


@contextlib.contextmanager
def process(command: list[str], cwd: Path, env: dict, stdin: str = "") -> Iterator[Any]:
    """A process under way. At the end it must have exited with 0; `said` is its stdout then."""
    with contextlib.ExitStack() as stack:
        given, said, told = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
        given.write(stdin)
        given.seek(0)
        child: Any = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=given, stdout=said, stderr=told
        )
        yield child
        if child.wait():
            told.seek(0)
            raise SystemExit(f"{' '.join(command)[:200]} failed:\n{told.read()[-2000:]}")
        said.seek(0)
        child.said = said.read()


def timed(command: list[str], cwd: Path, env: dict, server: Any = None, stdin: str = "") -> Run:
    started = time.monotonic()
    with process(command, cwd, env, stdin) as child:
        child.wait()
        ended = time.monotonic()
    return Run(started, ended, server.requests if server else [], child.said)


def weighed(command: list[str], cwd: Path, env: dict, stdin: str = "") -> Memory:
    """The most that a process takes, looked at 50 times a second until it ends."""
    peak = children = 0.0
    with process(command, cwd, env, stdin) as child:
        while child.poll() is None:
            peak = max(peak, resident(child.pid)[1])
            others = [each for each in descendants(child.pid) if words(each) != words(child.pid)]
            children = max(children, sum(map(share, others)))
            time.sleep(0.02)
    return Memory(peak, children)


def resident(pid: int) -> tuple[float, float]:
    """Memory now and at most, in MB; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return int(fields["VmRSS"].split()[0]) / 1000, int(fields["VmHWM"].split()[0]) / 1000
    except (OSError, KeyError):  # macOS, or it is just ending
        told = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True)
        now = int(told.stdout or 0) / 1000
        return now, now


def descendants(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    own = [int(each) for each in text.split()]
    return own + [deeper for each in own for deeper in descendants(each)]


def words(pid: int) -> str:
    """Its command line. A process that has just been forked has that of its parent, and its memory
    too, of which it is about to let go."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def share(pid: int) -> float:
    """What a process takes of memory, shared pages by their share, in MB."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(text.split("Pss:")[1].split()[0]) / 1000
    except (OSError, IndexError):
        return 0.0


def to(protocol: str, server: Server) -> dict[str, str]:
    return {f"AMAS_{name.upper()}": value for name, value in route(protocol, server.url).items()}


def amas(protocol: str, calls: list[Reply], run: Callable = timed) -> Any:
    """One task with these tool calls, one a request, over this wire."""
    with desk() as (project, env), Server([*calls, say("Done.")], protocol) as server:
        given = {"server": server} if run is timed else {}
        return run([*WITH_GRAMMAR, *TASK], project, env | to(protocol, server), **given)


def alone(protocol: str, bodies: list[dict], run: Callable = timed) -> Any:
    """litellm by itself, with the same requests; each answer is a tool call.

    bodies: of requests of amas, in OpenAI's form
    """
    options = {"stream": True, "stream_options": {"include_usage": True}, "max_retries": 0}
    with desk() as (project, env), Server(reads(len(bodies)), protocol) as server:
        options |= route(protocol, server.url)
        lines = [{"messages": b["messages"], "tools": b["tools"], **options} for b in bodies]
        given = {"server": server} if run is timed else {}
        text = "\n".join(map(json.dumps, lines))
        return run([sys.executable, "-c", ALONE], project, env, stdin=text, **given)


def prompt() -> Prompt:
    """A chat on a terminal; it is ready when the line at the bottom shows."""
    with desk() as (project, env):
        started = time.monotonic()
        with Terminal(AMAS, project, env | NOBODY) as terminal:
            terminal.wait("· context ")
            ready = time.monotonic() - started
            settle(terminal)
            return Prompt(ready, *resident(terminal.process.pid))


NOBODY = {"AMAS_MODEL": "openai/test-model", "AMAS_API_BASE": "http://127.0.0.1:9/v1"}


def settle(terminal: Terminal) -> None:
    """Read until it has nothing more to show."""
    seen = -1
    while seen != len(terminal.raw):
        seen = len(terminal.raw)
        terminal.read(0.5)


# Within one process: what is litellm's and what is ours


class Clocked(Model):
    """Notes when litellm is called and when its answer is all there, and what is sent."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.notes = Notes([], [])
        self.library = Clock(self.library, self.notes)  # type: ignore[assignment]


class Notes(NamedTuple):
    """Of what went through a Clock."""

    moments: list[float]
    sent: list[dict]


class Clock:
    """Stands before the library, litellm and its streams, and notes when they are used."""

    def __init__(self, inner: Any, notes: Notes):
        self.inner, self.notes = inner, notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def get(self) -> "Clock":
        return Clock(self.inner.get(), self.notes)

    def completion(self, **request: Any) -> "Stream":
        self.notes.moments.append(time.monotonic())
        self.notes.sent.append({"messages": [*request["messages"]], "tools": request["tools"]})
        return Stream(self.inner.completion(**request), self.notes)


class Stream(Clock):
    def __iter__(self) -> Iterator:
        yield from self.inner
        self.notes.moments.append(time.monotonic())


class Watching(pipes.Lines):
    """The front for pipes, which notes when each tool call begins and ends."""

    calls: list[tuple[str, float, float]]

    def show(self, event: Any) -> None:
        match event:
            case Began(action):
                self.calls.append((action.kind, time.monotonic(), 0.0))
            case Ended():
                self.calls[-1] = (*self.calls[-1][:2], time.monotonic())
        super().show(event)


def clocked() -> None:
    """One task with all of amas's parts in this process; last it prints where its time went."""
    root, options = Path.cwd(), {"mode": "auto-edit", "allow": [COMMAND]}
    settings, keyring, _ = config.load(root, options, lambda what: False)
    front = Watching(startup.console(stderr=True))
    front.calls = []
    model = Clocked(settings, keyring, front.show)
    chat = build(settings, keyring, root, places.ours(), front, model.complete)
    model.emit = chat.model.emit
    front.run(chat, "Read.")
    print(json.dumps([*model.notes, front.calls]))


def parts(protocol: str, calls: list[Reply], files: int = 0) -> tuple[Run, Parts]:
    """One task in which amas tells where its time went."""
    with desk(files) as (project, env), Server([*calls, say("Done.")], protocol) as server:
        here = {"PYTHONPATH": str(Path(__file__).parents[1]), "AMAS_MAX_CONTEXT_TOKENS": "9000000"}
        command = [sys.executable, "-c", CLOCKED]
        run = timed(command, project, env | to(protocol, server) | here, server)
    moments, sent, begun = json.loads(run.said.splitlines()[-1])
    gaps = zip(moments[1::2], moments[2::2], strict=False)
    took = [(kind, ended - began) for kind, began, ended in begun]
    own = [later - end - tool for (end, later), (_, tool) in zip(gaps, took, strict=False)]
    return run, Parts(own, took, sent)


# Keys, while litellm is imported


def watched() -> None:
    """amas, telling at its end when each module was run."""
    modules: list[tuple[float, str]] = []

    def note(event: str, arguments: tuple) -> None:
        if event == "exec":
            name = getattr(arguments[0], "co_filename", "")
            modules.append((time.monotonic(), name.rpartition("site-packages/")[2]))

    sys.addaudithook(note)
    atexit.register(lambda: Path(os.environ["TOLD"]).write_text(json.dumps(modules)))
    main()


def typing(words: int) -> tuple[list[float], str]:
    """How long each key took to show, with a pause after each word; and what the longest met."""
    with desk() as (project, env):
        told = project.parent / "told"
        here = {"PYTHONPATH": str(Path(__file__).parents[1]), "TOLD": str(told)}
        with Terminal([sys.executable, "-c", WATCHED], project, env | NOBODY | here) as terminal:
            terminal.wait("· context ")
            settle(terminal)
            keys = [typed(terminal, "abcdef"[n % 6]) for n in range(words * 6)]
            terminal.send("\x15/quit\r")
            terminal.ended()
        modules = json.loads(told.read_text())
    began, took = max(keys, key=lambda key: key[1])
    before = [name for when, name in modules if when < began + took]
    return [took for _, took in keys], (before or ["?"])[-1]


def typed(terminal: Terminal, key: str) -> tuple[float, float]:
    """When a key was typed, and the seconds until it showed; after the last of a word a pause."""
    began, seen = time.monotonic(), len(terminal.raw)
    terminal.send(key)
    while key.encode() not in terminal.raw[seen:] and time.monotonic() < began + PATIENCE:
        terminal.read(PATIENCE)
    ended = time.monotonic()
    time.sleep(0.3 if key == "f" else 0.06)
    return began, ended - began


# The first table


def at_start(runs: int) -> Iterator[Row]:
    with desk() as (project, env):
        for what in ("--version", "--help", "resume --help"):
            took = median(timed([*AMAS, *what.split()], project, env).whole for _ in range(runs))
            yield Row(f"`amas {what}`", seconds(took), must="0.2 s", aim="0.15 s")
    prompts = [prompt() for _ in range(runs)]
    ready = median(each.ready for each in prompts)
    yield Row("start → prompt ready", seconds(ready), must="0.4 s")
    idle = size(median(each.resident for each in prompts))
    yield Row("memory idle at the prompt, RSS", idle, must="60 MB", aim="45 MB")
    keys, module = typing(10 + 3 * runs)
    shown = f"{1000 * quantile(keys, 0.5):.0f} / {1000 * quantile(keys, 0.99):.0f}"
    longest = f"{1000 * max(keys):.0f} ms ({module})"
    what = "a key shows, while litellm is imported: median / 99 of 100 / longest"
    yield Row(what, f"{shown} / {longest}", must="100 ms", aim="30 ms for 99")


def to_the_first_request(runs: int) -> Iterator[Row]:
    """Also what is sent then, a token taken for four characters."""
    ours = [amas("openai", []) for _ in range(runs)]
    opening = ours[0].requests[0].body
    plain = [alone("openai", [opening]) for _ in range(runs)]
    begun, plainly = median(run.first for run in ours), median(run.first for run in plain)
    yield Row(
        "start → first model request, one-shot",
        f"{seconds(begun)} ({100 * begun / plainly:.0f}% of litellm alone)",
        seconds(plainly),
        "1.5 s, 40%",
        "1 s",
    )
    cold = cold_start()
    yield Row("the same, the very first time", seconds(cold))
    system = len(opening["messages"][0]["content"]) // 4
    schemas = len(json.dumps(opening["tools"])) // 4
    yield Row("system prompt, characters / 4", f"{system:,} tokens", must="2,000 tokens")
    together = f"{system + schemas:,} tokens"
    what = f"with the schemas of {len(opening['tools'])} tools"
    yield Row(what, together, must="4,000 tokens", aim="2,500 tokens")


def cold_start() -> float:
    """With nothing compiled yet of what is imported slim."""
    kept = os.environ[CACHED]
    with tempfile.TemporaryDirectory() as empty:
        os.environ[CACHED] = empty
        try:
            return amas("openai", []).first
        finally:
            os.environ[CACHED] = kept


def memory(runs: int) -> Iterator[Row]:
    opening = amas("openai", []).requests[0].body
    for wire in PROTOCOLS:
        ours = [amas(wire, work(20), weighed) for _ in range(runs)]
        plain = alone(wire, [opening], weighed) if runs > 1 or wire == "openai" else None
        what = f"memory at most (VmHWM), 20 tool calls, {wire} (and its children, PSS)"
        most = size(median(each.resident for each in ours))
        children = size(median(each.children for each in ours))
        beside = f"{size(plain.resident)} after one" if plain else ""
        yield Row(what, f"{most} (and {children})", beside, "150 MB", "130 MB")


def resumed(calls: int, runs: int) -> Iterator[Row]:
    """A long session taken up again, by what it takes longer than a new one."""
    with desk() as (project, env), Server([say("Done.")] * 2 * runs) as server:
        id = long_session(project, calls)
        env |= to("openai", server) | {"AMAS_MAX_CONTEXT_TOKENS": "9000000"}
        took: dict[str, list[float]] = {"": [], id: []}
        for _ in range(runs):
            for each in took:
                began = timed([*AMAS, *(["-r", each] if each else []), "-p", "go on"], project, env)
                took[each].append(server.requests[-1].time - began.started)
    more = median(took[id]) - median(took[""])
    yield Row(f"a chat of {calls:,} calls resumed, beyond a new one", seconds(more), must="1 s")


def long_session(project: Path, calls: int) -> str:
    """A session as amas keeps it, with one turn of so many calls."""
    journal = session.Journal(session.place(project, project), print)
    cwd = Path.cwd()
    journal.listen(Asked("Read."))
    journal.listen(Said({"role": "system", "content": "You read."}))
    journal.listen(Said({"role": "user", "content": "Read."}))
    for number in range(calls):
        args = {"path": "tiny.txt", "end_line": number}
        function = {"name": "read_file", "arguments": json.dumps(args)}
        id, result = f"call_{number}", "     1\tone\n     2\ttwo\n" * 4
        asks = [{"id": id, "type": "function", "function": function}]
        journal.listen(Usage("openai/test-model", 1000, 20, 900, 0.01, 1.0))
        journal.listen(Said({"role": "assistant", "content": None, "tool_calls": asks}))
        journal.listen(Began(Action(id, 1, "read", "read_file", args)))
        journal.listen(Ended(id, result, True))
        journal.listen(Said({"role": "tool", "tool_call_id": id, "content": result}))
    journal.listen(Said({"role": "assistant", "content": "Read."}))
    journal.close()
    assert cwd == Path.cwd()
    return journal.id


def checkpoints(runs: int) -> Iterator[Row]:
    for files, must in ((0, ""), (10_000, "52 ms"), (50_000, "95 ms")):
        _, each = parts("openai", edits(4 * runs), files)
        took = median(seconds for kind, seconds in each.tools if kind == "edit")
        yield Row(
            f"an edit with its checkpoint, {files + 41:,} files", f"{1000 * took:.0f} ms", must=must
        )


# The others: a line for each task, a line for each wire


def tasks(runs: int, counts: tuple[int, ...]) -> Iterator[tuple[str, ...]]:
    yield (
        "tool calls (40% reads, 40% edits, 20% commands)",
        "start → exit",
        "first request after",
        "a read",
        "an edit with its checkpoint",
        "a command with its snapshots",
        "the command alone",
        "litellm and the server",
        "our own between",
        "must",
        "aim",
    )
    for count in counts:
        whole = median(amas("openai", work(count)).whole for _ in range(runs))
        run, each = parts("openai", work(count))
        kinds = {
            kind: f"{1000 * median(took for k, took in each.tools if k == kind):.1f} ms"
            for kind in ("read", "edit", "run")
        }
        theirs = [
            pause - own - tool
            for pause, own, (_, tool) in zip(run.pauses(), each.own, each.tools, strict=False)
        ]
        budget = {20: ("4 s", "2 s"), 200: ("20 s", "8 s")}[count]
        middles = [f"{1000 * median(some):.1f} ms" for some in (theirs, each.own)]
        yield (
            str(count),
            seconds(whole),
            seconds(run.first),
            *kinds.values(),
            bare(),
            *middles,
            *budget,
        )


def bare() -> str:
    """The command of the tasks, without amas."""
    with desk() as (project, env):
        took = [timed(["bash", "-c", COMMAND], project, env).whole for _ in range(20)]
    return f"{1000 * median(took):.1f} ms"


def wires(calls: int) -> Iterator[tuple[str, ...]]:
    yield (
        f"{calls} reads over",
        "our own between answer and request: first 20, last 20, ratio",
        "litellm's part with amas: first, last",
        "litellm's part alone: first, last",
        "must",
    )
    for wire in PROTOCOLS:
        run, each = parts(wire, reads(calls))
        theirs = [
            pause - own - tool
            for pause, own, (_, tool) in zip(run.pauses(), each.own, each.tools, strict=False)
        ]
        first, last = (median(some) for some in (each.own[:EDGE], each.own[-EDGE:]))
        ours = f"{1000 * first:.1f}, {1000 * last:.1f} ms, {last / first:.1f}"
        plain = alone(wire, each.sent).pauses()
        yield wire, ours, ends(theirs), ends(plain), "5 ms, ratio 1.5"


def ends(values: list[float]) -> str:
    return "{:.1f}, {:.1f} ms".format(*(1000 * median(v) for v in (values[:EDGE], values[-EDGE:])))


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def size(value: float) -> str:
    return f"{value:.0f} MB"


def table(rows: Iterator[tuple[str, ...]]) -> None:
    """Print rows as they come, the first of them as the head."""
    for number, row in enumerate(rows):
        print(f"| {' | '.join(row)} |", flush=True)
        if number == 0:
            print(f"|{' --- |' * len(row)}")
    print(flush=True)


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
    alone("openai", [amas("openai", []).requests[0].body])


def rows(runs: int, quick: bool) -> Iterator[tuple[str, ...]]:
    yield Row("what", "amas", "litellm alone", "must", "aim")
    yield from at_start(runs)
    yield from to_the_first_request(runs)
    yield from memory(runs)
    if not quick:
        yield from resumed(2000, runs)
        yield from checkpoints(runs)


def measure(runs: int, quick: bool) -> None:
    with tempfile.TemporaryDirectory() as cache:
        os.environ[CACHED] = cache
        warm_up()
        table(rows(runs, quick))
        table(tasks(runs, (20,) if quick else (20, 200)))
        if not quick:
            table(wires(200))
    print(machine())


def run() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of which the median is taken")
    parser.add_argument("--quick", action="store_true", help="one run, without what takes longer")
    options = parser.parse_args()
    measure(1 if options.quick else options.runs, options.quick)


if __name__ == "__main__":
    run()
