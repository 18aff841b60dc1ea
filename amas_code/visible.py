"""Makes untrusted text safe to show: what would steer the terminal or hide is spelled out."""

import re
from functools import cache

# Covered: control characters, lone surrogates, marks that turn the reading direction, characters
# without width or ink (zero-width, tags, a second variation selector in a row, which only hides
# data), joiners beside ASCII. Kept: joiners inside emoji and other scripts, U+FE0F, the three
# flags that are spelled with tags. Not covered: letters that merely look like others.
_FLAG = "\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f"
_UNSEEN = (
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff"
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    "\xad\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
    "|(?<=[\ufe00-\ufe0f\U000e0100-\U000e01ef])[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)


def visible(text: str, keep: str = "\n\t") -> str:
    """Spell out the characters that are not to reach the terminal, but for those in `keep`.

    ESC becomes ␛ and DEL ␡, the others `<U+009B>`. Cheap where there is nothing to do.
    """
    return _unseen(keep).sub(_spelled, text)


@cache
def _unseen(keep: str) -> re.Pattern:
    kept = "".join(f"(?!{re.escape(char)})" for char in keep)
    return re.compile(f"{_FLAG}|{kept}(?:{_UNSEEN})")


def _spelled(match: re.Match) -> str:
    char = match[0]
    if len(char) > 1:
        return char  # a flag
    if ord(char) < 0x20:
        return chr(0x2400 + ord(char))
    return "␡" if char == "\x7f" else f"<U+{ord(char):04X}>"
