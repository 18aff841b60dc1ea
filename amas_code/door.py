"""The one door through which anything happens: what is proposed, the rules, the user, the deed."""

from collections.abc import Callable

from amas_code.events import Action, Began, Edit, Refused
from amas_code.permissions import Rules, decide
from amas_code.workspace import Workspace, shown


def act(work: Workspace, handlers: dict[str, Callable], land: Callable) -> Callable[[Action], str]:
    """The innermost door: lands the edits, or calls the tool."""

    def carry_out(action: Action) -> str:
        if action.kind != "edit":
            return str(handlers[action.name](**action.args))
        remark = land(action)
        work.landed(action.edits)
        return "\n".join([*(done(edit) for edit in action.edits), *remark])

    return carry_out


def done(edit: Edit) -> str:
    verb = "Deleted" if edit.after is None else "Created" if edit.before is None else "Changed"
    return f"{verb} {shown(edit.path)}" + (f" ({edit.note})" if edit.note else "") + "."


def change(edits: tuple[Edit, ...]) -> str:
    """Edits in a few words, as a commit's subject begins."""
    first = edits[0]
    verb = "delete" if first.after is None else "create" if first.before is None else "edit"
    return f"{verb} {', '.join(shown(edit.path) for edit in edits)}"


def asked(
    carry_out: Callable[[Action], str],
    rules: Callable[[], Rules],
    ask: Callable[[Action], str],
) -> Callable[[Action], str]:
    """The same door with the rules, then the user, before it. ask: "" to go ahead, or why not."""

    def checked(action: Action) -> str:
        verdict = decide(action, rules())
        if verdict != "allow" and (no := ask(action) if verdict == "ask" else verdict):
            raise Refused(no)
        return carry_out(action)

    return checked


def proposed(
    carry_out: Callable[[Action], str], handlers: dict[str, Callable], emit: Callable
) -> Callable[[Action], str]:
    """The same door, but an edit is worked out first, so that it can be shown before it is made."""

    def shown_first(action: Action) -> str:
        if action.kind == "edit":
            action = action._replace(edits=tuple(handlers[action.name](**action.args)))
        emit(Began(action))
        return carry_out(action)

    return shown_first
