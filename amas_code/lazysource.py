"""Rewrites the source of a module so that what it imports waits until it is used.

Every `import` and `from … import` at the top level of the module, also within `if`, becomes a call
of `__wait__(name, module, attribute)` (lazyimport.py). Left as they are, and so carried out at
once: imports within `try`, `with`, loops, classes and functions, and of names that the module
deletes. `from … import *` of a package that is rewritten too becomes a call for each of its names,
as far as they can be read from its source for certain. Annotations of functions and of the module's
own names become strings, as PEP 563 does it; those in class bodies are evaluated, since dataclasses
and TypedDicts need them.
"""

import ast
import gc
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from importlib.util import decode_source, resolve_name
from itertools import chain
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
SCOPES = FUNCTIONS | ast.ClassDef | ast.Lambda | COMPREHENSIONS
# Large or slow to make, made by an import, and never needed for what is asked of litellm here: the
# tokenizer of old Claude models, and the only use of all of aiohttp.
UNUSED = {
    "litellm.utils": {"json_data", "claude_json_str"},
    "litellm.llms.custom_httpx.http_handler": {"_AIOHTTP_SUPPORTS_SOCKET_FACTORY"},
}


class Origin(NamedTuple):
    """Where a name comes from.

    attribute: None for `import a.b`, which binds `a`; "" for `import a.b as name`
    """

    name: str
    module: str
    attribute: str | None

    def call(self, at: ast.AST) -> ast.stmt:
        arguments: list[ast.expr] = [ast.Constant(each) for each in self]
        call = ast.Expr(ast.Call(ast.Name("__wait__", ast.Load()), arguments, []))
        return ast.fix_missing_locations(ast.copy_location(call, at))


def compiled(source: bytes, module: str, path: str, packages: frozenset[str]) -> CodeType:
    """The code of a module of one of the packages. Raises SyntaxError."""
    collecting = gc.isenabled()
    gc.disable()  # trees are large and have no cycles: to search them takes a third of the time
    try:
        tree = Source(module, source, path, packages).rewritten()
        return compile(tree, path, "exec", dont_inherit=True)
    finally:
        if collecting:
            gc.enable()


class Source:
    """The source of one module."""

    def __init__(
        self, module: str, source: bytes, path: str, packages: frozenset[str], within: tuple = ()
    ):
        """within: modules whose stars are being read just now; stars may go in a circle"""
        self.module, self.packages, self.within = module, packages, (*within, module)
        self.package = module if Path(path).stem == "__init__" else module.rpartition(".")[0]
        self.text = decode_source(source)
        self.lines = self.text.split("\n")
        self.tree = ast.parse(self.text, path)
        self.postponed = "from __future__ import annotations" in self.text  # it is text already

    def rewritten(self) -> ast.Module:
        body = self.tree.body
        if unused := UNUSED.get(self.module):
            body = [each for each in body if unused.isdisjoint(stored(each))]
        for node in statements(body):
            match node:
                case ast.FunctionDef(name="__getattr__"):  # it would hide the names that wait
                    node.decorator_list.insert(0, name_at(node, "__waiting_first__"))
                case ast.AnnAssign(target=ast.Name()):
                    node.annotation = self.as_text(node.annotation)
        if "locals" in self.text:
            for node in top_level(self.tree):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "locals":
                    node.func = name_at(node, "__locals__")
        self.unannotate(body)
        self.tree.body = self.later(body, deleted(body))
        return self.tree

    def unannotate(self, body: list[ast.stmt]) -> None:
        """Make text of what annotates functions and methods; functions within them stay as is."""
        for node in statements(body):
            if isinstance(node, ast.ClassDef):
                self.unannotate(node.body)
            elif isinstance(node, FUNCTIONS):
                if node.returns:
                    node.returns = self.as_text(node.returns)
                for each in parameters(node.args):
                    if each.annotation:
                        each.annotation = self.as_text(each.annotation)

    def as_text(self, annotation: ast.expr) -> ast.expr:
        if self.postponed or isinstance(annotation, ast.Constant):
            return annotation
        line = self.lines[annotation.lineno - 1]
        if annotation.lineno == annotation.end_lineno and line.isascii():  # offsets are in bytes
            text = line[annotation.col_offset : annotation.end_col_offset]
        else:
            text = ast.unparse(annotation)
        return ast.copy_location(ast.Constant(text), annotation)

    def later(self, body: list[ast.stmt], deleted: set[str]) -> list[ast.stmt]:
        """The statements, calls in the place of imports."""
        done: list[ast.stmt] = []
        for each in body:
            if isinstance(each, ast.If):
                each.body, each.orelse = (self.later(b, deleted) for b in (each.body, each.orelse))
            origins = self.origins(each)
            if origins is None or deleted & {origin.name for origin in origins}:
                done.append(each)
            else:
                nothing = ast.copy_location(ast.Pass(), each)
                done += [origin.call(each) for origin in origins] or [nothing]
        return done

    def origins(self, statement: ast.AST) -> list[Origin] | None:
        """Each name that an import binds and where it comes from; None if it has to stay."""
        match statement:
            case ast.Import(names):
                return [
                    Origin(each.asname, each.name, "")
                    if each.asname
                    else Origin(each.name.partition(".")[0], each.name, None)
                    for each in names
                ]
            case ast.ImportFrom(names=names) if statement.module != "__future__":
                dots = "." * statement.level
                module = resolve_name(dots + (statement.module or ""), self.package)
                if names[0].name == "*":
                    return self.star(module)
                return [Origin(each.asname or each.name, module, each.name) for each in names]
        return None

    def star(self, module: str) -> list[Origin] | None:
        """What `from module import *` binds, read from its source; None if that does not tell."""
        if module in self.within:
            return []
        top, *rest = module.split(".")
        spec = PathFinder.find_spec(top) if top in self.packages else None
        if spec is None or spec.origin is None:
            return None
        path = Path(spec.origin).parent.joinpath(*rest)
        files = [path / "__init__.py", path.with_suffix(".py")]
        file = next((each for each in files if each.is_file()), None)
        if file is None:  # an extension module, or a directory only
            return None
        return Source(module, file.read_bytes(), str(file), self.packages, self.within).public()

    def public(self) -> list[Origin] | None:
        """What a star exports; None if that cannot be told."""
        bound = self.bound(self.tree.body)
        match [each for each in self.tree.body if mentions_all(each)]:
            case []:
                return None if bound is None else [*bound.values()]
            case [
                ast.Assign([ast.Name()], ast.List(items) | ast.Tuple(items))
                | ast.AnnAssign(value=ast.List(items) | ast.Tuple(items))
            ] if all(isinstance(each, ast.Constant) for each in items):
                own = self.own(ast.literal_eval(each) for each in items)
                return [(bound or own).get(each) or own[each] for each in own]
        return None

    def bound(self, body: list[ast.stmt]) -> dict[str, Origin] | None:
        """Public names that statements bind, but for type checkers only; None if that depends."""
        found: dict[str, Origin] = {}
        new: dict[str, Origin] | None
        for each in body:
            match each:
                case ast.ImportFrom(module="__future__"):
                    new = self.own(alias.name for alias in each.names)
                case ast.Import() | ast.ImportFrom():
                    origins = self.origins(each)
                    new = None if origins is None else {origin.name: origin for origin in origins}
                case ast.If(ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                    new = self.bound(each.orelse)
                case ast.If():
                    new, other = self.bound(each.body), self.bound(each.orelse)
                    same = new is not None and other is not None and new.keys() == other.keys()
                    new = self.own(new or ()) if same else None
                case ast.Try() | ast.With():  # handlers are there to bind what the body did not
                    new = self.bound([*chain(*blocks(each))])
                    new = None if new is None else self.own([*stored(each), *new])
                case _:
                    new = None if blocks(each) or deleted([each]) else self.own(stored(each))
            if new is None:
                return None
            found |= {name: new[name] for name in new if not name.startswith("_")}
        return found

    def own(self, names: Iterable[str]) -> dict[str, Origin]:
        return {each: Origin(each, self.module, each) for each in names}


def statements(body: list[ast.stmt]) -> Iterator[Any]:
    """The statements of a scope, also those within its `if`, `try`, `with` and loops."""
    for each in body:
        yield each
        for block in blocks(each):
            yield from statements(block)


def blocks(statement: Any) -> list[list[ast.stmt]]:
    """The bodies of a compound statement of the same scope."""
    if isinstance(statement, SCOPES):
        return []
    parts = [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
    fields = ("body", "orelse", "finalbody")
    found = [getattr(part, field, []) for part in parts for field in fields]
    return [each for each in found if each]


def top_level(tree: ast.AST) -> Iterator[Any]:
    """The nodes of a scope, without those of the functions, classes and comprehensions in it."""
    for child in ast.iter_child_nodes(tree):
        yield child
        if not isinstance(child, SCOPES):
            yield from top_level(child)


def stored(statement: ast.stmt) -> list[str]:
    """The names that a statement sets, or the function or class it defines."""
    if isinstance(statement, FUNCTIONS | ast.ClassDef):
        return [statement.name]
    return [name.id for name in names_in(statement) if isinstance(name.ctx, ast.Store)]


def deleted(body: list[ast.stmt]) -> set[str]:
    deletions = [each for each in statements(body) if isinstance(each, ast.Delete)]
    return {name.id for each in deletions for name in names_in(each)}


def names_in(statement: ast.stmt) -> list[ast.Name]:
    nodes = [] if isinstance(statement, SCOPES) else top_level(statement)
    return [node for node in nodes if isinstance(node, ast.Name)]


def mentions_all(statement: ast.stmt) -> bool:
    """Whether a statement may have to do with `__all__`."""
    nodes = [] if isinstance(statement, SCOPES) else top_level(statement)
    return any("__all__" in map(vars(node).get, ("id", "name", "asname")) for node in nodes)


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*named, *filter(None, (arguments.vararg, arguments.kwarg))]


def name_at(node: ast.AST, name: str) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Load()), node)  # type: ignore[type-var]
