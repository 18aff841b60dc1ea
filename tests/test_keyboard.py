"""The keys typed while the agent works, on a real pty."""

import os
import pty
import tty
from collections.abc import Iterator

import pytest

from amas_code.screen import Keyboard


class Typed:
    """A keyboard, and what is typed on it."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        tty.setcbreak(slave)
        self.keyboard = Keyboard()
        self.keyboard.fd = slave

    def type(self, text: str) -> Keyboard:
        os.write(self.master, text.encode())
        return self.keyboard


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Typed]:
    with open(os.devnull) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        typed = Typed()
        yield typed
    os.close(typed.master)
    os.close(typed.keyboard.fd)


@pytest.mark.parametrize("keys", ["\x1b", "\x1b\x1b", "abc\x1b"])
def test_esc_stops_whatever_was_typed_before_it(typed: Typed, keys: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        typed.type(keys).sent()


@pytest.mark.parametrize("keys", ["\x1b[A", "\x1bOB", "\x1b[1;5C", "\x1b[200~", "\t", "\x00"])
def test_arrows_and_other_keys_stop_nothing_and_type_nothing(typed: Typed, keys: str) -> None:
    assert typed.type(keys).sent() == [] and typed.keyboard.line == ""


def test_a_line_is_sent_at_enter_and_edited_before(typed: Typed) -> None:
    assert typed.type("grüss\x7f\x7fß dich\nand more").sent() == ["grüß dich"]
    assert typed.keyboard.line == "and more"
    typed.type("\x15new").sent()
    assert typed.keyboard.line == "new"


def test_somebody_in_the_middle_of_a_line_is_noticed(typed: Typed) -> None:
    assert typed.keyboard.resting(0.0)
    assert not typed.type("a").resting(60.0)


def test_what_is_left_of_a_typed_yes_is_no_message(typed: Typed) -> None:
    assert typed.type("es\n").sent() == []


def test_a_question_takes_only_keys_it_knows(typed: Typed) -> None:
    typed.type("Y")
    assert typed.keyboard.key("yn") == "y"
