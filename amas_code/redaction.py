"""Hides keys, and what looks like one, before model, journal and screen get to see a text.

Covered: the keys we know, plain, quoted or in base64; keys whose form their makers publish; JWTs;
bearer and basic credentials; private keys, unfinished ones too; passwords in URLs; random values
behind a name that says secret. Not covered: passwords that are words or have less than 16
characters (but in URLs), a key broken over lines, a known key that was cut in two, the last 19
characters of a private key that was.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from amas_code.events import Action, Refused, ToolError

CarryOut = Callable[[Action], str]


class Find(NamedTuple):
    """A piece of a text that is to be hidden."""

    start: int
    end: int
    what: str  # it is, in plain words


class Redactor:
    """Puts a mark in the place of each key. keys: those that we know, asked for at each call."""

    def __init__(self, keys: Callable[[], Iterable[str]]):
        self.keys = keys

    def __call__(self, text: str) -> str:
        return covered(text, self.finds(text))

    def finds(self, text: str) -> list[Find]:
        """What it hides in this text, in order, none overlapping."""
        keys = [*known(text, tuple(self.keys())), *shaped(text), *blocks(text)]
        begin = {find.start for find in keys}  # whose form tells better where they end
        found = keys + [find for find in assigned(text) if find.start not in begin]
        apart: list[Find] = []
        for find in sorted(found, key=lambda each: each.start):  # stable: the surest first
            if apart and find.start < apart[-1].end:
                apart[-1] = apart[-1]._replace(end=max(find.end, apart[-1].end))
            else:
                apart.append(find)
        return apart


def covered(text: str, finds: Iterable[Find], start: int = 0) -> str:
    """The text from `start` on, with a mark for each find that begins there."""
    parts = []
    for find in finds:
        if find.start >= start:
            parts += [text[start : find.start], f"<redacted:{find.what}>"]
        start = max(start, find.end)
    return "".join([*parts, text[start:]])


# --- at the door ------------------------------------------------------------------------------


def hidden(carry_out: CarryOut, redactor: Redactor) -> CarryOut:
    """The outermost door: nothing that comes out of it, errors too, shows a key.

    A command with a mark in it is not run: it would do something else than the model thinks.
    """

    def kept(action: Action) -> str:
        if action.kind == "run" and MARK.search(json.dumps(action.args, default=str)):
            raise ToolError(NEVER_SHOWN.format("The call"))
        try:
            return redactor(carry_out(action))
        except ToolError as error:  # it flies on as it is: its class tells who said so
            error.args = (redactor(f"{error}{hint(action, error)}"),)
            raise
        except Exception as error:
            raise ToolError(redactor(f"{type(error).__name__}: {error}")) from error

    return kept


def hint(action: Action, error: ToolError) -> str:
    """What to add for the model if a mark may have kept the place of its edit from being found."""
    marked = MARK.search(str(action.args.get("old_str", "")))
    return HINT if marked and not isinstance(error, Refused) else ""


def unmarked(carry_out: CarryOut) -> CarryOut:
    """The door that edits go through: none may put a mark where there was none."""

    def checked(action: Action) -> str:
        for edit in action.edits:
            if marks(edit.after) > marks(edit.before):
                raise ToolError(NEVER_SHOWN.format(f"The new {edit.path.name}"))
        return carry_out(action)

    return checked


def marks(data: bytes | None) -> int:
    """How many marks a file holds. In UTF-16 and UTF-32 zeros stand between plain letters."""
    return len(MARK.findall((data or b"").replace(b"\0", b"").decode("latin-1")))


MARK = re.compile(r"<redacted:[a-z ]{1,40}>")
NEVER_SHOWN = (
    "{} holds a redaction mark: the real value was never shown to you. Edit around it, or let a "
    "command read it where it lies."
)
HINT = " old_str holds a redaction mark, which the file does not; quote lines without it."


# --- what is hidden ---------------------------------------------------------------------------


def known(text: str, keys: tuple[str, ...]) -> Iterator[Find]:
    """The keys that we know, wherever they stand."""
    for form in forms(keys):
        start = text.find(form)
        while start >= 0:
            yield Find(start, start + len(form), "api key")
            start = text.find(form, start + len(form))


@lru_cache(maxsize=4)
def forms(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys as they may stand in a text: plain, quoted in a URL or in JSON, in base64."""
    found: dict[str, None] = {}
    for key in map(str.strip, keys):
        if len(key) >= 8 and not NO_KEY.fullmatch(key):
            data = key.encode("utf-8", "replace")
            same = len(data) // 3 * 4  # characters of base64, whatever follows the key
            encoded = base64.b64encode(data)[:same].decode()
            found |= dict.fromkeys((key, quote(key, safe=""), json.dumps(key)[1:-1], encoded))
    return tuple(found)


def shaped(text: str) -> Iterator[Find]:
    """What has the form of a key."""
    for shape in shapes():
        if not shape.needles or any(needle in text for needle in shape.needles):
            for match in shape.pattern.finditer(text):
                group = match.lastindex or 0
                if shape.sure(match[group]):
                    yield Find(*match.span(group), shape.what)


def assigned(text: str) -> Iterator[Find]:
    """Random values that are given to a name which says secret."""
    lower = text.replace("İ", "i").lower()  # of all letters this one alone would be longer
    for word, what in SECRET.items():
        done, at = 0, lower.find(word)
        while at >= 0:
            value = assignment().match(text, at + len(word)) if at >= done else None
            if value and says_secret(word, lower[max(at - 20, 0) : at]) and literal(value, text):
                done = word_end(text, value.end())
                yield Find(value.start("value"), done, what)
            at = lower.find(word, at + 1)


def says_secret(word: str, before: str) -> bool:
    """Whether the word does so behind what stands before it, as `key` in `api_key`."""
    before = before.rstrip("_-. ")
    return before.endswith(KEYS) if word == "key" else not before.endswith(OPEN)


def word_end(text: str, at: int) -> int:
    """Where the rest of a value is over."""
    match = BREAK.search(text, at)
    return match.start() if match else len(text)


def literal(match: re.Match, text: str) -> bool:
    """Whether a value stands there itself, not what it is called or made by."""
    follows, quoted = text[match.end() : match.end() + 1], match["quote"]
    if not quoted and (match["sign"] in "(," or follows in ("(", "[", "{")):
        return False
    longest = max(match["value"].split("."), key=len)  # those of a name or a host are short
    return match["value"][0] != "$" and genuine(match["value"]) and is_random(longest)


def genuine(value: str) -> bool:
    """Whether it is no stand-in, as in `your-key-here` and `xxxxxxxx`."""
    return len(set(value)) >= 7 and not STAND_IN.search(value)


def is_random(value: str) -> bool:
    """Whether letters and digits change as they do in no word or name.

    Of 40,000 names and numbers in ordinary code 1 in 100 is as random as that, of keys all but a
    few of the shortest are.
    """
    value, digits = value[:500], sum(map(str.isdigit, value[:500]))
    if not 0 < digits < len(value) or len(value) < 16 or all(map(WORD.fullmatch, parts(value))):
        return False
    if HEX.fullmatch(value):
        return len(value) >= 24
    return len(PIECES.findall(value)) / len(value) >= 0.28


def parts(value: str) -> list[str]:
    return re.split("[^A-Za-z0-9]+", value)


def keylike(value: str) -> bool:
    """For forms that allow dashes, and with that ordinary words."""
    longest = max(parts(value), key=len)
    has_digit = any(map(str.isdigit, value))
    return has_digit and genuine(value) and (len(longest) >= 20 or is_random(value))


def credentials(value: str) -> bool:
    """Whether it is base64 of user:password."""
    try:
        text = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except ValueError:
        return False
    return ":" in text and text.isprintable()


def password(value: str) -> bool:
    plain = unquote(value)
    return len(plain) >= 6 and not STAND_IN.search(plain) and not NO_PASSWORD.fullmatch(plain)


SECRET = {  # words that say so, and what of
    "passw": "password",
    "passphrase": "passphrase",
    "pwd": "password",
    "secret": "secret",
    "token": "token",
    "credential": "credential",
    "_auth": "token",
    "key": "key",
}
KEYS = (
    *("api", "access", "account", "auth", "private", "secret", "signing", "encryption", "master"),
    *("license", "shared", "storage", "service", "consumer", "client", "app", "session", "webhook"),
    *("deploy", "subscription"),
)
OPEN = (  # in front of `token`, and of `secret` in the name of an AWS resource
    *("publickey", "next", "page", "starting", "continuation", "request", "change", "lock"),
    "idempotency",
    *(f"{digit}:" for digit in range(10)),
)
NO_KEY = re.compile(  # what servers that need no key tell one to give
    r"(?i)(?:sk|no|not|none|api|key|needed|required|empty|lm|studio|ollama|local|anything|"
    r"placeholder|dummy|password|[-_ ])+"
)
NO_PASSWORD = re.compile(
    r"(?i)(?:my|the|db|a|your|some|user|name|pass|word|passwd|pwd|secret|token|key|api|root|admin|"
    r"guest|test|postgres|mysql|mongo|redis|rabbit|docker|dev|local|host|port|foo|bar|baz|"
    r"[-_. \d])+"
)
STAND_IN = re.compile(
    r"(?i)your|example|change.?me|place.?holder|dummy|fake|sample|insert|replace|redacted|"
    r"xxxx|\.{3}|(.)\1{7}"
)
BREAK = re.compile(r"[\s\"'`,;&<>)}\]\\]")
PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
WORD = re.compile(r"[A-Za-z]*[0-9]*|\w{,3}")  # such as sha256, v2
HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")


# --- private keys -----------------------------------------------------------------------------


def blocks(text: str) -> Iterator[Find]:
    """Private keys from their first line on; where the last is missing, as far as they go."""
    done = 0
    for match in BEGIN.finditer(text):
        if match.start() >= done and (done := block_end(text, match.end())) > match.end():
            yield Find(match.start(), done, PRIVATE_KEY)


def block_end(text: str, at: int, inside: bool = False) -> int:
    """How far a private key goes on from there, with its END if that is there.

    Line numbers, file names, quotes, headers may stand between its lines, if not more than REACH.
    inside: some of it was there before
    """
    end = seen = at
    while match := BODY.search(text, seen, end + REACH):
        seen = match.end()
        if match[0][0] == "-":
            return seen if inside or end > at else at  # with nothing between it is no key
        if is_random(match[0]):
            end = seen
    return end


PRIVATE_KEY = "private key"
REACH = 200  # characters
BEGIN = re.compile(r"-----BEGIN[A-Z0-9 ]{0,30} PRIVATE KEY(?: BLOCK)?-----")
BODY = re.compile(  # a line, but no part of a JWT
    r"[A-Za-z0-9+/]{20,}={0,2}(?![A-Za-z0-9+/=._])|"
    r"-----END[A-Z0-9 ]{0,30} PRIVATE KEY(?: BLOCK)?-----"
)


# --- output that comes in pieces --------------------------------------------------------------


class Passing:
    """Hands on what a command prints, redacted, as it comes; `close` when the command has ended.

    Held back is what may yet become a key: the last word, the beginning of a private key. Of a
    private key, or a key as part of a word without end, the rest is dropped as it comes. All in
    all the Redactor would make the same of it, but for words of more than LONGEST characters.
    """

    def __init__(self, redactor: Redactor, hand_on: Callable[[str], None]):
        self.redactor, self.hand_on = redactor, hand_on
        self.before, self.held = "", ""  # the last that was handed on, as it was; what was not
        self.rest: Callable[[str], tuple[int, bool]] | None = None  # of what is being hidden

    def __call__(self, chunk: str) -> None:
        self.held += chunk
        if len(self.held) > LONGEST or SPACE.search(chunk):
            self._go_on(over=False)

    def close(self) -> None:
        self._go_on(over=True)
        self.before, self.held, self.rest = "", "", None

    def _go_on(self, over: bool) -> None:
        """Hand on what is certain, or all."""
        whole = len(self.held) if over else whole_words(self.held) or len(self.held)
        if self.rest:
            end, more = self.rest(self.held[:whole])
            self.before, self.held, whole = "", self.held[end:], whole - end
            if more and not over:
                return
        text, done = self.before + self.held[:whole], len(self.before)
        finds = self.redactor.finds(text)
        cut, self.rest = (len(text), None) if over else certain(text, done, finds)
        self.before, self.held = text[:cut][-CONTEXT:], self.held[cut - done :]
        if shown := covered(text[:cut], finds, done):
            self.hand_on(shown)


def flushed(carry_out: CarryOut, passing: Passing) -> CarryOut:
    """The same door; what a command printed last is handed on when it has ended."""

    def ended(action: Action) -> str:
        try:
            return carry_out(action)
        finally:
            passing.close()

    return ended


def whole_words(text: str) -> int:
    """The length of a text up to its last word, which may yet grow."""
    return len(text) if text[-1:].isspace() else len(text) - len(text.rsplit(None, 1)[-1])


def certain(text: str, done: int, finds: list[Find]) -> tuple[int, Callable | None]:
    """Where a text that goes on may be cut, and what finds the rest of the key that it cuts."""
    last = finds[-1] if finds else Find(done, done, "")
    if last.what == PRIVATE_KEY and may_go_on(text, last.end):
        return last.end, rest_of_private_key
    at = text.rfind("-----BEGIN", max(last.end, done))
    begun = BEGUN.match(text, at) if at >= 0 else None
    if begun and len(text) - begun.end() <= REACH:
        return at, None
    if not text or text[-1].isspace():
        return len(text), None
    if last.end == len(text):
        return last.end, rest_of_word
    return max(last.end, len(text) - MARGIN), None


def may_go_on(text: str, end: int) -> bool:
    """Whether more of a private key may follow what ends there."""
    return text[end - 1 : end] != "-" and len(text) - end <= REACH


def rest_of_private_key(text: str) -> tuple[int, bool]:
    end = block_end(text, 0, inside=True)
    return end, may_go_on(text, end)


def rest_of_word(text: str) -> tuple[int, bool]:
    end = word_end(text, 0)
    return end, end == len(text)


SPACE = re.compile(r"\s")
LONGEST = 8192  # characters of a word that we wait for the end of
MARGIN = 1024  # of a longer one: a key that begins there may not be all there yet
CONTEXT = 200  # a name that says secret, and what stands between it and the value
BEGUN = re.compile(rf"{BEGIN.pattern}|-----BEGIN[A-Z0-9 ]{{0,40}}-{{0,5}}\Z")


# --- how keys look ----------------------------------------------------------------------------


class Shape(NamedTuple):
    """The form of a kind of key. What the first group holds is hidden, else all."""

    what: str
    needles: tuple[str, ...]  # looked for first, since that is cheap: all that fits has one
    pattern: re.Pattern
    sure: Callable[[str], bool] = genuine


@cache
def assignment() -> re.Pattern:
    """What follows a word that says secret, if it is the end of a name that is given a value."""
    return re.compile(
        r"""(?:ord|d|s)?
        (?:[_.-]?(?:base|value|prod|production|live|dev|test|staging|main|old|new|default|str
            |string|raw|b64|base64|hex|\d{1,3}))?
        (?:\[\d{0,5}\])?\\?["'`]?\]?(?:\x1b\[[0-9;]{0,8}m)?[ \t!?]{0,9}  # x[], x["name"], !=, ?=
        (?::[ \t]*[&\w.\[\]|\ ]{1,30}(?==)|string[ ](?==))?  # a type, as in Python or Go
        (?P<sign>[=:>,( \t])[>=]{0,2}[ \t]{0,20}(?:\x1b\[[0-9;]{0,8}m)?
        (?:[bru]{0,2}(?P<quote>\\?["'`]))?(?P<value>[a-z0-9+/_.~!@#%^*?$-]{16,}={0,2})""",
        re.VERBOSE | re.IGNORECASE | re.ASCII,
    )


@cache
def shapes() -> tuple[Shape, ...]:
    """The forms that are known. After each where its maker, or a scanner, tells of it."""
    rows: tuple[tuple, ...] = (
        # docs.anthropic.com; sk-ant-api03-, -admin01-, -oat01-
        ("anthropic key", ("sk-ant-",), r"sk-ant-[\w-]{16,}", keylike),
        # openrouter.ai/docs: sk-or-v1- and 64 hex digits
        ("openrouter key", ("sk-or-",), r"sk-or-[\w-]{20,}", keylike),
        # platform.openai.com: sk-, sk-proj-, sk-svcacct-, sk-admin-; DeepSeek and others: sk-
        ("api key", ("sk-",), free("sk-") + r"[\w-]{20,}", keylike),
        # cloud.google.com/docs/authentication/api-keys; OAuth: gitleaks
        ("google key", ("AIza",), r"AIza[\w-]{30,}", keylike),
        ("google token", ("ya29.", "GOCSPX-"), r"(?:ya29\.|GOCSPX-)[\w-]{20,}", keylike),
        ("groq key", ("gsk_",), free("gsk_") + r"[A-Za-z0-9]{20,}"),  # console.groq.com; trufflehog
        # huggingface.co/docs/hub/security-tokens; letters alone: gitleaks
        ("hugging face token", ("hf_",), free("hf_") + r"[A-Za-z0-9]{30,}"),
        *(  # gitleaks: Perplexity; as their consoles show them: xAI, Cerebras, NVIDIA
            ("api key", (head,), free(head) + r"[\w-]{36,}", keylike)
            for head in ("xai-", "pplx-", "csk-", "nvapi-")
        ),
        ("api key", ("r8_",), free("r8_") + r"[A-Za-z0-9]{37}(?![\w-])"),  # Replicate: gitleaks
        # github.blog/changelog/2021-03-31: up to 255 characters
        ("github token", (), r"gh[pousr]_\w{36,255}", keylike),
        ("github token", ("github_pat_",), r"github_pat_\w{36,255}", keylike),
        # docs.gitlab.com/security/tokens: the prefixes; newer ones have dots
        (
            "gitlab token",
            (),
            r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat)-[\w.-]{20,}",
            keylike,
        ),
        # docs.aws.amazon.com/IAM: unique identifiers
        ("aws key id", ("AKIA", "ASIA"), free("A[KS]IA") + r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
        # api.slack.com/authentication/token-types; webhooks
        ("slack token", ("xox", "xapp-"), r"(?:xox[abeoprs]|xapp)-[\w.-]{10,}", keylike),
        (
            "slack webhook",
            ("hooks.slack.com/",),
            r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/-]{20,})",
        ),
        # docs.stripe.com/keys
        ("stripe key", ("k_live_", "k_test_"), r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
        ("stripe secret", ("whsec_",), r"whsec_[A-Za-z0-9+/]{24,}={0,2}"),
        # github.blog/changelog/2021-09-23: npm tokens
        ("npm token", ("npm_",), r"npm_[A-Za-z0-9]{36}"),
        # warehouse.pypa.io/development/token-scanning
        ("pypi token", ("pypi-",), r"pypi-[\w-]{50,}", keylike),
        ("sendgrid key", ("SG.",), r"SG\.[\w-]{16,}\.[\w-]{16,}", keylike),  # gitleaks
        # core.telegram.org/bots/api: number and 35 characters; the first are AA: gitleaks
        ("telegram token", (":AA",), r"(?<!\d)\d{8,10}:AA[\w-]{32,34}(?![\w-])", keylike),
        # RFC 7519: header and payload are JSON objects in base64
        ("jwt", ("eyJ",), free("eyJ") + r"[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}", keylike),
        # RFC 6750 and RFC 7617
        ("bearer token", ("earer ",), r"[Bb]earer[ ]{1,4}([\w.~+/-]{16,}={0,2})", keylike),
        ("password", ("asic ",), r"[Bb]asic[ ]{1,4}([A-Za-z0-9+/]{8,}={0,2})", credentials),
        # ~/.docker/config.json
        ("password", ('"auth"',), r'"auth" ?: ?"([A-Za-z0-9+/]{8,}={0,2})"', credentials),
        # RFC 3986: userinfo
        ("password", ("://",), r"://[^\s/?#:@\"'<>]{0,100}:([\w.~!%&+,;=^*-]{6,256})@", password),
    )
    return tuple(Shape(row[0], row[1], re.compile(row[2], re.ASCII), *row[3:]) for row in rows)


def free(head: str) -> str:
    """A pattern for `head` where a word begins, be it after a colour or an escaped line end."""
    ends = (r"\x1b\[\dm", r"\x1b\[\d\dm", r"\x1b\[\d;\d\dm", r"\\[nrt]")
    return f"{head}(?:(?<![\\w-]{head})|" + "|".join(f"(?<={end}{head})" for end in ends) + ")"
