"""Asks the user: whether something may happen, or which of several it is to be."""

import contextlib
from collections.abc import Sequence

from amas_code import look
from amas_code.edits import unified
from amas_code.events import Action
from amas_code.look import row, styled
from amas_code.screen import Keyboard
from amas_code.view import FOLDED, View
from amas_code.visible import visible

CHOICES = {
    "edit": {"y": "yes", "n": "no, and why", "a": "all edits from now on", "d": "the whole diff"},
    "run": {"y": "yes", "n": "no, and why", "a": "always this very command"},
    "read": {"y": "yes", "n": "no, and why"},
}


def question(view: View, keyboard: Keyboard, action: Action) -> tuple[str, str]:
    """The key that the user chose, and with "n" what the model is told."""
    view.screen.draw()
    choices = {
        key: what for key, what in CHOICES[action.kind].items() if key != "d" or folded(action)
    }
    if action.kind != "edit":
        view.put("question", styled(look.call_text(action), "bold"))
    asked = "Go ahead? " + " · ".join(f"{key} {what}" for key, what in choices.items())
    while True:
        view.screen.prompt(styled(f"{asked} ", "yellow"))
        key = keyboard.key("".join(choices))
        view.screen.send(f"{key}\r\n")
        if key != "d":
            break
        for edit in action.edits:
            view.screen.print("", *look.diff(edit, 1_000_000))
    why = visible(keyboard.ask("Why not? (Enter: no reason) "), "") if key == "n" else ""
    reason = "" if why in ("", "o") else f": {why}"  # the o is what is left of a typed "no"
    return key, f"the user said no{reason}"


def folded(action: Action) -> bool:
    """Whether some of the diffs are longer than what was shown."""
    return any(len(unified(edit)) > FOLDED for edit in action.edits)


def choose(view: View, title: str, rows: list[str], above: Sequence = ()) -> list[int]:
    """The numbers of the rows that the user picks, from 0; those of none are none.

    above: what to show first
    """
    view.put("command", *above, styled(title, "bold"))
    view.screen.print(
        *(row(f"{number:>3}  {visible(text)}") for number, text in enumerate(rows, 1))
    )
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        return numbers(input("Number (Enter: none) "), len(rows))
    return []


def numbers(typed: str, most: int) -> list[int]:
    """What "1 3-5" means, from 0; nothing if any of it makes no sense."""
    chosen = list[int]()
    for part in typed.replace(",", " ").split():
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal() and int(first) > 0):
            return []
        if int(last or first) > most:
            return []
        chosen += range(int(first) - 1, int(last or first))
    return chosen
