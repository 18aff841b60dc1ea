"""An edit lands in its one place with every other byte untouched, or is refused with a reason."""

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from amas_code.edits import decode, encode_like, replace, unified, write
from amas_code.events import Edit, ToolError

CASES = yaml.safe_load((Path(__file__).parent / "edit_cases.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_corpus(case: dict) -> None:
    data = case["file"].encode(case.get("encoding", "utf-8"))
    known = next((state for state in ("unread", "stale") if case.get(state)), "read")
    how = {"replace_all": case.get("all", False), "known": known}
    if "refused" in case:
        with pytest.raises(ToolError, match=case["refused"]):
            replace(data, case["old"], case["new"], name="f", **how)
        return
    done = replace(data, case["old"], case["new"], name="f", **how)
    assert done.after == case["after"].encode(case.get("encoding", "utf-8"))
    assert done.level == case.get("level", "exact")


LINES = st.lists(st.text("ab \t{}()=+-1é“”\x0c\u2028", max_size=8), min_size=1, max_size=12)
ENDS = st.sampled_from(["\n", "\r\n"])


@st.composite
def files(draw: st.DrawFn) -> str:
    return "".join(line + draw(ENDS) for line in draw(LINES)) + draw(st.sampled_from(["", "end"]))


@settings(deadline=None)
@given(files(), st.data(), st.text("xyz \n", min_size=1, max_size=9))
def test_a_unique_passage_is_replaced_and_nothing_else(text: str, data: st.DataObject, new: str):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    old = text[start:end]
    ends = text.replace("\r\n", "").count("\n"), text.count("\r\n")
    view, wanted = text.replace("\r\n", "\n"), old.replace("\r\n", "\n")
    cut = text[start - 1 : start + 1] == "\r\n" or text[end - 1 : end + 1] == "\r\n"
    hits = sum(view.startswith(wanted, i) for i in range(len(view)))
    if cut or not wanted.strip() or hits != 1 or wanted == new:
        return
    done = replace(text.encode(), old, new)
    assert done.level == "exact"
    after = done.after.decode()
    assert after.startswith(text[:start]) and after.endswith(text[end:])
    middle = after[start : len(after) - len(text[end:])]
    assert middle.replace("\r\n", "\n") == new
    if 0 in ends:
        assert ("\r\n" in middle) == ("\n" in middle and ends[1] > 0)


@settings(deadline=None)
@given(files(), st.integers(0, 11), st.integers(1, 4), st.sampled_from(["rstrip", "indent"]))
def test_a_tolerant_edit_changes_only_the_matched_lines(text: str, at: int, size: int, how: str):
    lines = text.replace("\r\n", "\n").split("\n")
    block = lines[at : at + size]
    old = [line.rstrip() for line in block] if how == "rstrip" else ["    " + b for b in block]
    if not "".join(old).strip():
        return
    try:
        done = replace(text.encode(), "\n".join(old), "\n".join([*old, old[-1] + " new"]))
    except ToolError:
        return
    if done.level == "exact":
        return
    after = done.after.decode().replace("\r\n", "\n").split("\n")
    first, last = done.lines
    assert after[: first - 1] == lines[: first - 1]
    assert not lines[last:] or after[-len(lines[last:]) :] == lines[last:]
    assert after[first - 1 : last] == lines[first - 1 : last], "lines that stay are the file's own"


@pytest.mark.parametrize(
    "known, why", [("unread", "you have not read it; read it"), ("stale", "it changed since you")]
)
def test_of_a_file_not_known_as_it_is_only_one_exact_place_is_changed(known: str, why: str) -> None:
    assert replace(b"a b\n", "a", "z", True, known=known).after == b"z b\n"
    for data, old in ((b"a a\n", "a"), (b"  a\n", "a "), (b"a\tb\n", "a\\tb")):
        with pytest.raises(ToolError, match=why):
            replace(data, old, "z", replace_all=True, known=known)


def test_what_was_allowed_for_and_where_is_noted() -> None:
    assert replace(b"a\nb\n", "b", "c").note == "line 2"
    assert replace(b"a\nb\nc\n", "b\nc", "d").note == "lines 2-3"
    assert replace(b"a\nb\na\n", "a", "c", True).note == "2 places, the first at line 1"
    assert replace(b" a\n", "a ", "b").note.endswith("not an exact match, allowed for: indentation")
    assert replace(b"a\n", "a", "b", known="stale").note.endswith("had changed since you read it")


@pytest.mark.parametrize(
    "file, old, new, after",
    [
        ("x\n a\n b", "a\nb", "a", "x\n a"),
        ("x\n a\n b", "a\nb", "", "x\n"),
        ("x\n a\n", "a\n\n", "a\nb\n\n", "x\n a\n b\n"),
        ("x\n a\n", "a\n\n", "a\n\nb\n", "x\n a\n\n b\n"),
        ("x\n a\n", "a\n\n", "a\nb", "x\n a\n b\n"),
        ("x\n a", "a ", "a\nb\n", "x\n a\n b"),
    ],
)
def test_a_tolerant_edit_at_the_end_keeps_how_the_file_ends(
    file: str, old: str, new: str, after: str
) -> None:
    assert replace(file.encode(), old, new).after.decode() == after


def test_many_places_are_counted_and_changed_in_one_go() -> None:
    data = b"a b\r\n" * 20_000
    with pytest.raises(ToolError, match="20000 times in the file, at lines 1, 2, 3, .*, …;"):
        replace(data, "b\n", "c\n")
    assert replace(data, "b\n", "c\nd\n", True).after == b"a c\r\nd\r\n" * 20_000


def test_a_huge_file_is_edited_and_refused_alike() -> None:
    lines = [f"line {number} of many\n" for number in range(200_000)]
    data = "".join(lines).encode()
    done = replace(data, "line 150000 of many\nline 150001 of many", "here")
    assert done.lines == (150_001, 150_002)
    done = replace(data, "    line 150000 of many  ", "    here")
    assert done.level == "indentation" and b"\nhere\n" in done.after
    with pytest.raises(ToolError, match="150001\tline 150000 of many"):
        replace(data, "line 150000 of many\nno such line", "x")


def test_binary_and_undecodable_files_are_left_alone() -> None:
    with pytest.raises(ToolError, match="binary"):
        replace(b"a\0b", "a", "b", name="f")
    with pytest.raises(ToolError, match="UTF-8"):
        replace("naïve".encode("latin-1"), "na", "no", name="f")


def test_a_whole_new_text_keeps_encoding_bom_and_line_ends() -> None:
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        old = "a\r\nb\r\n".encode(encoding)
        assert encode_like("c\nd\n", old).decode(encoding) == "c\r\nd\r\n"
        assert decode(encode_like("c\n", old), "f").bom == decode(old, "f").bom
    assert encode_like("c\n", None) == b"c\n"


def test_writing_keeps_the_mode_and_leaves_nothing_beside(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old")
    script.chmod(0o755)
    write(script, b"new")
    assert script.read_bytes() == b"new" and script.stat().st_mode & 0o777 == 0o755
    write(tmp_path / "deep/er/file", b"x")
    write(script, None)
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["file"]


def test_a_link_is_neither_written_through_nor_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("real")
    link = tmp_path / "link"
    link.symlink_to("real")
    with pytest.raises(ToolError, match="link"):
        write(link, b"new")
    assert os.readlink(link) == "real" and (tmp_path / "real").read_text() == "real"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").mkdir()
    with pytest.raises(OSError):
        write(tmp_path / "d/f", b"new")
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["f"]


def rows(before: str | None, after: str | None) -> list[str]:
    edit = Edit(Path("f"), *(None if t is None else t.encode() for t in (before, after)))
    return [f"{row.old or ''}|{row.new or ''}|{row.sign}{row.text}" for row in unified(edit)]


def test_a_diff_numbers_both_sides_and_shows_line_ends() -> None:
    assert rows("a\nb\n", "a\nc\n") == ["1|1| a", "2||-b", "|2|+c"]
    assert rows(None, "x\n") == ["|1|+x"]
    assert rows("x\n", None) == ["1||-x"]
    assert rows("x\n", "x\r\n") == ["1||-x", "|1|+x␍"]
    assert rows("x\n", "x") == ["1||-x", "|1|+x (no newline at the end)"]
    assert "binary" in rows("a\0", "b\0")[0]


def test_a_diff_of_a_huge_file_is_the_same_as_of_its_part() -> None:
    lines = [f"{n}\n" for n in range(200_000)]
    found = rows("".join(lines), "".join([*lines[:100_000], "new\n", *lines[100_001:]]))
    assert found == [
        "99998|99998|@",
        *(f"{n + 1}|{n + 1}| {n}" for n in range(99_997, 100_000)),
        "100001||-100000",
        "|100001|+new",
        *(f"{n + 1}|{n + 1}| {n}" for n in range(100_001, 100_004)),
    ]


def test_a_diff_of_far_apart_changes_has_a_mark_between() -> None:
    before = [f"{n}\n" for n in range(100)]
    after = before[:5] + ["new\n"] + before[5:90] + before[91:]
    found = rows("".join(before), "".join(after))
    assert sum("|@" in row for row in found) == 2 and "|6|+new" in found and "91||-90" in found
