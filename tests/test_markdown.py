import io
import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from amas_code.markdown import Block, Stream, renderable


def blocks_of(text, *, height=8, sizes=(10**9,)):
    """The blocks of an answer that comes in chunks of these sizes, over and over."""
    stream, blocks, at, n = Stream(height), [], 0, 0
    while at < len(text):
        size = sizes[n % len(sizes)]
        blocks += stream.feed(text[at : at + size])
        at, n = at + size, n + 1
    return blocks + stream.close()


def shown(blocks, width=60, colour=False):
    """What a terminal shows of these blocks."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        legacy_windows=False,
    )
    for n, block in enumerate(blocks):
        if n and not block.continued:
            console.print()
        console.print(renderable(block, width))
    return console.file.getvalue()


def rows(text, width=60, height=8):
    return [row.rstrip() for row in shown(blocks_of(text, height=height), width).split("\n")][:-1]


def words(output):
    return "".join(char for char in output if not char.isspace() and char != "▌")


def source_lines(blocks):
    """The lines that came in, so far as they are not empty: what a part says again is left out."""
    lines = []
    for block in blocks:
        fence = block.source.lstrip().startswith(("```", "~~~"))
        again = (1 if fence else 2) if block.continued and block.before else 0
        lines += block.source.split("\n")[again:]
    return [line for line in lines if line.strip(" \t")]


LINES = st.sampled_from(
    [
        *["", "", "", "text", "more *text* and `code`", "==", "---", "***", "# Title", "#", "> "],
        *["- item", "-", "* star", "+", "  - nested", "  in item", "   deep", "    code", "\tcode"],
        *["1. one", "1) other", "2. two", "10. ten", "   1. inner", "    - far", "  > in item"],
        *["```", "```py", "````", "~~~", "~~~ sh", "  ```", "   ```", "    ```", "- ```", "> ```"],
        *["> quote", ">", "> - item", ">> twice", "> # head", "| a | b |", "|---|--:|", "a | b"],
        *["| x | y | z |", "| `a` |", "<div>", "<!-- no", "[x]: http://a.b", "[t](http://a.b)"],
        *["**bold", "over**", "\\", "text\\", "text  ", "&amp; &#x202e;", "> 2. x", "中文 👩‍👩‍👧"],
    ]
)
TEXTS = st.one_of(
    st.lists(LINES, max_size=40).map("\n".join),
    st.text(st.sampled_from("`~*-_+>#|: \t\n\r1.)[]()<\\ab"), max_size=80),
    st.text(st.characters(codec="utf-8"), max_size=60),
)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=6)
HEIGHTS = st.sampled_from([1, 4, 8, 1000])


@settings(max_examples=400, deadline=None)
@given(TEXTS, SIZES, HEIGHTS)
def test_how_the_answer_was_chunked_makes_no_difference(text, sizes, height):
    assert blocks_of(text, height=height, sizes=sizes) == blocks_of(text, height=height)


@settings(max_examples=400, deadline=None)
@given(TEXTS, HEIGHTS)
def test_every_line_is_in_one_block_and_in_order(text, height):
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    blocks = blocks_of(text, height=height)
    assert source_lines(blocks) == [line for line in lines if line.strip(" \t")]


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_blocks_look_as_they_do_in_the_whole_answer(text):
    text = text.rstrip("\r\n") + "\n"
    assert shown(blocks_of(text, height=1000)) == shown([Block(text)])


@settings(max_examples=200, deadline=None)
@given(TEXTS, HEIGHTS, st.sampled_from([20, 60, 200]), st.booleans())
def test_nothing_steers_the_terminal_or_runs_over_its_edge(text, height, width, colour):
    output = shown(blocks_of(text, height=height), width, colour)
    plain = re.sub("\x1b\\[[0-9;]*m", "", output)
    assert not {c for c in plain if unicodedata.category(c) == "Cc"} - {"\n"}
    assert all(cell_len(row) <= width for row in plain.split("\n"))
    assert colour or plain == output


@settings(max_examples=200, deadline=None)
@given(TEXTS, HEIGHTS)
def test_the_live_block_can_be_drawn_after_every_character(text, height):
    stream = Stream(height)
    for char in text:
        stream.feed(char)
        if block := stream.live():
            shown([block])


CODE = [f"line_{n} = {n}" for n in range(50)]
LONG = {
    "fence": ["```python", *CODE, "```"],
    "tildes": ["~~~~", *CODE, "~~~", "~~~~"],
    "bullets": [f"- item {n}\n  more of {n}" for n in range(50)],
    "loose": [f"- item {n}\n" for n in range(50)],
    "numbers": [f"{n}. item {n}" for n in range(7, 57)],
    "ones": [f"1. item {n}" for n in range(50)],
    "quote": [f"> quoted {n}" for n in range(50)],
    "quoted paragraphs": [f"> quoted {n}\n>" for n in range(50)],
}


@pytest.mark.parametrize("width", [60, 200])
@pytest.mark.parametrize("kind", LONG)
def test_a_long_block_looks_the_same_whether_committed_in_parts_or_at_once(kind, width):
    text = "before\n\n" + "\n".join(LONG[kind]) + "\n\nafter\n"
    parts, whole = blocks_of(text, height=8), blocks_of(text, height=1000)
    assert len(parts) > len(whole) + 3
    assert shown(parts, width) == shown(whole, width)


@pytest.mark.parametrize("kind", [*LONG, "table"])
def test_the_live_block_never_has_more_lines_than_allowed(kind):
    table = ["| n | m |", "|---|---|", *[f"| {n} | x |" for n in range(50)]]
    text = "\n".join(LONG.get(kind, table))
    stream = Stream(8)
    for char in text:
        stream.feed(char)
        block = stream.live()
        assert not block or shown([block]).count("\n") <= 8


def test_the_height_may_change_while_the_answer_comes():
    stream = Stream(100)
    assert stream.feed("```\n" + "x\n" * 20) == []
    stream.height = 5
    assert stream.feed("x\n")[0].source == "```\n" + "x\n" * 21
    assert stream.feed("x\n") == []


def test_a_block_is_committed_as_soon_as_nothing_can_change_it():
    stream = Stream()
    assert [b.source for b in stream.feed("# Title\n")] == ["# Title\n"]
    assert stream.feed("Some text") == []
    assert [b.source for b in stream.feed("\n\n")] == ["Some text\n\n"]
    assert [b.source for b in stream.feed("```\nx\n```\n")] == ["```\nx\n```\n"]
    assert stream.live() is None
    assert stream.feed("- a\n\n- b\n\n") == []
    assert stream.live().source == "- a\n\n- b\n\n"
    assert [b.source for b in stream.feed("end\n")] == ["- a\n\n- b\n\n"]
    assert [b.source for b in stream.close()] == ["end\n"]


def test_an_underlined_heading_a_lazy_line_and_a_late_table_stay_one_block():
    for text in ("Title\n=====\n", "> quote\nlazy\n", "- item\nlazy\n", "| a |\n|---|\n| b |\n"):
        assert [b.source for b in blocks_of("# x\n" + text)] == ["# x\n", text]


def test_a_fence_ends_only_with_its_own_marker():
    text = "````md\n```\ninner\n```\n~~~~\n    ````\n`````\nafter\n"
    assert [b.source.count("\n") for b in blocks_of(text)] == [7, 1]


def test_windows_line_ends_do_not_show():
    text = "one\r\n\r\n- a\r\n- b\r\n"
    blocks = blocks_of(text, sizes=(1,))
    assert [b.source for b in blocks] == ["one\n\n", "- a\n- b\n"]


def test_one_very_long_line_shows_while_it_comes():
    stream = Stream()
    for n in range(200):
        assert stream.feed(f"word{n} ") == []
    assert shown([stream.live()]).count("\n") > 20
    assert "word199" in shown([stream.live()])
    assert len(stream.close()) == 1


def test_what_may_become_a_marker_does_not_flicker():
    stream = Stream()
    stream.feed("Text:\n-")
    assert "4m" not in shown([stream.live()], colour=True)
    assert shown([stream.live()]) == "Text:\n"


def test_an_empty_answer_has_no_blocks():
    for text in ("", "\n", " \n\n\t\n", "\r"):
        assert blocks_of(text) == []


def test_a_long_table_keeps_its_columns_and_wraps_what_comes_later():
    head = ["| name | value |", "|------|------:|"]
    later = ["| a much longer name | 1234567 |"]
    text = "\n".join([*head, *["| abc | 12345 |"] * 10, *later, "", "after"])
    blocks = blocks_of(text, height=6)
    assert [b.continued for b in blocks] == [False, True, True, False]
    output = rows(text, height=6)
    assert len({len(row) for row in output[:-5]}) == 1
    assert [re.sub(" +", " ", row) for row in output if "──" not in row] == [
        *["name value", *["abc 12345"] * 10, "a much 1234567", "longer", "name"],
        *["", "after"],
    ]


def test_a_wide_table_fits_the_terminal_without_losing_text():
    cells = ["short", "a cell of many words " * 6, "中文字" * 20]
    text = "| a | b | c |\n|:--|:-:|--:|\n| " + " | ".join(cells) + " |\n"
    for width in (30, 60, 200):
        output = shown(blocks_of(text), width)
        assert max(map(cell_len, output.split("\n"))) <= width
        assert sorted(re.sub(r"[\s─]", "", output)) == sorted(words("abc" + "".join(cells)))
    many = "|".join("abcdefghijkl") + "\n" + "|".join(["--"] * 12) + "\n"
    assert words(shown(blocks_of(many), 20)) == words(many)


def test_numbers_go_on_and_the_text_stays_in_its_column():
    text = "\n".join("1. item" for _ in range(12))
    assert rows(text, height=4) == [f"{n:2}. item" for n in range(1, 13)]


def test_colours_of_a_long_fence_know_what_came_before():
    text = '```python\ndef f():\n    """Says\n' + "    return 1\n" * 8 + '    """\n```\n'
    parts = shown(blocks_of(text, height=4), colour=True)
    assert parts.count("\x1b[32m    return 1\x1b[0m\n") == 8


def test_every_kind_of_block_looks_calm():
    text = (
        "# Title\ntext\n## Sub *x*\n- a\n  - b\n\n    c\n- [ ] d\n\n3) x\n\n"
        "> q\n> r\n>\n> s\n\n***\n"
        "```\ncode\n```\n![alt](a.png) <b>x<br>y</b> a &lt; b\n"
    )
    assert rows(text) == [
        *["Title", "", "text", "", "Sub x", "", "• a", "  • b", "", "    c", "• [ ] d", ""],
        *[" 3) x", "", "▌ q", "▌ r", "▌", "▌ s", "", "─" * 40, "", "  code", ""],
        *["alt (a.png) <b>x", "y</b> a < b"],
    ]


def test_an_address_is_always_to_be_seen():
    text = "[docs](https://evil.example/x 'good.example') <https://a.example> [b@c.d](mailto:b@c.d)"
    output = shown(blocks_of(text), 200, colour=True)
    assert "\x1b]" not in output
    plain = re.sub("\x1b\\[[0-9;]*m", "", output)
    assert plain == "docs (https://evil.example/x) https://a.example b@c.d\n"
    assert "(javascript:x)" in shown(blocks_of("[run](javascript:x)"))


def test_text_that_looks_like_rich_markup_is_only_text():
    text = (
        "[bold]x[/bold] [/] :smile: `[red]y`\n\n```\n[link=x]z[/]\n```\n\n| [b] |\n|--|\n| [/b] |\n"
    )
    output = shown(blocks_of(text))
    for literal in ("[bold]x[/bold] [/] :smile: [red]y", "[link=x]z[/]", "[b]", "[/b]"):
        assert literal in output


def test_control_characters_are_spelled_out_wherever_they_stand():
    esc = "a\x1b[31mb\u202e"
    text = (
        f"{esc}\n\n`{esc}`\n\n```\n{esc}\n```\n\n- {esc}\n\n# {esc}\n\n&#x202e;\n\n|{esc}|\n|--|\n"
    )
    output = shown(blocks_of(text))
    assert output.count("a␛[31mb<U+202E>") == 6
    assert output.count("<U+202E>") == 7


def test_only_colours_readable_on_dark_and_light_are_used():
    code = (
        "```python\n@x\nclass A:\n    'doc'\n    n = len('s')  # why\n\n    def f(self): 1\n```\n"
    )
    diff = "```diff\n--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n```\n"
    html = "```html\n<a href='x'>&amp;</a>\n```\n"
    text = code + diff + html + "# T\n\n`c` **b** *i* ~~s~~ [l](u)\n\n> q\n\n|a|\n|-|\n|b|\n\n---\n"
    output = shown(blocks_of(text), colour=True)
    used = {n for codes in re.findall("\x1b\\[([0-9;]*)m", output) for n in codes.split(";")}
    assert used == {*"012349", "31", "32", "35", "36"}


def test_without_colour_only_text_is_printed():
    text = "# T\n\n**b** `c`\n\n```python\nx = 1\n```\n"
    assert "\x1b" not in shown(blocks_of(text), colour=False)


def test_long_code_wraps_and_keeps_its_indentation():
    long = "        call(" + ", ".join(f"argument_{n}" for n in range(20)) + ")"
    text = f"```python\n\tif x:\n{long}\n```\n"
    output = rows(text)
    assert output[:2] == ["      if x:", "          call(argument_0, argument_1, argument_2,"]
    assert words("".join(output)) == words("if x:" + long)


def test_code_in_an_unknown_language_is_plain():
    for info in ("nosuchlanguage", "{.python #x}", "", "../../etc"):
        output = shown(blocks_of(f"```{info}\nx = 1\n\n\ny\n```\n"), colour=True)
        assert output == "  x = 1\n  \n  \n  y\n"


@pytest.mark.parametrize("mark", ["> ", "- ", "*", "[", "![", "**a ", "a`", "<", "1. ", "&", "_a"])
def test_text_built_to_confuse_is_still_shown(mark):
    for text in (mark * 300 + "word\n", mark * 300 + "word" + mark * 300 + "\n"):
        output = shown(blocks_of(text), 200)
        assert "word" in words(output)


def work(text):
    """How many function calls it takes to cut this answer into blocks."""
    count = 0

    def called(frame, event, arg):
        nonlocal count
        count += event == "call"

    blocks_of("- warm\n\nup\n")
    before = sys.getprofile()
    sys.setprofile(called)
    try:
        blocks_of(text, sizes=(4,))
    finally:
        sys.setprofile(before)
    return count


MIXED = "## Part\n\nText.\n\n```py\n" + "x = 1\n" * 30 + "```\n\n1. a\n   b\n2. c\n\n> q\n\n"


@pytest.mark.parametrize(
    "start, more",
    [
        ("", MIXED),
        ("", "word " * 100),
        ("", "a line of one paragraph\n" * 100),
        ("- item\n  ```\n", "  code in the item\n\n" * 100),
        ("", "> a line of a quote\n" * 100),
        ("- item\n", "lazy\n" * 100),
    ],
)
def test_a_long_answer_does_not_become_slower_as_it_grows(start, more):
    assert work(start + more * 4) < 2.5 * work(start + more * 2)


def test_a_paragraph_of_very_many_lines_is_shown_in_parts_without_loss():
    text = "\n".join(f"line {n}" for n in range(450)) + "\n"
    blocks = blocks_of(text)
    assert len(blocks) > 2
    assert shown(blocks) == text


def test_a_very_long_fence_inside_an_item_stays_code():
    code = "".join(f"   # line {n}\n\n" for n in range(200))
    text = f"1. do\n   ```sh\n{code}   ```\n2. done\n"
    output = rows(text)
    assert output[0] == " 1. do"
    assert output[1::2][:200] == [f"      # line {n}" for n in range(200)]
    assert output[-1] == " 2. done"


def test_starting_the_program_loads_neither_rich_nor_the_parser():
    code = "import sys, amas_code.markdown as m; m.Stream(); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "amas_code.markdown" in modules.split()
    assert not {"rich", "markdown_it", "pygments"} & set(modules.split())
