"""Runs commands so that they always end, and says how they ended."""

import codecs
import os
import select
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from amas_code.events import ToolError
from amas_code.signals import uninterrupted


class Shell:
    """The commands of one chat: one at a time in the foreground, any number in the background.

    Every command has a process group of its own, which ends with it: SIGTERM, then SIGKILL to
    what is left, within two seconds. Covered: children and grandchildren, also those that ignore
    SIGTERM or were left behind with `&`; background commands even when amas is killed by SIGKILL.
    Not covered, unless a sandbox holds them: what starts a session of its own (setsid, a daemon)
    or runs as another user (sudo); a foreground command when amas is killed by SIGKILL; a
    background command when its keeper is (see `keep`).

    `show` gets the output of foreground commands as it comes. `env` is the environment of the
    commands, None the one of amas; QUIET is added to either.
    """

    def __init__(
        self,
        show: Callable[[str], None] = lambda chunk: None,
        max_timeout: int = 600,
        env: dict[str, str] | None = None,
    ):
        self._show = show
        self._max_timeout = max_timeout
        self._env = env
        self._background: dict[str, tuple[str, Process]] = {}

    def run(self, command: str, timeout: int = 30) -> str:
        """The output of a command and, as its last line, how it ended.

        What the command leaves running is ended with it: a process that everybody has forgotten
        is a leak on a small machine. Any exception, Ctrl-C too, ends the command and flies on.
        """
        seconds = max(1, min(timeout, self._max_timeout))
        began = time.monotonic()
        process, left_behind = None, False
        try:
            with uninterrupted():  # a Ctrl-C between these two would leave it running
                process = Process(_argv(command), self._env, self._show)
            in_time = process.follow(seconds, until=process.exited)
            if in_time:  # a `>(tee log)` may still be writing its last words
                process.follow(MOMENT, until=process.gone)
        finally:
            with uninterrupted():  # nor may a second one, or a terminal that is gone
                left_behind = process is not None and process.end()
        ending = f"{process.ending()}, {time.monotonic() - began:.1f} s"
        return _report(
            process.take(),
            ending if in_time else f"timed out after {seconds} s: ask for more with {MORE}",
            f"timeout cut to {seconds} s, the longest" if timeout > seconds else "",
            LEFT_BEHIND if in_time and left_behind else "",
        )

    def start(self, command: str) -> str:
        """Starts a command in the background: its id, and what it prints in the first moment."""
        keeper = [sys.executable, "-I", "-S", "-c", KEEPER, str(Path(__file__).parents[1])]
        process = Process(keeper + _argv(command), self._env, stdin=subprocess.PIPE)
        id = str(len(self._background) + 1)
        self._background[id] = command, process
        try:
            process.follow(FIRST_WORDS, until=process.exited)
        except BaseException:  # Ctrl-C: nobody would know the id
            process.hang_up()
            raise
        return self.output(id)

    def output(self, id: str) -> str:
        """What a background command printed since the last time, and whether it still runs."""
        process = self._process(id)
        process.follow(MOMENT, until=process.done)
        text = process.take()
        state = process.ending() if process.exited() else READ_ON
        return _report(text, "" if text else "nothing new", f"background command {id}: {state}")

    def stop(self, id: str) -> str:
        """Ends a background command: the rest of its output, and how it ended."""
        process = self._process(id)
        process.hang_up()
        process.follow(GRACE + 1, until=process.done)
        return self.output(id)

    def _process(self, id: str) -> "Process":
        if id not in self._background:
            known = ", ".join(f"{key} ({it[0]})" for key, it in self._background.items())
            raise ToolError(f"No background command has the id {id!r}. Known: {known or 'none'}.")
        return self._background[id][1]

    def running(self) -> list[tuple[str, str]]:
        """The id and the command of each that runs in the background."""
        return [
            (id, command)
            for id, (command, process) in self._background.items()
            if not process.follow(TICK, until=process.exited)
        ]

    def close(self) -> None:
        """Ends everything that runs in the background, all at the same time."""
        for _, process in self._background.values():
            process.hang_up()
        for _, process in self._background.values():
            process.follow(GRACE + 1, until=process.done)


class Process:
    """A command in a process group of its own, whose output is taken in as it comes."""

    def __init__(
        self,
        argv: Sequence[str],
        env: dict[str, str] | None,
        show: Callable[[str], None] = lambda chunk: None,
        stdin: int = subprocess.DEVNULL,
    ):
        try:
            self._popen = subprocess.Popen(
                argv,
                env=env,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"The command could not be started: {error}") from error
        assert self._popen.stdout
        self._show = show
        self._kept = Kept()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.output = selectors.DefaultSelector()  # closed once the output has ended
        self.output.register(self._popen.stdout, selectors.EVENT_READ)

    def follow(self, seconds: float, until: Callable[[], bool]) -> bool:
        """Takes in output until that holds; False if it does not within this time."""
        deadline = time.monotonic() + seconds
        while not until():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.read(min(left, TICK))
        return True

    def read(self, seconds: float) -> None:
        """Waits at most this long for output and takes in what there is."""
        if self.silent():
            time.sleep(min(seconds, 0.002))  # it will exit in no time
            return
        for key, _ in self.output.select(seconds):
            data = os.read(key.fd, 65536)
            if not data:
                self.close()
            if text := self._decoder.decode(data, final=not data):
                self._kept.add(text)
                self._show(text)

    def close(self) -> None:
        """Stops listening to its output."""
        assert self._popen.stdout
        self.output.close()
        self._popen.stdout.close()

    def silent(self) -> bool:
        """Has its output come to the end?"""
        return not self.output.get_map()

    def exited(self) -> bool:
        """Has the command itself exited, whatever it left running?"""
        return self.code() is not None

    def code(self) -> int | None:
        """The exit status, a signal as a negative number; None while it runs."""
        return self._popen.poll()

    def done(self) -> bool:
        """Has it exited, and did we take in all it had to say?"""
        return self.exited() and self.silent()

    def gone(self) -> bool:
        """Has everything in the group exited?"""
        return self.exited() and not _anyone_alive(self._popen.pid)

    def hang_up(self) -> None:
        """Ends its stdin, which tells a keeper to end the command."""
        if self._popen.stdin:
            self._popen.stdin.close()

    def end(self) -> bool:
        """Ends what is left of the group and takes in the rest; False if nothing was left."""
        left = not self.gone()
        try:
            if left:
                _kill(self._popen.pid, signal.SIGTERM)
                self.follow(GRACE, until=self.gone)
        finally:
            if left:
                _kill(self._popen.pid, signal.SIGKILL)
            with closing(self):
                wait = DEATH if left else MOMENT
                self.follow(wait, until=lambda: self.silent() and self.gone())
        return left

    def ending(self) -> str:
        """How the command ended, in words."""
        code = self.code()
        if code is None:
            return "could not be ended"
        names = {int(each): each.name for each in signal.Signals}
        if code < 0:
            return f"killed by {names.get(-code, f'signal {-code}')}"
        return f"exit status {code}" + (f" ({names[code - 128]})" if code - 128 in names else "")

    def take(self) -> str:
        """The output since the last time, bounded."""
        kept, self._kept = self._kept, Kept()
        return kept.text()


class Kept:
    """The head and the tail of a text of any length; what lies between is only counted."""

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._left_out = 0

    def add(self, text: str) -> None:
        room = HEAD - len(self._head)
        self._head += text[:room]
        tail = self._tail + text[room:]
        cut = max(0, len(tail) - TAIL)
        self._tail = tail[cut:]
        self._left_out += cut

    def text(self) -> str:
        if not self._left_out:
            return self._head + self._tail
        return f"{self._head}\n… {self._left_out} characters left out …\n{self._tail}"


def keep() -> None:
    """What the keeper of a background command does: passes its output on, and ends it with amas.

    A pipe that nobody reads while the user thinks would stall the command, and a file would grow
    without end; so the keeper, a process of 12 MB, always reads, and holds a bounded part until
    its stdout has room. Its stdin ends when amas hangs up or dies, however that happens.
    """
    process = Process(sys.argv[1:], None)
    os.set_blocking(1, False)
    unsent = b""
    try:
        while not process.gone():
            unsent = unsent or process.take().encode()
            heard = [] if process.silent() else [process.output.fileno()]
            patience = None if heard else TICK  # without output only a look shows that it exited
            ready, room, _ = select.select([0, *heard], [1] if unsent else [], [], patience)
            if 0 in ready:
                break
            if room:
                unsent = unsent[os.write(1, unsent) :]
            process.read(0)
    finally:
        process.end()
    os.set_blocking(1, True)
    with open(1, "wb") as stdout:
        stdout.write(unsent + process.take().encode())
    code = process.code() or 0
    sys.exit(code if code >= 0 else 128 - code)


def _anyone_alive(group: int) -> bool:
    """Does anyone in the process group live?

    In a container whose first process waits for nobody, dead orphans stay in their group: /proc
    tells. On macOS, which has no /proc, killpg is not permitted where only such are left.
    """
    if not _kill(group, 0):
        return False
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = stat.read_bytes().rpartition(b")")[2].split()[:3]
            if int(its_group) == group and state not in b"ZX":
                return True
    return not Path("/proc/self").exists()


def _kill(group: int, number: int) -> bool:
    """Sends a signal to a process group; False if there is nobody who could get it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


def _argv(command: str) -> list[str]:
    """The command for bash, or sh where there is none; `env` adds QUIET to what is inherited."""
    return ["env", *QUIET, "bash" if shutil.which("bash") else "sh", "-c", "--", command]


def _report(text: str, *remarks: str) -> str:
    """The output and, as its last line, the remarks that are not empty."""
    gap = "\n" if text and not text.endswith("\n") else ""
    return f"{text}{gap}({'; '.join(filter(None, remarks))})"


# Nobody is there to answer a prompt or leave a pager, and output must come when it is printed.
QUIET = (
    *("TERM=dumb", "PAGER=cat", "EDITOR=true", "PYTHONUNBUFFERED=1"),
    *("GIT_PAGER=cat", "GIT_EDITOR=true", "GIT_TERMINAL_PROMPT=0"),
)
# Started with -I -S: nothing in the project has a say in what the keeper imports.
KEEPER = "import sys; sys.path.append(sys.argv.pop(1)); from amas_code.shell import keep; keep()"
READ_ON = "running; shell_output reads on, shell_stop ends it"
MORE = "timeout=…, or background=true for servers"
LEFT_BEHIND = "what it left running was ended too: use background=true to keep it"
HEAD, TAIL = 10_000, 20_000  # characters the model gets of an output
TICK = 0.05  # seconds, like all that follow: how often we look whether the command has exited
MOMENT = 0.15  # for what is still on its way
GRACE = 1.5  # between SIGTERM and SIGKILL
DEATH = 0.4  # what SIGKILL may take on a busy machine
FIRST_WORDS = 0.5  # a server that cannot start says so within this
