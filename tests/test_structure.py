"""What holds the program together: its layers, its size, what is imported when, its manual."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "amas_code"
CORE = ["amas", "agent", "tools", "ui", "providers", "checkpoint", "browser", "skills", "config"]
LAYERS = [  # a module may import only from layers above its own in this list
    "__init__ events visible signals places",
    "matching schema shell mentions markdown answer recorded permissions redaction",
    "edits trouble search workspace screen session lazysource",
    "oplog yamlfile hunks lazyimport",
    "gitstore keys trust blocks patches library",
    "tools landing replay snapshots config inputline",
    "agent look checkpoint catalog guards",
    "view providers compaction door machine",
    "questions chat doctor",
    "commands",
    "ui pipes",
    "startup",
    "demo",
    "subcommands",
    "amas",
    "__main__",
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py"))
HEAVY = ("litellm", "openai", "pydantic", "httpx", "playwright", "tree_sitter", "git", "aiohttp")


def imported(module: str) -> set[str]:
    """The modules of ours that a file names in an import, wherever it stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "amas_code":
            names |= {alias.name for alias in node.names if alias.name in MODULES}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("amas_code."):
            names.add(node.module.split(".")[1])
    return names


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    assert module in LEVEL, f"{module} has no layer yet"
    above = {name for name in imported(module) if LEVEL[name] >= LEVEL[module]}
    assert not above, f"{module} imports {above}, which do not lie below it"


def code_lines(path: Path) -> int:
    """Lines that are neither blank, comment nor docstring."""
    source = path.read_text()
    rows = {n for n, line in enumerate(source.split("\n"), 1) if re.match(r"\s*[^\s#]", line)}
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                rows -= set(range(body[0].lineno, (body[0].end_lineno or 0) + 1))
    return len(rows)


def table() -> list[tuple[str, int, bool]]:
    return [(name, code_lines(PACKAGE / f"{name}.py"), name in CORE) for name in MODULES]


def test_the_program_stays_small() -> None:
    rows = table()
    core = sum(lines for _, lines, in_core in rows if in_core)
    print("\n| file | code lines | core |\n|---|---:|---|")
    for name, lines, in_core in sorted(rows, key=lambda row: (not row[2], -row[1])):
        print(f"| {name}.py | {lines} | {'yes' if in_core else ''} |")
    print(f"| all | {sum(lines for _, lines, _ in rows)} | {core} |")
    assert core <= 780
    assert max(lines for _, lines, _ in rows) <= 350


def test_nothing_heavy_is_imported_at_the_top_of_a_file() -> None:
    for module in MODULES:
        for node in ast.parse((PACKAGE / f"{module}.py").read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & set(HEAVY), module


def loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_the_command_line_loads_only_click() -> None:
    outside = loaded_by("import amas_code.amas") - loaded_by("import click")
    assert outside - sys.stdlib_module_names <= {"amas_code"}


def test_the_prompt_loads_nothing_heavy() -> None:
    loaded = loaded_by("from amas_code import ui, startup, inputline")
    assert not loaded & set(HEAVY)


def readme() -> str:
    return (ROOT / "README.md").read_text()


def test_readme_documents_every_option() -> None:
    from amas_code.amas import SUBCOMMANDS, task
    from amas_code.subcommands import COMMANDS

    text = readme()
    assert set(SUBCOMMANDS) == set(COMMANDS)
    for command in (task, *COMMANDS.values()):
        for option in (p for p in command.params if isinstance(p, click.Option)):
            for name in option.opts:
                assert f"`{name}" in text, f"README does not tell of {name}"
    for name in SUBCOMMANDS:
        assert f"amas {name}" in text, f"README does not tell of amas {name}"


def test_readme_documents_every_slash_command_and_setting() -> None:
    from amas_code.commands import COMMANDS
    from amas_code.config import NAMES

    text = readme()
    for name in COMMANDS:
        assert f"`/{name}" in text, f"README does not tell of /{name}"
    for name in NAMES:
        assert f"`{name}`" in text, f"README does not tell of the setting {name}"


def test_readme_shows_every_file() -> None:
    for name in MODULES:
        assert name == "__init__" or f"{name}.py" in readme(), f"README's tree lacks {name}.py"
