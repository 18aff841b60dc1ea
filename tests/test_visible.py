import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amas_code.visible import visible


@pytest.mark.parametrize(
    "text, shown",
    [
        ("\x1b[2J", "␛[2J"),
        ("a\x00b\rc\x07", "a␀b␍c␇"),
        ("\x7f", "␡"),
        ("\x9b31m", "<U+009B>31m"),
        ("if x:\u202e }", "if x:<U+202E> }"),
        ("a\u2066b\u2069", "a<U+2066>b<U+2069>"),
        ("pass\u200bword\u2060\ufeff", "pass<U+200B>word<U+2060><U+FEFF>"),
        ("hi\U000e0068\U000e0069", "hi<U+E0068><U+E0069>"),
        ("ok\ufe0f\ufe01\U000e0100", "ok\ufe0f<U+FE01><U+E0100>"),
        ("ad\u200dmin", "ad<U+200D>min"),
        ("é\u200d", "é<U+200D>"),
        ("\ud83d", "<U+D83D>"),
    ],
)
def test_what_steers_or_hides_is_spelled_out(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n\treturn 1\n",
        "naïve 中文字 ｶﾅ שלום",
        "👩‍👩‍👧 ❤️ 👨🏽‍💻 1️⃣ 🏳️‍🌈",
        "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "می‌خواهم",
    ],
)
def test_ordinary_text_is_left_as_it_is(text):
    assert visible(text) == text


def test_the_caller_says_which_characters_stay():
    assert visible("a\nb\tc", keep="") == "a␊b␉c"
    assert visible("a\nb\tc", keep="\t") == "a␊b\tc"
    assert visible("a\r\nb", keep="\r\n") == "a\r\nb"


@given(st.text(st.characters(codec=None)))
def test_nothing_the_terminal_obeys_ever_gets_through(text):
    shown = visible(text)
    assert not {c for c in shown if unicodedata.category(c) in ("Cc", "Cs")} - {"\n", "\t"}
    assert not set(shown) & set("\u200b\u2060\ufeff\u202e\u2066")
    assert visible(shown) == shown
    shown.encode()
