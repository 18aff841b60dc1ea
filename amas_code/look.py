"""What things look like: a tool call, a diff, a turn's summary. Nothing here is read as markup."""

import json
import re
from collections.abc import Sequence
from typing import Any

from amas_code.edits import Row, unified
from amas_code.events import Action, Edit, Usage
from amas_code.tools import kind
from amas_code.visible import visible
from amas_code.workspace import shown

FAILED = ("Error:", "Refused:")
MATTERS = ("command", "path", "pattern", "id")  # the argument that tells a call from others
SIGNS = {"+": "green", "-": "red", "@": "dim cyan", " ": "dim"}


def styled(text: str, style: str = "") -> Any:
    from rich.text import Text

    return Text(text, style)


def row(text: str, style: str = "") -> Any:
    """Text that takes one row, cut to fit."""
    from rich.text import Text

    return Text(text[:1000], style, overflow="ellipsis", no_wrap=True)


def end_row(text: str, style: str, width: int) -> Any:
    """The last words of a text that grows, in one row of so many columns."""
    from rich.cells import cell_len

    end = " ".join(visible(text[-2 * width :], "\n\t").split())
    while cell_len(end) > width:
        end = end[1:]
    return row(end, style)


def typed(line: str) -> Any:
    """What the user typed, as the prompt leaves it behind."""
    from rich.text import Text

    return Text.assemble(("› ", "bold cyan"), visible(line))


def announced(message: dict) -> dict[str, Action]:
    """The calls in a message by their ids, for those that fail before they begin."""
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
    return {
        id: Action(id, 0, kind(said["name"]), said["name"], json.loads(said["arguments"]))
        for id, said in calls
    }


def matter(action: Action) -> str:
    """The argument that matters, on one line."""
    if action.edits:
        return visible(", ".join(dict.fromkeys(shown(edit.path) for edit in action.edits)), "")
    values = [action.args[name] for name in MATTERS if name in action.args]
    values += [value for value in action.args.values() if isinstance(value, str)]
    return visible(str(values[0]), "").replace("␊", " ") if values else ""


def tool_line(action: Action | None, result: str, ok: bool, width: int) -> Any:
    """One calm line: the tool, what it was about, what came of it."""
    from rich.text import Text

    name, about = (action.name, Text(matter(action)[:1000])) if action else ("call", Text())
    came = Text(brief(action, result), "dim" if ok else "red")
    about.truncate(max(width - len(name) - came.cell_len - 6, 12), overflow="ellipsis")
    line = Text(overflow="ellipsis", no_wrap=True).append("● ", "green" if ok else "red")
    return line.append(name, "bold").append(" ").append_text(about.append(" · ")).append_text(came)


def brief(action: Action | None, result: str) -> str:
    """A result in a few words."""
    lines = result.rstrip("\n").split("\n")
    if action and action.edits and not result.startswith(FAILED):
        return "+{} −{}".format(*counts(action.edits))
    if action and action.kind == "run" and lines[-1].startswith("("):
        return visible(re.sub(r"(; changed \d+ files?): .*", r"\1", lines[-1]).strip("()"))
    return (
        visible(lines[0])[:160]
        if len(lines) == 1 or result.startswith(FAILED)
        else f"{len(lines)} lines"
    )


def counts(edits: Sequence[Edit]) -> tuple[int, int]:
    """Lines added and removed."""
    signs = [line.sign for edit in edits for line in unified(edit)]
    return signs.count("+"), signs.count("-")


def diff(edit: Edit, most: int) -> list[Any]:
    """A file's change with line numbers, folded to so many rows."""
    lines = unified(edit)
    verb = "delete" if edit.after is None else "new file" if edit.before is None else "change"
    note = f" ({edit.note})" if edit.note else ""
    head = styled(f"{verb} {visible(shown(edit.path), '')}{note}", "bold")
    hidden = len(lines) - most
    fold = [styled(f"       … {hidden} more lines", "dim")] if hidden > 0 else []
    return [head, *(diff_row(shortened(line, 40 * most)) for line in lines[:most]), *fold]


def shortened(line: Row, most: int) -> Row:
    """A line that is no longer than so many characters: one may hold a whole program."""
    more = len(line.text) - most
    return line._replace(text=f"{line.text[:most]} … {more} more characters") if more > 0 else line


def diff_row(line: Row) -> Any:
    number = line.new if line.sign == "+" else line.old
    if line.sign == "@":
        return styled(f"      {visible(line.text) or '⋮'}", SIGNS[line.sign])
    return styled(f"{number or '':>5} {line.sign} {visible(line.text)}", SIGNS[line.sign])


def output_tail(action: Action | None, result: str, most: int = 6) -> list[Any]:
    """The last lines that a command printed, dim."""
    if not action or action.kind != "run" or result.startswith(FAILED):
        return []
    lines = [line for line in result.rstrip("\n").split("\n")[:-1] if line.strip()]
    fold = [row(f"    … {len(lines) - most} lines before", "dim")] if len(lines) > most else []
    return [*fold, *(row(f"    {visible(line, '')}", "dim") for line in lines[-most:])]


def call_text(action: Action) -> str:
    """The whole of what is asked about."""
    if "command" in action.args:
        return "$ " + visible(action.args["command"])
    return f"{action.name} {visible(json.dumps(action.args, ensure_ascii=False))}"


def money(usage: Sequence[Usage]) -> str:
    """Cost so far; where a price is not known it says so."""
    total = sum(each.cost or 0.0 for each in usage)
    unknown = any(each.cost is None for each in usage)
    return (
        f"${total:.4f}" + (" + unknown" if unknown and total else "")
        if total or not unknown
        else "cost unknown"
    )


def amount(tokens: int) -> str:
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else str(tokens)


def summary(done: Sequence[Action], usage: Sequence[Usage], seconds: float) -> str:
    """What a turn did, in one line."""
    edits = [edit for action in done for edit in action.edits]
    plus, minus = counts(edits)
    files = len({edit.path for edit in edits})
    runs = sum(action.name == "shell_command" for action in done)
    parts = [f"{files} file{'s' * (files != 1)} changed (+{plus} −{minus})"] if files else []
    parts += [f"{runs} command{'s' * (runs != 1)}"] if runs else []
    if usage:
        tokens = sum(each.input + each.output for each in usage)
        parts += [f"{amount(tokens)} tokens", money(usage)]
    return " · ".join([*parts, f"{seconds:.0f} s"])
