"""Turns streamed Markdown into finished blocks, each shown once, and one live block."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from amas_code.visible import visible

Tokens = list[Any]  # markdown-it's


class Block(NamedTuple):
    """What is shown in one go: a block of Markdown or a part of a long one."""

    source: str  # a part of a fence or table begins with the opener or header, said again
    continued: bool = False  # goes on from the block before: no empty line between them
    number: int | None = None  # of the first item, where an ordered list goes on
    before: str = ""  # fence: code shown before, for its colours; table: first part, for widths


class Stream:
    """One answer as it comes in, cut into blocks; how it was chunked makes no difference.

    Finished is what no later line can change. A fence, table, list or quote of `height` lines
    that is still open is committed up to its last line, item or quoted block. What has no place
    to part stays live as a whole: a paragraph, indented code, a single list item.
    """

    def __init__(self, height: int = 8):
        self.height = height
        self._lines: list[str] = []  # of the live block, the unfinished last one aside
        self._tail: list[str] = []  # chunks of the unfinished line
        self._return = ""  # a carriage return that may be half of a line end
        self._next = Block("")  # what is known of the live block but its source
        self._repeated = 0  # so many of the lines were shown before
        self._indent = 0  # lines indented this far belong to the last list item

    def feed(self, chunk: str) -> list[Block]:
        """Take in a chunk; returns the blocks it finished, in order."""
        text = self._return + chunk
        self._return = "\r" if text.endswith("\r") else ""
        text = text[: len(text) - len(self._return)].replace("\r\n", "\n").replace("\r", "\n")
        *ends, rest = text.split("\n")
        done = []
        for end in ends:
            line = "".join([*self._tail, end])
            self._tail = []
            done += self._take(line)
        self._tail.append(rest)
        return done

    def close(self) -> list[Block]:
        """The answer is over; returns what is left of it."""
        open_line = self._return or "".join(self._tail)
        done = self.feed("\n") if open_line else []
        return done + self._commit(len(self._lines))

    def live(self) -> Block | None:
        """The unfinished block as it stands, None if nothing of it is to be seen."""
        tail = "".join(self._tail)
        if not tail.strip(" \t-=~`*+#>|:_"):
            tail = ""  # may become a fence, a list, an underline: would only flicker
        lines = [*self._lines, tail] if tail else self._lines
        if not "".join(lines[self._repeated :]).strip():
            return None
        return self._next._replace(source=_text(lines))

    def _take(self, line: str) -> list[Block]:
        blank = not line.strip(" \t")
        if blank and not self._lines:
            return []
        self._lines.append(line)
        if self._indent and (blank or line.startswith(" " * self._indent)):
            return []  # inside a list item: nothing ends, so a long item is not parsed at each line
        return self._settle()

    def _settle(self) -> list[Block]:
        tokens = _parser(inline=False).parse(_text(self._lines))
        tops = [token for token in tokens if token.level == 0 and token.map]
        if len(tops) > 1:
            return self._commit(tops[1].map[0]) + self._settle()
        if _over(tops[0], self._lines):
            return self._commit(len(self._lines))
        self._indent = _indent(tokens, self._lines)
        tall = len(self._lines) - self._repeated >= max(self.height, 4)
        return self._part(tokens) if tall else []

    def _part(self, tokens: Tokens) -> list[Block]:
        """Commit what can be of a block grown too tall, and remember what its rest needs."""
        cut = _cut(tokens, self._lines)
        if not cut:
            return []
        number, before, repeated = None, "", 0
        match tokens[0].type:
            case "ordered_list_open":
                number = _number(tokens[0], self._next) + len(_items(tokens)) - 1
            case "fence":
                repeated = 1
                code = self._next.before + _text(self._lines[1:])
                before = "\n".join(code.split("\n")[-60:])  # more is slow to colour
            case "table_open":
                repeated = 2
                before = self._next.before or _text(self._lines)
                self._next = self._next._replace(before=before)
        head = self._lines[:repeated]
        done = self._commit(cut)
        self._lines, self._repeated = head + self._lines, repeated
        self._next = Block("", True, number, before)
        return done

    def _commit(self, count: int) -> list[Block]:
        lines, self._lines = self._lines[:count], self._lines[count:]
        block = self._next._replace(source=_text(lines))
        done = [block] if len(lines) > self._repeated else []
        self._next, self._repeated, self._indent = Block(""), 0, 0
        return done


def _text(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)  # the parser is at its best with a last line end


@cache
def _parser(inline: bool) -> Any:
    """CommonMark with tables. What a terminal cannot show stays text: HTML, link definitions."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return parser.disable(["reference"] if inline else ["reference", "inline"])


def _over(top: Any, lines: list[str]) -> bool:
    """Whether no further line can belong to this block."""
    last = lines[-1].strip(" \t")
    match top.type:
        case "heading_open" | "hr":
            return True
        case "fence":
            closes = len(last) >= len(top.markup) and not last.strip(top.markup[0])
            return closes and len(lines) > 1 and not lines[-1].expandtabs(4).startswith("    ")
        case "bullet_list_open" | "ordered_list_open" | "code_block":
            return False
    return not last


def _cut(tokens: Tokens, lines: list[str]) -> int:
    """How many lines of a block grown too tall can be committed."""
    last = max(n for n, line in enumerate(lines) if line.strip(" \t"))
    if tokens[0].type in ("fence", "table_open"):
        return len(lines)
    cut = max((token.map[0] for token in tokens if token.level == 1 and token.map), default=0)
    while cut and lines[cut - 1].strip(" \t") == ">":
        cut -= 1
    text = tokens[0].type == "blockquote_open" and tokens[1].type == "paragraph_open"
    if text and lines[last].lstrip(" ").startswith(">"):
        return cut or last
    # At 100 lines all else parts, too: parsing it again at each line would be felt.
    return cut or (last if len(lines) > 100 else 0)


def _indent(tokens: Tokens, lines: list[str]) -> int:
    """How far a line must be indented to be inside the only item for sure; 0: parse to know."""
    marker = re.match(r" *(?:[-*+]|\d+[.)]) {1,4}(?=[^ \t])", lines[0])
    return marker.end() if marker and len(_items(tokens)) == 1 else 0


def _items(tokens: Tokens) -> Tokens:
    return [token for token in tokens if token.level == 1 and token.type == "list_item_open"]


def _number(token: Any, block: Block) -> int:
    return int(token.attrs.get("start", 1)) if block.number is None else block.number


def renderable(block: Block, width: int) -> Any:
    """What Rich prints for a block: only terminal colours, no background, nothing cropped."""
    from rich.constrain import Constrain
    from rich.text import Text

    tokens = _parser(inline=True).parse(block.source)
    if any(token.level > 18 for token in tokens):  # the parser drops what is nested deeper than 20
        return Constrain(Text(visible(block.source.rstrip("\n"))), width)
    return Constrain(_stack(tokens, block, width), width)


def _stack(tokens: Tokens, block: Block, width: int, outer: Any = None) -> Any:
    """Blocks, one below the other; inside a quote or an item with the author's empty lines."""
    from rich.console import Group
    from rich.text import Text

    lines = block.source.split("\n")
    shapes: list[Any] = []
    for token, inner in _children(tokens):
        start = token.map[0]
        inside = outer and start > outer.map[0] and not lines[start - 1].strip(" \t>")
        if inside or (shapes and not outer):
            shapes.append(Text())
        shapes.append(_shape(token, inner, Block(block.source) if outer else block, width))
    return Group(*shapes)


def _children(tokens: Tokens) -> Iterator[tuple[Any, Tokens]]:
    """The outermost tokens, each with those inside it."""
    start = 0
    for n, token in enumerate(tokens):
        if token.level == tokens[0].level and token.nesting >= 0:
            start = n
        if token.level == tokens[0].level and token.nesting <= 0:
            yield tokens[start], tokens[start + 1 : n]


def _shape(token: Any, inner: Tokens, block: Block, width: int) -> Any:
    from rich.text import Text

    match token.type:
        case "heading_open":
            return _inline(inner[0], "bold underline" if token.tag == "h1" else "bold")
        case "fence" | "code_block":
            return _code(token, block.before)
        case "hr":
            return Text("─" * min(width, 40), "dim")
        case "blockquote_open":
            return _Hung("▌ ", "▌ ", _stack(inner, block, width - 2, token))
        case "bullet_list_open" | "ordered_list_open":
            return _list(token, inner, block, width)
        case "table_open":
            return _table(inner, block, width)
    return _inline(inner[0])


def _list(token: Any, inner: Tokens, block: Block, width: int) -> Any:
    from rich.console import Group

    items = []
    for number, (item, deeper) in enumerate(_children(inner), _number(token, block)):
        # Two digits have room from the start: how many items will come is not known.
        mark = f"{number}{token.markup} ".rjust(4) if token.type[0] == "o" else "• "
        body = _stack(deeper, block, width - len(mark), item)
        items.append(_Hung(mark, " " * len(mark), body))
    return Group(*items)


class _Hung(NamedTuple):
    """Something shown to the right of a mark, as a list item or a quote is."""

    mark: str  # before the first row
    rest: str  # before the others
    body: Any

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.segment import Segment

        room = options.update(width=max(options.max_width - len(self.mark), 1), height=None)
        style = console.get_style("dim" if self.rest.strip() else "")
        for n, row in enumerate(console.render_lines(self.body, room, pad=False) or [[]]):
            yield Segment(self.rest if n else self.mark, style)
            yield from row
            yield Segment.line()


def _code(token: Any, before: str) -> Any:
    """The code in terminal colours; a part of a long fence is coloured as what goes on."""
    from rich.console import Group
    from rich.text import Text

    if not token.content:
        return Group()
    code = visible(token.content.removesuffix("\n")).expandtabs(4)
    text, lexer = Text(), _lexer(token.info.partition(" ")[0].lower())
    if lexer:
        before = visible(before).expandtabs(4)
        hidden = len(before)
        for kind, part in lexer.get_tokens(f"{before}{code}\n"):
            text.append(part[max(hidden, 0) :], _colour(kind))
            hidden -= len(part)
    if text.plain != code + "\n":
        text = Text(code + "\n")
    return _Hung("  ", "  ", text[:-1])


@cache
def _lexer(language: str) -> Any:
    """The lexer for a language, None if unknown; plugins are not asked, that takes long."""
    from pygments.lexers import get_all_lexers, get_lexer_by_name

    known = any(language in names for _, names, *_ in get_all_lexers(plugins=False))
    return get_lexer_by_name(language, stripnl=False) if known else None


@cache
def _colour(kind: Any) -> str:
    names = [str(name).removeprefix("Token.") for name in reversed(kind.split())]
    return next((COLOURS[name] for name in names if name in COLOURS), "")


def _inline(inline: Any, style: str = "") -> Any:
    """Running text; line ends are kept, and what a link leads to is always to be seen."""
    from rich.text import Text

    text, styles, links = Text(), [style], [(0, "")]
    for token in inline.children:
        look = " ".join(sorted({*styles}))
        match token.type:
            case "text":
                text.append(visible(re.sub("<br ?/?>", "\n", token.content)), look)
            case "code_inline":
                text.append(visible(token.content), f"{look} cyan")
            case "softbreak" | "hardbreak":
                text.append("\n")
            case "image":
                text.append(visible(f"{token.content} ({token.attrs['src']})"), look)
            case "link_close":
                start, url = links.pop()
                if text.plain[start:] not in (url, url.removeprefix("mailto:")):
                    text.append(f" ({url})", style)
        if token.type == "link_open":
            links.append((len(text), visible(token.attrs["href"])))
        if token.nesting == 1:
            styles.append(INLINE.get(token.tag, ""))
        elif token.nesting == -1:
            styles.pop()
    return text


def _table(inner: Tokens, block: Block, width: int) -> Any:
    """A table whose cells wrap; without room for them, its source."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    header, *rows = _rows(inner)
    room = width - 2 * len(header) + 1  # older releases of Rich pad the last column, too
    if room < 4 * len(header):
        return Text(visible(block.source.rstrip("\n")))
    table = Table(box=SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.border_style, table.show_header = "dim", not block.continued
    for cell, cells in zip(header, _widths(block.before, [header, *rows], room), strict=False):
        table.add_column(cell, width=cells, overflow="fold", justify=cell.justify)
    for row in rows:
        table.add_row(*row)
    return table


def _rows(inner: Tokens) -> list[list[Any]]:
    rows = [cells for _, section in _children(inner) for _, cells in _children(section)]
    return [[_cell(cell, content[0]) for cell, content in _children(row)] for row in rows]


def _cell(cell: Any, content: Any) -> Any:
    text = _inline(content)
    text.justify = cell.attrs.get("style", "text-align:left").removeprefix("text-align:")
    return text


def _widths(before: str, rows: list[list[Any]], room: int) -> list[int]:
    """What each column needs, the widest cut down until all fit; as before if there was a part."""
    from rich.text import Text

    if before:
        rows = _rows(_parser(inline=True).parse(before)[1:-1])
    columns = [Text("\n").join(column) for column in zip(*rows, strict=False)]
    widths = [max(1, *(line.cell_len for line in column.split())) for column in columns]
    if before:  # what is still to come may need more
        widths = [width + width // 2 + 2 for width in widths]
    while sum(widths) > room:
        widths[widths.index(max(widths))] -= 1
    return widths


INLINE = {"strong": "bold", "em": "italic", "s": "strike", "a": "underline"}

# By pygments' names for kinds of tokens. Neither blue, yellow, white nor black, nor a bright
# colour: each is hard to read on some common background.
COLOURS = {
    name: colour
    for colour, names in {
        "dim": "Comment Generic.Prompt",
        "magenta": "Keyword Operator.Word Name.Tag",
        "cyan": "Name.Builtin Name.Attribute Name.Decorator Literal.Number Generic.Subheading",
        "bold": "Name.Function Name.Class Generic.Heading",
        "green": "Literal.String Generic.Inserted",
        "red": "Generic.Deleted",
    }.items()
    for name in names.split()
}
