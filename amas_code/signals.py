"""Signals: a pulse while the one thread we have is blocked, and moments nothing may interrupt."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Finish what is inside first; a Ctrl-C, SIGTERM or SIGHUP meanwhile takes effect after.

    May be nested. Only the main thread gets signals, so elsewhere this does nothing.
    """
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)

    def miss(number: int, frame: FrameType | None) -> None:
        """A pulse missed is no loss. Ignored, it would stop for good: the timer of a signal that
        is ignored is not wound up again."""

    # A pulse may raise: it is held off first, and let in again last.
    new: dict[int, Callable] = {signal.SIGALRM: miss, **dict.fromkeys(HELD, hold)}
    try:
        old = [(number, signal.signal(number, handler)) for number, handler in new.items()]
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        for number, before in reversed(old):
            signal.signal(number, before)
        for number in held:
            signal.raise_signal(number)


@contextlib.contextmanager
def pulse(beat: Callable[[], None], seconds: float = 0.1) -> Iterator[None]:
    """Call `beat` again and again on this thread, also while it waits for the network or a command.

    System calls that the timer interrupts are taken up again by Python (PEP 475). What `beat`
    raises ends whatever runs inside.
    """
    beating = False

    def once(number: int, frame: FrameType | None) -> None:
        nonlocal beating
        if beating:  # a slow one is not begun again inside itself
            return
        beating = True
        try:
            beat()
        finally:
            beating = False

    old = signal.signal(signal.SIGALRM, once)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def terminate_cleanly() -> None:
    """Make SIGTERM and SIGHUP unwind as Ctrl-C does: commands end, the screen is put back."""

    def leave(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # no pulse may raise in the midst of leaving
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else nohup means it
        signal.signal(signal.SIGHUP, leave)
