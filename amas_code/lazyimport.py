"""Imports packages so that what their modules import waits until its name is used.

Newer Pythons do so by themselves: imports that wait are PEP 810 (Python 3.15), annotations that
are not evaluated PEP 649 (3.14). Here it is done to a few packages on any CPython from 3.10 on:
their source is rewritten (lazysource.py), compiled once, and kept in a cache of ours.

How a name is found. Python looks for a global name in the module, then in the module's
`__builtins__`; ours are a dict that imports in `__missing__` and puts the result into the module.
As an attribute of the module a name that waits is found by `Module.__getattr__`.

What differs from a plain import: an import that fails does so where its name is used first, and
what a module does when it is imported happens later or never. So whoever uses it needs a way back:
`Finder.remove`, and a plain import.
"""

import builtins
import contextlib
import importlib
import marshal
import os
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import version
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any


class Finder:
    """Finds the modules of these packages before Python's own finders do."""

    def __init__(
        self,
        packages: Iterable[str],
        caches: Path,
        before: Callable[[str], None] = lambda name: None,
    ):
        """caches: a directory of ours. before: called with the name of each module to be run."""
        self.packages, self.before = frozenset(packages), before
        self.cache = caches / cache_name(self.packages)

    def install(self) -> None:
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def remove(self) -> None:
        """Forget all about the packages, so that the next import of them is a plain one."""
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        for name in [*sys.modules]:
            if name.partition(".")[0] in self.packages:
                del sys.modules[name]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self.packages:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and type(spec.loader) is SourceFileLoader:
            spec.loader = Loader(name, spec.loader.path, self)
        return spec


def cache_name(packages: Iterable[str]) -> str:
    """Changes with all that the compiled code of the packages depends on."""
    rules = os.stat(Path(__file__).with_name("lazysource.py"))
    versions = [f"{each}-{version(each)}" for each in sorted(packages)]
    tag = sys.implementation.cache_tag
    return "_".join([tag, *versions, f"{rules.st_mtime_ns:x}-{rules.st_size:x}"])


class Loader(SourceFileLoader):
    """Loads one module, its code from the cache where that is as old as the source."""

    def __init__(self, name: str, path: str, finder: Finder):
        super().__init__(name, path)
        self.finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        self.finder.before(module.__name__)
        module.__dict__["__builtins__"] = Names(module, self.finder.packages)
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, fullname: str) -> CodeType:
        status = os.stat(self.path)
        mark = struct.pack("<qq", status.st_mtime_ns, status.st_size)
        cached = self.finder.cache / fullname
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
            kept = cached.read_bytes()
            if kept.startswith(mark):
                return marshal.loads(memoryview(kept)[len(mark) :])
        from amas_code.lazysource import compiled

        code = compiled(self.get_data(self.path), fullname, self.path, self.finder.packages)
        with contextlib.suppress(OSError):
            write(cached, mark + marshal.dumps(code))
        return code


def write(path: Path, data: bytes) -> None:
    """Whole or not at all, also with another amas at it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, path)


class Module(ModuleType):
    """A module some of whose names are there only when asked for."""

    def __getattr__(self, name: str) -> Any:
        names = vars(self).get("__builtins__")
        if isinstance(names, Names) and names.waits(name):
            return names[name]
        if "__path__" in vars(self) and not name.startswith("__"):  # it would be there by now
            with contextlib.suppress(ModuleNotFoundError):
                return importlib.import_module(f"{self.__name__}.{name}")
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class Names(dict):
    """The `__builtins__` of one module: those it has used, and behind them the names that wait."""

    def __init__(self, module: ModuleType, packages: frozenset[str]):
        super().__init__(
            __import__=builtins.__import__,
            __wait__=self.wait,
            __locals__=lambda: Locals(self),
            __waiting_first__=self.first,
        )
        self.module, self.packages = module, packages
        self.waiting: dict[str, list[tuple[str, str | None]]] = {}
        self.busy: set[tuple[int, str]] = set()  # names that a thread is just importing

    def wait(self, name: str, module: str, attribute: str | None) -> None:
        """What an import statement has become; origin as in lazysource.Origin."""
        if attribute is None:  # `import a.b` and `import a.c` both bind `a`
            self.waiting.setdefault(name, []).append((module, None))
        else:
            self.waiting[name] = [(module, attribute)]
        vars(self.module).pop(name, None)
        there = module in sys.modules and module.partition(".")[0] not in self.packages
        if there or hasattr(builtins, name):
            self.settle(name)

    def waits(self, name: str) -> bool:
        """False while this thread is importing it: then it is not there yet, as in any import."""
        return name in self.waiting and (threading.get_ident(), name) not in self.busy

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            self[name] = getattr(builtins, name)
            return self[name]
        if self.waits(name):
            self.settle(name)
        return vars(self.module)[name]  # KeyError, which Python makes a NameError

    def settle(self, name: str) -> None:
        """Put what a name stands for into the module. Another thread may do the same."""
        key = threading.get_ident(), name
        self.busy.add(key)
        try:
            value = [found(*each) for each in self.waiting[name]][-1]
        except KeyError as error:  # or Python would say that the name is not defined
            raise ImportError(f"{name} in {self.module.__name__}: {error!r}") from error
        finally:
            self.busy.discard(key)
        vars(self.module).setdefault(name, value)
        self.waiting.pop(name, None)

    def first(self, own: Callable[[str], Any]) -> Callable[[str], Any]:
        """A module's own `__getattr__`, asked after the names that wait."""

        def __getattr__(name: str) -> Any:
            return self[name] if self.waits(name) else own(name)

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
        except ModuleNotFoundError:
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
