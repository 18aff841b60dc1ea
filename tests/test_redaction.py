"""No key gets to the model, the journal or the screen, and ordinary code is left as it is."""

import base64
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from amas_code.events import Action, Edit, Refused, Stopped, ToolError
from amas_code.redaction import LONGEST, Passing, Redactor, hidden, unmarked
from amas_code.shell import Shell
from amas_code.tools import handlers
from amas_code.workspace import Workspace
from tests.server import PROTOCOLS, Server, error, fail_midway
from tests.test_providers import Talk

CASES = yaml.safe_load(Path(__file__).with_name("redaction_cases.yaml").read_text("utf-8"))
KEY = "kq-Zm9/vYmFy+31337"  # of no known form
REDACT = Redactor(lambda: [KEY])
TOKEN = "ghp_" + "z8Yq2Lw7Kd" * 4
PEM = "\n".join(
    [
        "-----BEGIN PRIVATE KEY-----",
        *(base64.b64encode(bytes(range(n, n + 48))).decode() for n in (10, 90, 170)),
        "q83vEjRWeJCrze8=",
        "-----END PRIVATE KEY-----",
    ]
)


# What is hidden


@pytest.mark.parametrize("case", CASES["hidden"], ids=lambda case: case["after"][:50])
def test_what_looks_like_a_key_is_hidden(case: dict) -> None:
    assert REDACT(case["text"].replace("¦", "")) == case["after"]


@pytest.mark.parametrize("case", CASES["hidden"], ids=lambda case: case["after"][:50])
def test_what_was_redacted_stays_as_it_is(case: dict) -> None:
    assert REDACT(case["after"]) == case["after"]


@pytest.mark.parametrize("line", CASES["ordinary"])
def test_ordinary_lines_are_left_as_they_are(line: str) -> None:
    assert REDACT(line) == line


def test_ordinary_lines_in_one_file_are_left_as_they_are() -> None:
    assert REDACT.finds("\n".join(CASES["ordinary"])) == []


def test_the_program_and_the_standard_library_can_be_read() -> None:
    ours = (Path(__file__).parent.parent / "amas_code").glob("*.py")
    for path in (*ours, *Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = path.read_text("utf-8", "replace")
        assert [text[f.start : f.end] for f in REDACT.finds(text)] == [], path


@pytest.mark.parametrize(
    "text, left",
    [
        (f"x{KEY}y", "x<redacted:api key>y"),
        ("?key=kq-Zm9%2FvYmFy%2B31337&a=1", "?key=<redacted:api key>&a=1"),
        (base64.b64encode(KEY.encode()).decode(), "<redacted:api key>"),
        (
            f"{KEY} and {KEY}\n{KEY}",
            "<redacted:api key> and <redacted:api key>\n<redacted:api key>",
        ),
    ],
)
def test_a_key_of_ours_is_hidden_wherever_it_stands(text: str, left: str) -> None:
    assert REDACT(text) == left


def test_a_key_that_comes_later_is_hidden_too() -> None:
    keys: list[str] = []
    redact = Redactor(lambda: keys)
    assert redact("opensesame") == "opensesame"
    keys.append("opensesame")
    assert redact("opensesame") == "<redacted:api key>"


@pytest.mark.parametrize(
    "key", ["", "none", "ollama", "lm-studio", "not-needed", "sk-no-key-required"]
)
def test_what_is_given_where_no_key_is_needed_hides_nothing(key: str) -> None:
    text = f"pip install {key} # {key}"
    assert Redactor(lambda: [key])(text) == text


def test_the_user_can_be_told_what_was_hidden() -> None:
    assert [find.what for find in REDACT.finds(f"use {TOKEN} or {KEY}")] == [
        "github token",
        "api key",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        *(
            "a",
            "=",
            " ",
            "eyJ",
            "eyJa.",
            "sk-",
            "sk-ant-",
            "ghp_",
            "SG.",
            "://",
            "://a:",
            "key",
            "token",
        ),
        *("token=", "token: ", "token=aB3dE5fG7hI9jK1lM3:", "_auth", "1234567890:AA", "-----BEGIN"),
        *("-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nq8"),
        base64.b64encode(bytes(range(256))).decode(),
    ],
)
def test_no_text_takes_forever(unit: str) -> None:
    """The limit is that of the test run: what grows with the square takes hours here."""
    text = unit * (500_000 // len(unit))
    passing = Passing(REDACT, lambda chunk: None)
    for start in range(0, len(text), 65536):
        passing(text[start : start + 65536])
    passing.close()
    REDACT(text)


# At the door


def action(name: str = "shell_command", kind: str = "run", edits: tuple = (), **args) -> Action:
    return Action("1", 1, kind, name, args, edits)


def test_no_result_shows_a_key() -> None:
    door = hidden(lambda action: f"GH_TOKEN={TOKEN}", REDACT)
    assert door(action(command="env")) == "GH_TOKEN=<redacted:github token>"


@pytest.mark.parametrize("raised", [ToolError, Refused])
def test_no_error_shows_a_key_and_it_stays_what_it_was(raised: type[ToolError]) -> None:
    def carry_out(action: Action) -> str:
        raise raised(f"{TOKEN} is wrong")

    with pytest.raises(ToolError) as caught:
        hidden(carry_out, REDACT)(action())
    assert type(caught.value) is raised
    assert str(caught.value) == "<redacted:github token> is wrong"


def test_a_mistake_in_a_tool_shows_no_key_either() -> None:
    def carry_out(action: Action) -> str:
        raise ValueError(f"bad header {TOKEN}")

    with pytest.raises(ToolError) as caught:
        hidden(carry_out, REDACT)(action())
    assert str(caught.value) == "ValueError: bad header <redacted:github token>"


@pytest.mark.parametrize("raised", [Stopped("over"), KeyboardInterrupt()])
def test_what_ends_the_turn_flies_through(raised: BaseException) -> None:
    def carry_out(action: Action) -> str:
        raise raised

    with pytest.raises(type(raised)) as caught:
        hidden(carry_out, REDACT)(action())
    assert caught.value is raised


@pytest.mark.parametrize("args", [{"command": "echo {}"}, {"options": [{"header": "X: {}"}]}])
def test_a_command_with_a_mark_in_it_is_not_run(args: dict) -> None:
    ran: list[Action] = []
    marked = yaml.safe_load(yaml.dump(args).replace("{}", "<redacted:github token>"))
    with pytest.raises(ToolError, match="redaction mark.*never shown to you"):
        hidden(lambda action: str(ran.append(action)), REDACT)(action(**marked))
    assert ran == []


def test_marks_can_be_searched_for() -> None:
    door = hidden(lambda action: "no matches", REDACT)
    search = action("search_files", "read", pattern="<redacted:github token>")
    assert door(search) == "no matches"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_an_edit_that_would_write_a_mark_is_refused(encoding: str) -> None:
    landed: list[Action] = []
    before, after = (f"{key}\na = 1\n".encode(encoding) for key in (TOKEN, REDACT(TOKEN)))
    edit = action("write_file", "edit", (Edit(Path("/p/.env"), before, after),))
    with pytest.raises(ToolError, match=r"new \.env holds a redaction mark"):
        unmarked(lambda action: str(landed.append(action)))(edit)
    assert landed == []


@pytest.mark.parametrize(
    "before, after",
    [
        (None, b"a = 1\n"),
        (b"a <redacted:token>\n", b"b <redacted:token>\n"),
        (b"<redacted:token> <redacted:key>", b"<redacted:key>"),
        (b"<redacted:token>", None),
        (b"\xff\x00", b"\xff\x00\x01"),
    ],
)
def test_an_edit_around_marks_that_were_there_is_made(before: bytes | None, after: bytes) -> None:
    edit = action("edit_file", "edit", (Edit(Path("/p/doc.md"), before, after),))
    assert unmarked(lambda action: "Changed.")(edit) == "Changed."


def test_the_model_is_told_why_a_line_with_a_mark_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(f"A=1\nGH_TOKEN={TOKEN}\n")
    tools = handlers(Workspace(tmp_path, Shell(), []))
    door = hidden(lambda action: str(tools[action.name](**action.args)), REDACT)
    assert door(action("read_file", "read", path=".env")).endswith(
        "GH_TOKEN=<redacted:github token>"
    )
    edit = {"path": ".env", "old_str": "GH_TOKEN=<redacted:github token>", "new_str": "B=2"}
    with pytest.raises(ToolError) as caught:
        door(action("edit_file", "edit", **edit))
    assert str(caught.value).endswith("quote lines without it.")
    assert TOKEN not in str(caught.value)


# Output in pieces


def passed(chunks: list[str]) -> list[str]:
    """What is handed on of these chunks; the last is what `close` brought."""
    shown: list[str] = []
    passing = Passing(REDACT, shown.append)
    for chunk in chunks:
        passing(chunk)
    shown.append("")
    passing.close()
    return shown


def cut_up(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


WORDS = st.sampled_from(
    [
        *(
            KEY,
            TOKEN,
            "token",
            "password",
            "api_key",
            "=",
            ":",
            ": ",
            " = ",
            '"',
            "'",
            " ",
            "\n",
            "\t",
        ),
        *(
            "Bearer ",
            "Basic ",
            "dXRlOmh1bnRlcjI=",
            "Authorization: ",
            "https://ute:",
            "hunter22",
            "@h.org",
        ),
        *(
            "aB3dE5fG7hI9jK1lM3",
            "sk-",
            "sk-ant-",
            "eyJhbGciOi.eyJzdWIiOi.",
            "x" * 20,
            "a1",
            ".",
            "-",
            "(",
        ),
        *(
            "--token ",
            "\x1b[32m",
            "\\n",
            "def f(x):\n",
            "中文",
            "\r\n",
            "   ",
            "AKIA",
            "Z7Q2M4N6P5R3T2W7",
        ),
        *("-----BEGIN ", "CERTIFICATE-----\n", "next_", "\u2028", "İ"),
    ]
)
CUTS = st.lists(st.integers(0, 10_000), max_size=30)


@given(st.lists(WORDS, max_size=60).map("".join), CUTS)
def test_however_the_output_is_cut_the_same_is_hidden(text: str, cuts: list[int]) -> None:
    shown = "".join(passed(cut_up(text, cuts)))
    assert shown == REDACT(text)
    assert KEY not in shown


@given(
    st.lists(st.sampled_from([c["text"].replace("¦", "") for c in CASES["hidden"]]), max_size=6),
    CUTS,
)
def test_no_cut_brings_a_key_to_light(texts: list[str], cuts: list[int]) -> None:
    text = "\n".join(texts)
    shown = "".join(passed(cut_up(text, cuts)))
    for find in REDACT.finds(text):
        for word in text[find.start : find.end].split():
            assert len(word) < 30 or word not in shown


@given(st.lists(WORDS, max_size=10).map("".join), st.lists(WORDS, max_size=10).map("".join), CUTS)
def test_a_private_key_is_hidden_until_its_end(before: str, after: str, cuts: list[int]) -> None:
    shown = "".join(passed(cut_up(f"{before}\n{PEM}\n{after}", cuts)))
    assert shown == REDACT(f"{before}\n{PEM}\n{after}")
    assert not any(line in shown for line in PEM.split("\n"))


def test_a_private_key_without_end_is_hidden_as_far_as_it_goes() -> None:
    lines = [f"{line}\n" for line in PEM.split("\n")[:-2]]
    shown = passed([*lines * 50, "$ ls\n", *["calc.py\n"] * 40])
    assert "".join(shown) == "<redacted:private key>\n$ ls\n" + "calc.py\n" * 40


def test_lines_are_handed_on_as_they_come() -> None:
    assert passed(["one\ntw", "o\nthr", "ee"]) == ["one\n", "two\n", "", "three"]
    assert passed(["Sure? [y/n] "]) == ["Sure? [y/n] ", ""]


def test_what_only_begins_like_a_private_key_is_handed_on_in_the_end() -> None:
    for text in ("-----BEGIN", "-----BEGIN RSA ", "-----BEGIN PRIVATE KEY-----\nand so on\n"):
        assert "".join(passed([text])) == text
    assert passed(["-----BEGIN CERTIFICATE-----\n"]) == ["-----BEGIN CERTIFICATE-----\n", ""]


def test_a_word_without_end_is_neither_kept_nor_does_it_hide_a_key() -> None:
    junk = "ab/" * LONGEST
    shown = passed([junk, junk[:-1] + KEY[:5], KEY[5:] + junk, "\n"])
    assert "".join(shown[:-1]).startswith(junk[: 2 * LONGEST])
    assert "".join(shown).replace("<redacted:api key>", KEY) == junk + junk[:-1] + KEY + junk + "\n"


def test_a_key_without_end_is_dropped_as_it_comes() -> None:
    value = "aB3dE5fG7hI9jK1lM3" * LONGEST
    shown = passed(["token=", value, value, "; done\n"])
    assert "".join(shown) == "token=<redacted:token>; done\n"


def test_the_next_command_begins_anew() -> None:
    shown: list[str] = []
    passing = Passing(REDACT, shown.append)
    for text in (PEM[:92], "plain text\n"):
        passing(text)
        passing.close()
    assert "".join(shown) == "<redacted:private key>plain text\n"


# What a provider says


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "make",
    [
        *(lambda told, status=status: error(status, told) for status in (400, 401, 404, 429, 500)),
        lambda told: fail_midway("text", message=told),
    ],
)
def test_a_provider_that_repeats_the_key_does_not_bring_it_to_the_screen(
    protocol: str, make: Callable
) -> None:
    told = f"{'This is no key of ours. ' * 11}{KEY} is wrong, see ?key={KEY}"  # cut within the key
    with Server([make(told)] * 5, protocol) as server:
        talk = Talk(server.url, protocol)
        talk.keyring.given["api_key"] = (KEY, talk.keyring.given["api_key"][1])
        said = f"{talk.fails()}\n{talk.notices()}"
    assert "no key of ours" in said
    assert KEY[:6] not in said
