"""A patch changes exactly the lines it names, in every file or in none, or is refused."""

import difflib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amas_code import tools
from amas_code.events import Edit, ToolError
from amas_code.hunks import apply
from amas_code.patches import parse
from amas_code.shell import Shell
from amas_code.workspace import Workspace

CASES = yaml.safe_load((Path(__file__).parent / "patch_cases.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.chdir(tmp_path)
    return Workspace(tmp_path, Shell(), [])


def put(work: Workspace, files: dict[str, str], how: str, encoding: str) -> None:
    """Files on disk, and in the model's mind as `how` says: read, unread or stale."""
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("of old\n".encode(encoding) if how == "stale" else text.encode(encoding))
        if how != "unread":
            tools.read_file(work, name)
        path.write_bytes(text.encode(encoding))


def proposed(work: Workspace, case: dict) -> list[Edit]:
    if "patch" in case:
        return tools.apply_patch(work, case["patch"])
    return tools.edit_file(work, "f", case.get("old", ""), case.get("new", ""))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_corpus(case: dict, work: Workspace) -> None:
    files = case.get("files", {"f": case.get("file", "")})
    encoding = case.get("encoding", "utf-8")
    put(work, files, case.get("how", "read"), encoding)
    if "refused" in case:
        with pytest.raises(ToolError, match=case["refused"]):
            proposed(work, case)
        return
    edits = proposed(work, case)
    found = {str(e.path.relative_to(Path.cwd())): e.after for e in edits}
    wanted = case["after"] if isinstance(case["after"], dict) else {"f": case["after"]}
    assert found == {n: t if t is None else t.encode(encoding) for n, t in wanted.items()}
    assert re.search(case.get("note", ""), " | ".join(edit.note for edit in edits))


LINES = st.lists(st.text("ab-+@ \\", max_size=4), max_size=14)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str]:
    """A text, and the same after some lines came, went or changed."""
    lines = draw(LINES)
    after = list(lines)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(after)))
        after[at : at + draw(st.integers(0, 2))] = draw(LINES)[:2]
    ends = st.sampled_from(["", "\n"])
    return "\n".join(lines) + draw(ends), "\n".join(after) + draw(ends)


def kept(text: str) -> list[str]:
    """The lines with their ends."""
    return re.findall("[^\n]*\n|[^\n]+", text)


def diff(before: str, after: str, context: int) -> Iterator[str]:
    for line in difflib.unified_diff(kept(before), kept(after), "a/f", "b/f", n=context):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


@settings(deadline=None, max_examples=300)
@given(pairs() | st.tuples(TEXTS, TEXTS), st.integers(0, 3), st.sampled_from(["\n", "\r\n"]))
def test_a_unified_diff_turns_the_one_text_into_the_other(
    texts: tuple[str, str], context: int, end: str
) -> None:
    before, after = texts
    if before == after:
        return
    (section,) = parse("".join(diff(before, after, context)))
    data = before.replace("\n", end).encode()
    done = apply(data, section.hunks, "f", "read", ordered=True).after
    if "\n" in before or end == "\n":
        assert done == after.replace("\n", end).encode()
    else:
        assert done.decode() == after, "one line without an end says nothing of line ends"


@settings(deadline=None, max_examples=200)
@given(pairs(), st.integers(0, 3), st.booleans())
def test_the_other_form_gives_the_other_text_or_is_refused(
    texts: tuple[str, str], context: int, marked: bool
) -> None:
    before, after = (text.removesuffix("\n") + "\n" for text in texts)
    rows = list(diff(before, after, context))[2:]
    if not rows:
        return
    heads = [re.findall("\\d+", row.partition("+")[0]) for row in rows if row.startswith("@@")]
    last = int(heads[-1][0]) + int([*heads[-1], 1][1] or 1) - 1
    patch = "".join("@@\n" if row.startswith("@@") else row for row in rows)
    patch += "*** End of File\n" * (marked and last == len(kept(before)))
    try:
        (section,) = parse(f"*** Begin Patch\n*** Update File: f\n{patch}*** End Patch\n")
        done = apply(before.encode(), section.hunks, "f", "read", ordered=True).after
    except ToolError:
        return
    assert done.decode() == after


PIECES = ["*** Begin Patch", "*** Update File: f", "*** Add File: n", "*** Delete File: f"]
PIECES += ["*** Move to: g", "*** End of File", "*** End Patch", "@@", "@@ a", "@@ -1,2 +1 @@", ""]
PIECES += ["--- a/f", "+++ b/f", "+++ /dev/null", "diff --git a/f b/f", "rename to g", "```", " a"]
PIECES += ["-a", "+b", "a", "\\ No newline at end of file", "-", "+", " ", "<<EOF", "EOF"]


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lines=st.lists(st.sampled_from(PIECES), max_size=12))
def test_whatever_stands_in_a_patch_it_is_proposed_or_explained(
    lines: list[str], work: Workspace
) -> None:
    put(work, {"f": "a\n\nb\n"}, "read", "utf-8")
    try:
        assert tools.apply_patch(work, "\n".join(lines))
    except ToolError as error:
        assert str(error)


@settings(deadline=None)
@given(st.lists(st.text("ab \t“", max_size=5), min_size=4, max_size=9), st.integers(0, 8))
def test_a_tolerant_hunk_changes_only_the_lines_with_a_sign(lines: list[str], at: int) -> None:
    quoted = [line.replace("“", '"').strip() for line in lines]
    rows = [f" {line}" for line in quoted]
    rows[at % len(rows) : at % len(rows) + 1] = [f"-{quoted[at % len(rows)]}", "+new"]
    (section,) = parse("\n".join(["*** Update File: f", "@@", *rows, "*** End Patch"]))
    try:
        done = apply("\r\n".join(lines).encode(), section.hunks, "f", "read", ordered=True).after
    except ToolError:
        return
    after = done.decode().split("\r\n")
    after[at % len(lines)] = lines[at % len(lines)]
    assert after == lines


def test_what_git_tells_of_a_change_makes_that_change(work: Workspace) -> None:
    def git(*args: str) -> str:
        identity = ["-c", "user.name=Ute", "-c", "user.email=ute@example.org"]
        return subprocess.run(["git", *identity, *args], capture_output=True, text=True).stdout

    def tree() -> dict[str, bytes]:
        names = git("ls-files", "-co").split()
        return {name: Path(name).read_bytes() for name in names if Path(name).exists()}

    numbers = "".join(f"{n}\n" for n in range(60))
    git("init", "-q")
    put(
        work,
        {"moved": numbers, "same": "a\n", "goes": "b\n", "void": "", "c": "x\ny"},
        "read",
        "utf-8",
    )
    git("add", ".")
    git("commit", "-qm", "begin")
    before = tree()
    put(
        work,
        {"dir/new": "n\n", "to": numbers.replace("7\n", "seven\n"), "c": "x\nz\n"},
        "unread",
        "utf-8",
    )
    for name in ("moved", "goes", "void"):
        Path(name).unlink()
    Path("empty").touch()
    git("add", "-A")
    after, patch = tree(), git("diff", "--cached", "-M")
    assert "rename from moved" in patch and "No newline" in patch
    git("reset", "-q", "--hard")
    assert tree() == before
    for edit in tools.apply_patch(work, patch):
        name = str(edit.path.relative_to(Path.cwd()))
        assert before.pop(name, None) == edit.before
        before |= {name: edit.after} if edit.after is not None else {}
    assert before == after


def test_a_patch_of_several_files_is_all_or_nothing(work: Workspace) -> None:
    put(work, {"a": "1\n", "b": "2\n"}, "read", "utf-8")
    rows = ["*** Begin Patch", "*** Update File: a", "-1", "+one", "*** Update File: b", "-3", "+x"]
    with pytest.raises(ToolError, match=r"Hunk 1 \(line 6 of the patch\) does not occur in b"):
        tools.apply_patch(work, "\n".join(rows))
    assert Path("a").read_text() == "1\n", "an edit tool writes nothing"


def land(work: Workspace, edits: list[Edit]) -> None:
    for edit in edits:
        if edit.after is None:
            edit.path.unlink()
        else:
            edit.path.write_bytes(edit.after)
    work.landed(edits)


def test_what_was_known_of_a_file_is_known_where_it_was_moved(work: Workspace) -> None:
    put(work, {"all": "1\n2\n", "part": "1\n2\n"}, "unread", "utf-8")
    put(work, {"unread": "1\n2\n"}, "unread", "utf-8")
    tools.read_file(work, "all")
    tools.read_file(work, "part", 1, 1)
    for name in ("all", "part", "unread"):
        patch = f"*** Update File: {name}\n*** Move to: new-{name}\n@@\n-1\n+one\n 2"
        land(work, tools.apply_patch(work, patch))
    known = [
        work.familiar(p := Path(f"new-{n}").resolve(), p.read_bytes())
        for n in ("all", "part", "unread")
    ]
    assert known == ["read", "read", "unread"]
    assert tools.write_file(work, "new-all", "x")
    with pytest.raises(ToolError, match="read it first"):
        tools.write_file(work, "new-part", "x")


def test_a_file_made_by_a_patch_is_known(work: Workspace) -> None:
    land(work, tools.apply_patch(work, "*** Begin Patch\n*** Add File: n\n+a \n*** End Patch"))
    (edit,) = tools.edit_file(work, "n", "a", "b")
    land(work, [edit])
    assert tools.write_file(work, "n", "c")[0].before == b"b \n"


def test_an_edit_of_a_stale_file_does_not_make_it_read(work: Workspace) -> None:
    put(work, {"f": "1\n2\n"}, "stale", "utf-8")
    (edit,) = tools.edit_file(work, "f", "1", "one")
    assert edit.note == "line 1; the file had changed since you read it"
    land(work, [edit])
    with pytest.raises(ToolError, match="it changed since you read it; read it again"):
        tools.edit_file(work, "f", "2 ", "two")


def test_a_moved_program_is_said_to_need_its_mode(work: Workspace) -> None:
    put(work, {"run": "x\n"}, "read", "utf-8")
    Path("run").chmod(0o755)
    edits = tools.apply_patch(work, "*** Update File: run\n*** Move to: go\n")
    assert [edit.note for edit in edits] == [
        "moved to go",
        "moved from run; was executable; chmod +x it again",
    ]


def test_a_huge_file_is_patched_at_once_in_three_places() -> None:
    lines = [f"line {number} of many" for number in range(200_000)]
    rows = [
        row
        for n in (7, 99_999, 199_999)
        for row in ("@@", f" {lines[n - 1]}", f"-{lines[n]}", "+x")
    ]
    (section,) = parse("\n".join(["*** Update File: f", *rows]))
    done = apply("\n".join(lines).encode(), section.hunks, "f", "read", ordered=True)
    lines[7] = lines[99_999] = lines[199_999] = "x"
    assert done.after == "\n".join(lines).encode()
    assert done.note == "lines 7-8, 99999-100000, 199999-200000"
