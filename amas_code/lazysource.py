"""Rewrites the source of a module so that what it imports waits until it is used.

Every `import` and `from … import` at the top level of the module, also within `if`, becomes a call
of `__wait__(name, module, attribute)` (lazyimport.py). Left as they are, and so carried out at
once: imports within `try`, `with`, classes and functions, and of names that the module deletes.
`from … import *` of a package that is rewritten too becomes a call for each of its names, as they
can be read from its source. Annotations of functions and of the module's own names become strings,
as PEP 563 does it; those in class bodies are evaluated, since dataclasses and TypedDicts need them.
"""

import ast
from collections.abc import Iterator
from importlib.machinery import PathFinder
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

SCOPES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
# Large or slow to make, made by an import, and never needed for what is asked of litellm here: the
# tokenizer of old Claude models, and the certificates for connections of asyncio.
UNUSED = {
    "litellm.utils": {"json_data", "claude_json_str"},
    "aiohttp.connector": {"_SSL_CONTEXT_VERIFIED", "_SSL_CONTEXT_UNVERIFIED"},
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
    tree = Source(module, source, path, packages).rewritten()
    return compile(tree, path, "exec", dont_inherit=True)


class Source:
    """The source of one module."""

    def __init__(
        self,
        module: str,
        source: bytes,
        path: str,
        packages: frozenset[str],
        within: tuple[str, ...] = (),
    ):
        """within: modules whose stars are being read just now; stars may go in a circle"""
        self.module, self.packages, self.within = module, packages, (*within, module)
        self.package = module if Path(path).stem == "__init__" else module.rpartition(".")[0]
        self.tree = ast.parse(source, path)

    def rewritten(self) -> ast.Module:
        unused = UNUSED.get(self.module, set())
        self.tree.body = [each for each in self.tree.body if not names_in(each, ast.Store) & unused]
        for node in [*top_level(self.tree)]:
            match node:
                case ast.FunctionDef(name="__getattr__"):  # it would hide the names that wait
                    node.decorator_list.insert(0, name_at(node, "__waiting_first__"))
                case ast.AnnAssign(target=ast.Name()):
                    node.annotation = text_of(node.annotation)
                case ast.Call(func=ast.Name("locals")):
                    node.func = name_at(node, "__locals__")
        unannotate(self.tree)
        self.tree.body = self.later(self.tree.body, names_in(self.tree, ast.Del))
        return self.tree

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
                done += [origin.call(each) for origin in origins] or [
                    ast.copy_location(ast.Pass(), each)
                ]
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
        top, *rest = module.split(".")
        spec = PathFinder.find_spec(top) if top in self.packages else None
        if spec is None or spec.origin is None:
            return None
        if module in self.within:
            return []
        path = Path(spec.origin).parent.joinpath(*rest)
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        return Source(module, file.read_bytes(), str(file), self.packages, self.within).public()

    def public(self) -> list[Origin] | None:
        bound = self.bound(self.tree)
        if bound is None:
            return None
        if "__all__" not in bound:
            return [each for each in bound.values() if not each.name.startswith("_")]
        try:  # if it is set once, and to a literal
            (listed,) = (
                each for each in self.tree.body if "__all__" in names_in(each, ast.expr_context)
            )
            names = ast.literal_eval(listed.value)  # type: ignore[attr-defined]
        except (ValueError, AttributeError):
            return None
        return [bound.get(each) or Origin(each, self.module, each) for each in names]

    def bound(self, scope: ast.AST) -> dict[str, Origin] | None:
        """All that is bound at the top level, but for what only type checkers see."""
        found: dict[str, Origin] = {}
        for node in ast.iter_child_nodes(scope):
            origins: list[Origin] | None = []
            match node:
                case ast.ImportFrom(module="__future__"):
                    continue
                case ast.Import() | ast.ImportFrom():
                    origins = self.origins(node)
                case ast.Name(name, ast.Store()) | ast.ClassDef(name) | ast.FunctionDef(name):
                    origins = [Origin(name, self.module, name)]
                case ast.AsyncFunctionDef(name):
                    origins = [Origin(name, self.module, name)]
                case ast.If(ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                    node = ast.Module(node.orelse, [])
            if not isinstance(node, SCOPES):
                deeper = self.bound(node)
                origins = (
                    None if origins is None or deeper is None else [*origins, *deeper.values()]
                )
            if origins is None:
                return None
            found |= {each.name: each for each in origins}
        return found


def names_in(tree: ast.AST, use: type) -> set[str]:
    """Names that a scope uses so: ast.Load, ast.Store or ast.Del."""
    nodes = [] if isinstance(tree, SCOPES) else top_level(tree)
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, use)}


def top_level(tree: ast.AST) -> Iterator[Any]:
    """The nodes of a scope, without those of the functions, classes and comprehensions in it."""
    for child in ast.iter_child_nodes(tree):
        yield child
        if not isinstance(child, SCOPES):
            yield from top_level(child)


def unannotate(tree: ast.AST) -> None:
    """Make text of what annotates functions and methods; functions within them stay as they are."""
    for node in top_level(tree):
        if isinstance(node, ast.ClassDef):
            unannotate(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.returns:
                node.returns = text_of(node.returns)
            for each in ast.walk(node.args):
                if isinstance(each, ast.arg) and each.annotation:
                    each.annotation = text_of(each.annotation)


def name_at(node: ast.AST, name: str) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Load()), node)  # type: ignore[type-var]


def text_of(annotation: ast.expr) -> ast.Constant:
    return ast.copy_location(ast.Constant(ast.unparse(annotation)), annotation)
