"""What the model can do. A tool is a plain function; its signature and docstring describe it.

A first parameter `work` is ours, the model never sees it. READ looks, EDIT proposes, RUN acts.
"""

import os
from collections.abc import Callable
from functools import partial

from amas_code import patches, search
from amas_code.blocks import blocks
from amas_code.edits import decode, encode_like, replace
from amas_code.events import Edit, ToolError
from amas_code.hunks import apply
from amas_code.schema import schema
from amas_code.workspace import Workspace, absolute, shown

WINDOW = 50_000  # characters of a file shown at a time


def read_file(work: Workspace, path: str, start_line: int = 1, end_line: int = 0) -> str:
    """Read a text file, its lines numbered.

    path: the file
    start_line: first line wanted
    end_line: last line wanted; 0 is the end of the file
    """
    file = absolute(path)
    data = work.content(file)
    lines = decode(data, shown(file)).text.split("\n")
    if lines[-1] == "":
        lines.pop()
    total, first = len(lines), max(start_line, 1)
    last = min(end_line if end_line > 0 else total, total)
    if first > max(total, 1):
        raise ToolError(f"{shown(file)} has only {total} lines.")
    out, size, whole = [], 0, total  # whole: the last line before one that is cut
    for number in range(first, last + 1):
        line = lines[number - 1].rstrip("\r")
        if len(line) > WINDOW // 10:
            line = f"{line[: WINDOW // 10]} … ({len(line)} characters in this line)"
            whole = min(whole, number - 1)
        size += len(line) + 8
        if size > WINDOW:
            last = number - 1
            break
        out.append(f"{number:>6}\t{line}")
    work.note(file, data, first, min(last, whole), total)
    if (first, last) == (1, total):
        return "\n".join(out) or "(the file is empty)"
    more = f"; start_line={last + 1} reads on" if last < total else ""
    return "\n".join([*out, f"(lines {first}-{last} of {total}{more})"])


def list_files(work: Workspace, path: str = ".", depth: int = 2) -> str:
    """List a directory as a tree, without what git ignores.

    path: the directory
    depth: how many levels to show
    """
    directory = absolute(path)
    if not directory.is_dir():
        raise ToolError(f"{shown(directory)} is no directory.")
    return search.tree(directory, work.root, work.files(), depth)


def glob_files(work: Workspace, pattern: str) -> str:
    """Find files by name, newest first.

    pattern: such as **/*.py or src/*.{c,h}, relative to the project
    """
    return search.globbed(work.root, work.files(), pattern)


def search_files(work: Workspace, pattern: str, path: str = ".", include: str = "") -> str:
    """Search in files, line by line.

    pattern: a regular expression
    path: the file or directory to search in
    include: only files whose name matches, such as *.py
    """
    return search.searched(work.root, work.files(), pattern, absolute(path), include)


def todo_read(work: Workspace) -> str:
    """Read the to-do list of this task."""
    return "\n".join(work.todo) or "(the list is empty)"


def todo_write(work: Workspace, items: list[str]) -> str:
    """Keep the to-do list of a task with several steps; the user sees it.

    items: the whole list, each "[ ] step", "[>] the step under way" or "[x] step done"
    """
    work.todo = items
    return todo_read(work)


def write_file(work: Workspace, path: str, content: str) -> list[Edit]:
    """Create a file or replace all of it. To change a part, use edit_file.

    path: the file
    content: the whole new text
    """
    file = absolute(path)
    before = work.present(file)
    if before is not None and not work.knows_all(file, before):
        raise ToolError(
            f"{shown(file)} exists and you have not read all of it as it is now; read it first."
        )
    after = encode_like(content, before)
    if after == before:
        raise ToolError(f"{shown(file)} already has exactly this content.")
    return [Edit(file, before, after)]


def create_file(work: Workspace, path: str, content: str) -> list[Edit]:
    """Create a file that does not exist yet.

    path: the file
    content: its text
    """
    file = absolute(path)
    if os.path.lexists(file):
        raise ToolError(f"{shown(file)} exists; use edit_file, or read it and use write_file.")
    return [Edit(file, None, encode_like(content, None))]


def edit_file(
    work: Workspace, path: str, old_str: str, new_str: str, replace_all: bool = False
) -> list[Edit]:
    """Replace one passage of a file. Read the file first.

    path: the file
    old_str: the passage exactly as it is in the file, without line numbers; it must occur once
    new_str: what to put in its place
    replace_all: change every occurrence
    """
    file = absolute(path)
    before = work.content(file)
    known = work.familiar(file, before)
    if hunks := blocks(file, before, old_str, new_str):
        done = apply(before, hunks, shown(file), known, ordered=False)
    else:
        done = replace(before, old_str, new_str, replace_all, shown(file), known)
    return [Edit(file, before, done.after, done.note)]


def apply_patch(work: Workspace, patch: str) -> list[Edit]:
    """Change several places or files at once, all or none. Takes a unified diff, or this form:
    *** Begin Patch
    *** Update File: path
    *** Move to: path (only to move it)
    @@ def function_it_is_in(): (only if the lines are not unique)
     line that stays
    -line that goes
    +line that comes
    *** Add File: path
    +line
    *** Delete File: path
    *** End Patch

    patch: the patch
    """
    return patches.proposed(work, patch)


def delete_file(work: Workspace, path: str) -> list[Edit]:
    """Delete a file.

    path: the file
    """
    return [Edit(absolute(path), work.content(absolute(path)), None)]


def shell_command(
    work: Workspace, command: str, timeout: int = 30, background: bool = False
) -> str:
    """Run a shell command in the working directory; it gets no input.

    command: the command line, for bash
    timeout: seconds before it is ended
    background: for servers: it goes on while you work; shell_output and shell_stop take its id
    """
    return work.shell.start(command) if background else work.shell.run(command, timeout)


def shell_output(work: Workspace, id: str = "") -> str:
    """Read what a background command printed since last time, and whether it still runs.

    id: as shell_command gave it; without it those that run are listed
    """
    running = "\n".join(f"{id} {command}" for id, command in work.shell.running())
    return work.shell.output(id) if id else running or "(nothing runs in the background)"


def shell_stop(work: Workspace, id: str) -> str:
    """End a background command.

    id: as shell_command gave it
    """
    return work.shell.stop(id)


READ = (read_file, list_files, glob_files, search_files, todo_read, todo_write)
EDIT = (write_file, create_file, edit_file, apply_patch, delete_file)
RUN = (shell_command, shell_output, shell_stop)

HANDLERS: dict[str, Callable] = {tool.__name__: tool for tool in (*READ, *EDIT, *RUN)}
TOOLS = [schema(tool) for tool in HANDLERS.values()]


def kind(name: str) -> str:
    """What calling it may do. A tool nobody has classed may do anything."""
    tool = HANDLERS.get(name)
    return "read" if tool in READ else "edit" if tool in EDIT else "run"


def handlers(work: Workspace) -> dict[str, Callable]:
    """The tools, at work on this project."""
    return {name: partial(tool, work) for name, tool in HANDLERS.items()}
