"""The one door through which anything happens: what is proposed, the rules, the user, the deed."""

from collections.abc import Callable, Sequence

from amas_code.checkpoint import Checkpoints
from amas_code.events import Action, Began, Edit, Refused, ToolError
from amas_code.gitstore import GitError
from amas_code.permissions import OURS, Rules, decide, harmless
from amas_code.snapshots import Effects
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


def covered(
    carry_out: Callable[[Action], str], checkpoints: Checkpoints, tell: Callable[[str], None]
) -> Callable[[Action], str]:
    """The same door, but what a command does to the project can be undone; where not, `tell`."""
    told: set[str] = set()

    def watched(action: Action) -> str:
        command = action.args.get("command", "")
        if action.kind != "run" or action.name in OURS or harmless(command):
            return carry_out(action)
        try:
            begun = checkpoints.before_command(command or action.name, action.turn)
        except (GitError, OSError, ToolError) as error:
            if str(error) not in told:
                tell(f"/undo will not cover what commands do here: {error}.")
            told.add(str(error))
            return carry_out(action)
        effects = Effects(None)
        try:
            result = carry_out(action)
        finally:
            try:
                effects = checkpoints.after_command(begun)
            except (GitError, OSError, ToolError) as error:
                tell(f"/undo will not cover what this command changed: {error}.")
        return remarked(result, effects)

    return watched


def remarked(result: str, effects: Effects) -> str:
    """A command's result with the files that it changed, in its last line."""
    names = effects.op.paths if effects.op else ()
    count = f"{len(names)} file{'s' * (len(names) != 1)}"
    remarks = [f"changed {count}: {listed(names)}"] if names else []
    remarks += [f"not covered by /undo: {listed(effects.others)}"] if effects.others else []
    if not remarks:
        return result
    gap = "; " if result.endswith(")") else "\n("
    return "".join([result.removesuffix(")"), gap, "; ".join(remarks), ")"])


def listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


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
