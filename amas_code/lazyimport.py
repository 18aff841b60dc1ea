"""Imports packages so that what their modules import waits until its name is used.

Newer Pythons do so by themselves: imports that wait are PEP 810 (Python 3.15), annotations that
are not evaluated PEP 649 (3.14). Here it is done to a few packages on any CPython from 3.10 on:
their source is rewritten (lazysource.py), compiled once, and kept in a cache of ours.

How a name is found. Python looks for a global name in the module, then in the module's
`__builtins__`; ours are a dict that imports in `__missing__` and puts the result into the module.
As an attribute of the module a name that waits is found by `Module.__getattr__`.

What differs from a plain import:
- An import that fails does so where its name is used first; but where a package is not installed
  at all, at once. `try: import ours` succeeds, then, though what `ours` imports may fail.
- What a module does when it is imported happens later or never, and a name means what it means at
  its first use.
- `vars(module)`, and `globals()`, `vars()` and `dir()` within it, lack the names that wait; its
  `locals()` is a copy to write single names to, and what waits is a blank there. From outside
  `dir`, `hasattr` and stars see them all.
- A submodule is an attribute of its package even if nothing has imported it; no star exports it.
- Annotations of functions are text, as with `from __future__ import annotations`; where those of a
  class are, `typing.get_type_hints` of the class lacks the names that wait.
- A builtin that is replaced after a module has used it stays the old one there.
So whoever uses it needs a way back: `Finder.remove`, and a plain import.
"""

import builtins
import contextlib
import importlib
import importlib.util
import marshal
import os
import struct
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import distribution
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any


class Finder:
    """Finds the modules of these packages before Python's own finders do."""

    def __init__(self, packages: Iterable[str], caches: Path, before: Callable = lambda name: None):
        """caches: a directory of ours. before: called with the name of each module, of any package,
        that is about to be imported."""
        self.packages, self.before = frozenset(packages), before
        self.cache = caches / cache_name(self.packages)
        self.there: dict[str, bool] = {}  # other packages, and whether they are installed

    def install(self) -> None:
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def remove(self) -> None:
        """Forget all about the packages, so that the next import of them is a plain one."""
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        for name in [*sys.modules]:
            if name.partition(".")[0] in self.packages:
                del sys.modules[name]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        self.before(name)
        if name.partition(".")[0] not in self.packages:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and type(spec.loader) is SourceFileLoader:
            spec.loader = Loader(name, spec.loader.path, self)
        return spec

    def has_to_wait(self, module: str) -> bool:
        """Whether importing it costs something; what is not installed shall be missed at once."""
        top = module.partition(".")[0]
        if top in self.packages:
            return True
        if top not in self.there:
            self.there[top] = top in sys.modules or importlib.util.find_spec(top) is not None
        return self.there[top] and module not in sys.modules


def cache_name(packages: Iterable[str]) -> str:
    """Changes with all that the compiled code of the packages depends on."""
    found = {each: distribution(each) for each in sorted(packages)}
    versions = [f"{name}-{each.version}" for name, each in found.items()]
    places = "\n".join(str(each.locate_file("")) for each in found.values())
    rules = os.stat(Path(__file__).with_name("lazysource.py"))
    tag = f"{sys.implementation.cache_tag}-{sys.flags.optimize}-{zlib.crc32(places.encode()):x}"
    return "_".join([tag, *versions, f"{rules.st_mtime_ns:x}-{rules.st_size:x}"])


BUILTINS = vars(builtins)
START = struct.calcsize("<qqL")  # of a file in the cache: time and size of the source, checksum


class Loader(SourceFileLoader):
    """Loads one module, its code from the cache where that is as old as the source."""

    def __init__(self, name: str, path: str, finder: Finder):
        super().__init__(name, path)
        self.finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Module(spec.name, self.finder)

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, fullname: str) -> CodeType:
        status = os.stat(self.path)
        mark = struct.pack("<qq", status.st_mtime_ns, status.st_size)
        cached = self.finder.cache / fullname
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
            kept = memoryview(cached.read_bytes())
            if kept[:START] == mark + struct.pack("<L", zlib.crc32(kept[START:])):
                return marshal.loads(kept[START:])
        from amas_code.lazysource import compiled

        code = compiled(self.get_data(self.path), fullname, self.path, self.finder.packages)
        with contextlib.suppress(OSError):
            data = marshal.dumps(code)
            write(cached, mark + struct.pack("<L", zlib.crc32(data)) + data)
        return code


def write(path: Path, data: bytes) -> None:
    """Whole or not at all, also with another amas at it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)
            raise


class Module(ModuleType):
    """A module some of whose names are there only when asked for."""

    def __init__(self, name: str, finder: Finder):
        super().__init__(name)
        vars(self)["__builtins__"] = Names(self, finder)

    def __getattr__(self, name: str) -> Any:
        own, names = vars(self), vars(self)["__builtins__"]
        if names.waits(name):
            names.settle(name)
        if name in own:  # now, or another thread has put it there
            return own[name]
        if name == "__all__":  # for `from … import *`, which else looks into the module's dict
            return [each for each in names.all() if not each.startswith("_")]
        reason = None
        if "__path__" in own and not name.startswith("__"):  # it would be there by now
            try:
                return importlib.import_module(f"{self.__name__}.{name}")
            except ImportError as error:
                reason = error
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from reason

    def __setattr__(self, name: str, value: Any) -> None:
        names: Names = vars(self)["__builtins__"]
        submodule = sys.modules.get(f"{self.__name__}.{name}", self) is value is not self
        if submodule and names.has_another(name):
            return  # imported later than usual, it is not to take the place of its namesake
        names.waiting.pop(name, None)
        super().__setattr__(name, value)

    def __dir__(self) -> Iterable[str]:
        return super().__dir__() if "__dir__" in vars(self) else vars(self)["__builtins__"].all()


class Names(dict):
    """The `__builtins__` of one module: those it has used, and behind them the names that wait."""

    def __init__(self, module: ModuleType, finder: Finder):
        super().__init__(
            __import__=builtins.__import__,
            __wait__=self.wait,
            __locals__=lambda: Locals(self),
            __waiting_first__=self.first,
        )
        self.module, self.finder = module, finder
        self.waiting: dict[str, list[tuple[str, str | None]]] = {}
        self.children: set[str] = set()  # submodules that import statements here have named
        self.busy: set[tuple[int, str]] = set()  # names that a thread is just importing

    def wait(self, name: str, module: str, attribute: str | None) -> None:
        """What an import statement has become; origin as in lazysource.Origin."""
        if (module, attribute) == (self.module.__name__, name) and name in self.all():
            return  # a star of a module that has it from here
        self.wait_for_child(module)
        if attribute is None:  # `import a.b` and `import a.c` both bind `a`
            self.waiting.setdefault(name, []).append((module, None))
        else:
            self.waiting[name] = [(module, attribute)]
        vars(self.module).pop(name, None)
        own = name in BUILTINS or name.startswith("__")  # Python has other ways to these
        if own or not self.finder.has_to_wait(module):
            self.settle(name)

    def wait_for_child(self, module: str) -> None:
        """The import of a submodule sets it in its package, too: so there it waits from now on."""
        package = f"{self.module.__name__}."
        child = module.removeprefix(package).partition(".")[0]
        known = child in self.children or package + child in sys.modules
        if module.startswith(package) and not known:
            self.children.add(child)
            self.wait(child, package + child, "")

    def has_another(self, name: str) -> bool:
        """Whether something else than a submodule of that name is here, or to be, in its place."""
        value = vars(self.module).get(name, self)
        replaced = name in self.children and value is not self and not isinstance(value, ModuleType)
        return replaced or name in self.waiting

    def waits(self, name: str) -> bool:
        """False while this thread is importing it: then it is not there yet, as in any import."""
        return name in self.waiting and (threading.get_ident(), name) not in self.busy

    def all(self) -> set[str]:
        """The names that are there and those that wait."""
        return {*vars(self.module), *filter(self.waits, [*self.waiting])}

    def __missing__(self, name: str) -> Any:
        if name in BUILTINS:
            value = self[name] = BUILTINS[name]
            return value
        if self.waits(name):
            self.settle(name)
        return vars(self.module)[name]  # KeyError, which Python makes a NameError

    def settle(self, name: str) -> None:
        """Put what a name stands for into the module. Another thread may do the same."""
        key = threading.get_ident(), name
        self.busy.add(key)
        try:
            values = [found(*each) for each in self.waiting.get(name, ())]
        except (AttributeError, KeyError) as error:  # or Python says that the name is not defined
            raise ImportError(f"{name} in {self.module.__name__}: {error!r}") from error
        finally:
            self.busy.discard(key)
        for value in values[-1:]:  # none if another thread was faster
            vars(self.module).setdefault(name, value)
        self.waiting.pop(name, None)

    def first(self, own: Callable[[str], Any]) -> Callable[[str], Any]:
        """A module's own `__getattr__`, asked after the names that wait."""

        def __getattr__(name: str) -> Any:
            if self.waits(name):
                self.settle(name)
            return vars(self.module)[name] if name in vars(self.module) else own(name)

        return __getattr__


def found(module: str, attribute: str | None) -> Any:
    """Import what waited."""
    last = importlib.import_module(module)
    if attribute is None:
        return sys.modules[module.partition(".")[0]]
    try:
        return getattr(last, attribute) if attribute else last
    except AttributeError:
        try:
            return importlib.import_module(f"{module}.{attribute}")
        except ModuleNotFoundError as error:
            if error.name != f"{module}.{attribute}":
                raise
            raise ImportError(f"cannot import name {attribute!r} from {module!r}") from None


class Locals(dict):
    """`locals()` of a module, without importing all of it: a name that waits is a blank there."""

    def __init__(self, names: Names):
        super().__init__(vars(names.module))
        self.names = names

    def __missing__(self, name: str) -> Any:
        if name in self.names.waiting:
            return SimpleNamespace()
        raise KeyError(name)

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        vars(self.names.module)[name] = value
