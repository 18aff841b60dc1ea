"""Little packages, imported plainly and so that their imports wait: both must come to the same."""

import contextlib
import importlib
import importlib.machinery
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from amas_code.lazyimport import Finder
from amas_code.lazysource import compiled


class Case(NamedTuple):
    """A package `shop`, and what is done with it."""

    name: str
    files: dict[str, str]  # those whose name begins with / lie beside it
    use: str  # statements that set `result`


# ==== name of a case, -- file of the package, -> what is done with it
TABLE = r'''
==== import
-- __init__.py
import shop.a
import json
value = shop.a.x + json.dumps(1)
-- a.py
x = 'a'
-> use
import shop
result = shop.value, shop.a.x

==== import of two submodules binds the package
-- __init__.py
-- a.py
x = 'a'
-- b.py
x = 'b'
-- c.py
x = 'c'
-- m.py
import shop.a
import shop.b
def f(): return shop.a.x + shop.b.x
-> use
from shop import m
result = m.f(), m.shop.__name__

==== import of a submodule under a name
-- __init__.py
-- a.py
x = 'a'
-- b.py
x = 'b'
-- c.py
x = 'c'
-- m.py
import shop.a as first, shop.b as second
y = first.x
-> use
from shop.m import *
result = first.x, second.x, y

==== import of several packages in a line
-- __init__.py
import json, os.path, shop.a as a
y = os.path.join('p', a.x)
-- a.py
x='a'
-> use
import shop
result = shop.y, shop.os.sep, shop.json.dumps('')

==== from a package a submodule
-- __init__.py
-- a.py
x = 'a'
-- b.py
x = 'b'
-- c.py
x = 'c'
-- m.py
from . import a, b as second
from shop import c
y = a.x + second.x + c.x
-> use
from shop.m import y
result = y

==== relative imports
-- __init__.py
top = 'top'
-- in/__init__.py
from .. import top
from ..a import x
from .deep.er import y
-- a.py
x = 'a'
-- in/deep/__init__.py
from ... import top as far
from ...a import x
from .. import top
-- in/deep/er.py
from ...a import x as y
from . import far
-> use
p = __import__('importlib').import_module('shop.in')
d = p.deep
result = p.top, p.x, p.y, d.far, d.x, d.top, d.er.far

==== relative import beyond the top
-- __init__.py
-- m.py
from .... import x
-> use
import shop.m

==== star with a list of names
-- __init__.py
from .a import *
-- a/__init__.py
__all__ = ['x', '_y', 'b']
from shop.a.b import x
_y = z = 2
-- a/b.py
x = 'b'
-> use
import shop
result = shop.x, shop._y, hasattr(shop, 'z'), shop.b.x, shop.a.__all__

==== star with an annotated list
-- __init__.py
from .a import *
-- a.py
__all__: list = ['x']
x = y = 1
-> use
import shop
result = shop.x, hasattr(shop, 'y')

==== star with a list that is added up
-- __init__.py
from .a import *
-- a.py
from . import b
from .b import *
__all__ = b.__all__ + ['y']
y = z = 1
-- b.py
__all__ = ['x']
x = 1
-> use
import shop
result = shop.x, shop.y, hasattr(shop, 'z')

==== star with a list that grows
-- __init__.py
from .a import *
-- a.py
__all__ = ['x']
x = y = z = 1
__all__ += ['y']
-> use
import shop
result = shop.x, shop.y, hasattr(shop, 'z')

==== star with an imported list that grows
-- __init__.py
from .a import *
-- a.py
from .b import __all__, x
__all__ += ['y']
y = z = 1
-- b.py
__all__ = ['x']
x = 1
-> use
import shop
result = shop.x, shop.y, hasattr(shop, 'z')

==== star with an imported list
-- __init__.py
from .a import *
-- a.py
from .b import __all__, x
y = 1
-- b.py
__all__ = ['x']
x = 1
-> use
import shop
result = shop.x, hasattr(shop, 'y'), shop.a.__all__

==== star with a list in an if
-- __init__.py
from .a import *
-- a.py
x = y = 1
if x:
    __all__ = ['x']
-> use
import shop
result = shop.x, hasattr(shop, 'y')

==== star of a star
-- __init__.py
from .a import *
-- a.py
from .b import *
from json import dumps as d
a = 1
-- b.py
import os.path
from . import c
class B: pass
def f(): pass
async def g(): pass
for i in 'x': pass
v: int = 1
w: int
(s, [t, *u]) = 1, [2, 3]
-- c.py
-> use
import shop
n = 'a d os c B f g i v w s t u'.split()
result = [hasattr(shop, each) for each in n], shop.B.__module__, shop.u

==== stars in a circle
-- __init__.py
-- a.py
x = 1
from .b import *
z = y + 1
-- b.py
y = 2
from .a import *
w = x
-> use
from shop import a, b
result = a.x, a.y, a.z, b.x, b.y, b.w

==== star of the package itself
-- __init__.py
x = 1
from . import *
from . import a
from . import *
-- a.py
-> use
import shop
result = shop.x, shop.a.__name__

==== star leaves private names and those for type checkers
-- __init__.py
from .a import *
-- a.py
from typing import TYPE_CHECKING
import typing
_x = 1
if TYPE_CHECKING:
    from .none import none
else:
    other = 1
if typing.TYPE_CHECKING:
    from .none import n2
-> use
import shop
n = '_x none other n2 typing'.split()
result = [hasattr(shop, each) for each in n]

==== star over an import that is tried
-- __init__.py
from .a import *
-- a.py
try:
    import no_such_thing as j
except ImportError:
    import json as j
try:
    from .b import good
except ImportError:
    good = 'none'
try:
    from .b import bad
except ImportError as error:
    bad = 'none'
-- b.py
good = 'good'
-> use
import shop
result = shop.j.__name__, shop.good, shop.bad, hasattr(shop, 'error')

==== star over one of two imports
-- __init__.py
from .a import *
-- a.py
import sys
if sys.byteorder:
    from .b import x
else:
    from .c import x
-- b.py
x = 'b'
-- c.py
x = 'c'
-> use
import shop
result = shop.x

==== star leaves what its condition leaves
-- __init__.py
x = 'own'
from .a import *
-- a.py
import sys
y = 1
if not sys.byteorder:
    x = 'a'
-> use
import shop
result = shop.x, shop.y

==== star leaves what was deleted
-- __init__.py
i = 'own'
from .a import *
-- a.py
x = 1
for i in 'xy': pass
del i
-> use
import shop
result = shop.x, shop.i

==== star over a match and a walrus
-- __init__.py
from .a import *
-- a.py
match [1, 2]:
    case [x, *y]: pass
if (z := 3): pass
print((w := 4), end='')
-> use
import shop
result = shop.x, shop.y, shop.z, shop.w

==== star before and after a definition
-- __init__.py
def x(): return 'own'
from .a import *
def y(): return 'own'
-- a.py
def x(): return 'a'
def y(): return 'a'
-> use
import shop
result = shop.x(), shop.y()

==== star of a directory and of a missing module
-- __init__.py
-- a.py
from .dir import *
x = 1
-- dir/b.py
-- c.py
from .no import *
-> use
from shop.a import x
import shop.c

==== star of a package into code of another kind
-- __init__.py
from .a import *
from json import *
x = 1
_y = 2
-- a.py
from .b import b
from os.path import *
-- b.py
b = 1
-> use
namespace = {}
exec('from shop import *', namespace)
result = [each in namespace for each in ('x', '_y', 'b', 'join', 'dumps', 'Finder')]

==== star in a try
-- __init__.py
try:
    from .a import *
except ImportError:
    pass
-- a.py
from .b import b
-- b.py
b = 1
-> use
import shop
result = shop.b

==== names of builtins
-- __init__.py
from .a import open, len as length, print as max
from .b import *
def f(): return open(), length(), max(), min()
-- a.py
def open(): return 'ours'
len = print = open
-- b.py
def min(): return 'b'
-> use
import shop
result = shop.f()

==== a name that is deleted
-- __init__.py
from .a import x, y
z = x
del x
if y:
    del y
-- a.py
x = y = 1
-> use
import shop
result = shop.z, hasattr(shop, 'x'), hasattr(shop, 'y')

==== imports in try, with, loops, classes and functions
-- __init__.py
import contextlib
try:
    from .a import x
except ImportError: x = 0
with contextlib.suppress(ImportError):
    from .a import y
for _ in 'x':
    from .a import z
class C:
    from .a import x
    import json as j
def f():
    from .a import x
    import shop.a
    return x, shop.a.y
-- a.py
x, y, z = 'xyz'
-> use
import shop
result = shop.x, shop.y, shop.z, shop.C.x, shop.C.j.dumps(1), shop.f()

==== an import that is tried and fails
-- __init__.py
try:
    import shop.no as m
except ImportError:
    m = None
try:
    from .a import no
except ImportError:
    no = None
try:
    import shop.b
    b = 1
except ImportError:
    b = None
-- a.py
-- b.py
import not_installed_at_all
-> use
import shop
result = shop.m, shop.no, shop.b

==== imports in if and else
-- __init__.py
-- a.py
x = 'a'
-- b.py
x = 'b'
-- c.py
x = 'c'
-- m.py
import sys
if sys.byteorder:
    from .a import x
    if not x:
        pass
    elif x:
        from .b import x as y
else:
    from .c import x
if not sys.byteorder:
    from .c import x as z
-> use
from shop import m
result = m.x, m.y, hasattr(m, 'z')

==== modules that import each other
-- __init__.py
from .b import B
from .a import A
-- a.py
from . import b
class A:
    def other(self): return b.B()
-- b.py
from shop.a import A
class B(A):
    pass
-> use
import shop
result = type(shop.A().other()).__name__, issubclass(shop.B, shop.A)

==== modules that use each other while imported
-- __init__.py
-- a.py
x = 1
from . import b
y = b.y + 1
def f(): return b.z
-- b.py
from .a import x
y = x + 1
z = 'z'
-> use
from shop import a
result = a.x, a.y, a.f()

==== a function called in a circle
-- __init__.py
-- a.py
class X: pass
from .b import make
made = make()
from . import b
again = b.make()
-- b.py
def make(): return X.__name__
from .a import X
-> use
from shop import a
result = a.made, a.again, a.b.make()

==== a package that has its submodules' names
-- __init__.py
from .work import work
from .play.main import *
from .rest import other
def rest(): return 'function'
from .api import late
-- work.py
def work(): return 'function'
help = 1
-- play/__init__.py
-- play/main.py
def play(): return 'function'
-- rest.py
other = 1
-- late.py
def late(): return 'function'
-- api.py
from .late import late
-> use
import shop.play.main, shop.work, shop.rest, shop.late
from shop.work import help
result = shop.work(), shop.play(), shop.rest(), shop.other, shop.late()

==== a value, then a submodule of its name
-- __init__.py
cache = False
from .cache.a import x
old = False
from .api import old
-- cache/__init__.py
-- cache/a.py
x = 1
-- api.py
import shop.old
old = shop.old
-- old.py
-> use
import shop
result = shop.x, shop.cache.a.x, shop.cache.__name__, shop.old.__name__

==== a submodule, then a value of its name
-- __init__.py
from .cache.a import x
cache = False
-- cache/__init__.py
-- cache/a.py
x = 1
-> use
import shop.cache.a
result = shop.x, shop.cache

==== a submodule with the name of a builtin
-- __init__.py
from .filter import x
def f(): return filter.__name__, filter.x
-- filter.py
x = 1
-> use
import shop
result = shop.f(), shop.filter.x

==== star of a module that has names from the package
-- __init__.py
from .a import x
from .b import *
-- a.py
x = 'a'
-- b.py
from shop import x
y = x
-> use
import shop
result = shop.x, shop.y, shop.b.x

==== a submodule put in the place of another
-- __init__.py
from . import a
-- a.py
import sys
x = len(sys.argv)
-> use
import sys, shop.a
old = shop.a
del sys.modules['shop.a']
import shop.a
result = shop.a is sys.modules['shop.a'], shop.a is old

==== a module's own __getattr__
-- __init__.py
from .a import x
def __getattr__(name):
    if name == 'made': return name
    raise AttributeError(f'no {name}')
-- a.py
x = 'a'
-> use
import shop
result = shop.x, shop.made, hasattr(shop, 'no'), shop.a.x

==== an imported __getattr__, __dir__ and __all__
-- __init__.py
from .a import __getattr__, __dir__, __version__, x
-- a.py
__version__ = '1'
x = 1
def __getattr__(name):
    if name == 'no':
        raise AttributeError
    return name
def __dir__(): return ['d']
-> use
import shop
result = shop.y, dir(shop), shop.__version__, shop.x, hasattr(shop, 'no')

==== hasattr, getattr and dir
-- __init__.py
from .a import x
import json as j
y = 1
-- a.py
x = 'a'
-> use
import shop
known = {'x', 'j', 'y'} <= {*dir(shop)}
result = (
    known, dir(shop) == sorted(dir(shop)), hasattr(shop, 'x'), hasattr(shop, 'no'),
    getattr(shop, 'no', 1), shop.j.dumps(1)
)

==== what is not there
-- __init__.py
from .a import x
def f(): return nothing
-- a.py
x = 'a'
-> use
import shop
def told(call):
    try: call()
    except Exception as error: return repr(error)
result = told(shop.f), told(lambda: shop.nothing), told(lambda: __import__('shop.none'))

==== locals of a module, written
-- __init__.py
from .a import x
for name in ('p', 'q'):
    locals()[name] = name
here = locals()
here['r'] = 'r'
known = 'name' in locals(), p + q + r
-- a.py
x = 'a'
-> use
import shop
result = shop.p, shop.q, shop.r, shop.known, shop.x

==== locals of a module, read
-- __init__.py
from .a import A
b = 1
here = locals()
try:
    here['A'].__module__ = 'shop'
    here['no']
except KeyError: no = 1
value = here['b']
class C:
    x = 1
    y = [*locals()]
def f(a): return locals()
-- a.py
class A: pass
-> use
import shop
result = shop.value, shop.no, 'x' in shop.C.y, shop.f(1), shop.A.__name__

==== globals in a function
-- __init__.py
from .a import x
y = 1
def f():
    globals()['z'] = 2
    return z, globals()['y'], eval('x'), eval('x + s', globals(), {'s': 's'})
-- a.py
x = 'a'
-> use
import shop
result = shop.f(), shop.z

==== classes made of imported names
-- __init__.py
from .a import Base, Meta, wrap, Kind, value
@wrap
class C(Base, metaclass=Meta):
    kind: Kind = value
    other = value + 1
    @wrap
    def f(self, x: Kind = value) -> Kind: return super().f() + x
-- a.py
class Meta(type): pass
class Base:
    def f(self): return 1
def wrap(x): x.wrapped = True; return x
Kind = int
value = 1
-> use
import shop
C = shop.C
result = (
    C.wrapped, C.__annotations__, C.other, C().f(), [each.__name__ for each in C.__mro__],
    type(C).__name__, C.f.wrapped
)

==== dataclasses
-- __init__.py
from dataclasses import InitVar, dataclass, field, fields
import dataclasses
import typing as t
from typing import ClassVar
from .a import Kind, new
@dataclass(frozen=True, order=True)
class D:
    a: Kind
    b: ClassVar[Kind] = 1
    c: InitVar[Kind] = 2
    d: list = field(default_factory=new)
    e: t.ClassVar = 3
    def __post_init__(self, c): self.d.append(c)
-- a.py
Kind = int
def new(): return [0]
-> use
import shop
result = (
    [(f.name, f.type) for f in shop.fields(shop.D)], repr(shop.D(1)), shop.D(1) < shop.D(2),
    shop.D(1, c=5).d
)

==== dataclasses with annotations that are text
-- __init__.py
from __future__ import annotations
from dataclasses import InitVar, dataclass, fields
import typing as t
from typing import ClassVar
from .a import Kind
@dataclass
class D:
    a: Kind
    b: ClassVar[Kind] = 1
    c: InitVar[Kind] = 2
    e: t.ClassVar = 3
def f(x: Kind, y: 'Kind') -> None: pass
z: Kind = 1
-- a.py
Kind = int
-> use
import shop, typing
D = shop.D
result = (
    [(f.name, f.type) for f in shop.fields(D)], D(1).e, shop.f.__annotations__,
    shop.__annotations__, typing.get_type_hints(shop.f)
)

==== typed dicts and models with annotations that are text
-- __init__.py
from __future__ import annotations
from typing import Optional, TypedDict
from pydantic import BaseModel
from .a import Kind, Other
class T(TypedDict, total=False):
    x: Kind
    y: Optional[Other]
class M(BaseModel):
    x: Kind
    y: Other | None = None
def f(x: T) -> M: return M(**x)
-- a.py
from .b import Kind
Other = str
-- b.py
Kind = int
-> use
import shop, typing
result = typing.get_type_hints(shop.T), shop.f({'x': '1'}).model_dump(), shop.M.model_json_schema()

==== named tuples, typed dicts, enums and protocols
-- __init__.py
from enum import Enum, auto
from typing import NamedTuple, Protocol, TypedDict, runtime_checkable
from .a import Kind, two
class N(NamedTuple):
    x: Kind
    y: Kind = two
    def f(self) -> Kind: return self.x
class T(TypedDict, total=False):
    x: Kind
    y: 'Kind'
class E(Enum):
    A = auto()
    B = two
    def f(self) -> Kind: return two
@runtime_checkable
class P(Protocol):
    x: Kind
    def f(self, x: Kind) -> Kind: ...
-- a.py
Kind = int
two = 2
-> use
import shop, typing
h = typing.get_type_hints
result = (
    shop.N(1), shop.N(1).f(), h(shop.N), h(shop.T), sorted(shop.T.__optional_keys__),
    [*map(repr, shop.E)], shop.E(2).f(), isinstance(shop.N(1), shop.P), isinstance(1, shop.P),
    h(shop.P.f)
)

==== type hints
-- __init__.py
from typing import Optional
from . import a
from .a import Kind, Other
def f(x: Kind, /, *y: 'Kind', z: 'a.Other | None' = None, **w: Optional[
    Kind
]) -> Kind | None: pass
async def g(x: (Kind |
    Other)) -> 'ä' or Kind: pass
class C:
    x: Kind
    def m(self, x: Kind = 1) -> 'C': pass
    @classmethod
    def c(cls, x: Kind): pass
    @property
    def p(self) -> Kind: pass
def inner():
    def f(x: Kind): pass
    return f.__annotations__
v: Kind = 1
w: 'Kind'
-- a.py
Kind = int
Other = str
-> use
import shop, typing
h = typing.get_type_hints
C = shop.C
result = (
    h(shop.f), h(C), h(C.m) == {'x': int, 'return': C}, h(C.c), h(C.p.fget), shop.inner(),
    h(shop)
)

==== decorators that read annotations
-- __init__.py
import functools, inspect, typing
from .a import Kind, names
@functools.singledispatch
def show(x): return 'any'
@show.register
def _(x: Kind): return 'kind'
@show.register
def _(x: list): return 'list'
@names
def f(x: Kind, y: 'Kind', z: None = None) -> None: pass
told = [*inspect.signature(f).parameters]
-- a.py
Kind = int
def names(f): f.names = [*f.__annotations__]; return f
-> use
import shop
result = shop.show(1), shop.show([]), shop.show(''), shop.f.names, shop.told

==== names set anew
-- __init__.py
from .a import x, y, z, w
x = x + 1
y += 1
def f():
    global z, w
    z += 1
    w = 9
    return x, y, z, w
-- a.py
x = y = z = w = 1
-> use
import shop
result = shop.f(), shop.f(), shop.x, shop.z, shop.w, shop.a.x

==== an import over a value and a value over an import
-- __init__.py
x = 'own'
from .a import x
from .a import y
y = 'own'
from .b import z
from .a import z
z = z if z else None
-- a.py
x, y, z = 'abc'
-- b.py
z = 'z'
-> use
import shop
result = shop.x, shop.y, shop.z

==== names set from outside
-- __init__.py
from .a import x, y
def f(): return x
def g(): return y
-- a.py
x = y = 1
-> use
import shop
shop.x = 2
first = shop.f() + shop.g()
del shop.x
del shop.y
shop.a = None
result = first, hasattr(shop, 'x'), hasattr(shop, 'y'), shop.a

==== a patch that is taken back
-- __init__.py
from .a import x, y
def f(): return x, y
-- a.py
x = y = 1
-> use
import shop
from unittest import mock
with mock.patch('shop.x', 2), mock.patch.object(shop, 'y', 3): first = shop.f()
result = first, shop.f()

==== namespace packages
-- __init__.py
from .dir import a
from .dir.a import x
import shop.dir.a as m
-- dir/a.py
x = 1
-> use
import shop
result = shop.x, shop.a.x, shop.m.x, shop.dir.a.x

==== comprehensions, lambdas and walrus
-- __init__.py
from .a import f, data, g, h
here = [f(x) for x in data if g(x)]
there = {x: f(x) for x in data}
late = lambda x, k=g: f(x) + k(x)
lazily = (h(x) for x in data)
if (n := f(1)) > 1: m = n
last = [n := f(x) for x in data]
class C:
    y = [f(x) for x in data]
    z = sorted(data, key=lambda x: -h(x))
-- a.py
def f(x): return x + 1
g = h = f
data = [1, 2]
-> use
import shop
result = shop.here, shop.there, shop.late(1), [*shop.lazily], shop.m, shop.n,shop.C.y, shop.C.z

==== match
-- __init__.py
from .a import P
from . import a
def f(x):
    match x:
        case P(x=1): return 'one'
        case P(x=a.two): return 'two'
        case int() | str(): return 'builtin'
        case {'k': P()}: return 'dict'
-- a.py
from dataclasses import dataclass
@dataclass
class P:
    x: int
two = 2
-> use
import shop
P = shop.P
result = [*map(shop.f, [P(1), P(2), P(3), 1, {'k': P(1)}])]

==== async functions, generators and closures
-- __init__.py
import asyncio
from .a import x, y, Error, manager
async def agen():
    yield x
async def f():
    async with manager(): pass
    return [z async for z in agen()], await asyncio.sleep(0, y)
def gen():
    try: yield y
    except Error: yield 'error'
def outer():
    def inner(): return x
    return inner
def run(): return asyncio.run(f())
-- a.py
from contextlib import asynccontextmanager
x, y = 'xy'
class Error(Exception): pass
@asynccontextmanager
async def manager(): yield
-> use
import shop
g = shop.gen()
result = shop.run(), next(g), g.throw(shop.Error()), shop.outer()()

==== pydantic models
-- __init__.py
from pydantic import BaseModel, Field, field_validator
from typing import Optional, List
from .a import Part, check
class Whole(BaseModel):
    parts: List[Part] = Field(default_factory=list)
    one: 'Optional[Part]' = None
    next: Optional['Whole'] = None
    @field_validator('parts')
    @classmethod
    def checked(cls, v: List[Part]) -> List[Part]:
        return check(v)
-- a.py
from __future__ import annotations
from pydantic import BaseModel
from .b import Kind
class Part(BaseModel):
    kind: Kind = 1
def check(v): return v
-- b.py
Kind = int
-> use
import shop
made = shop.Whole(parts=[{'kind': '2'}], one={}, next={})
result = made.model_dump(), shop.Whole.model_json_schema()

==== the text and the lines of functions
-- __init__.py
"""Doc."""

from __future__ import annotations
from .a import (
    x,
    y,
)
from .b import *

@x
def f():
    y()


class C:
    def g(self): return 1
-- a.py
def x(f): return f


def y():
    raise RuntimeError('here')
-- b.py
-> use
import shop, inspect, traceback
try: shop.f()
except RuntimeError as e: error = e
lines = [(f.name, f.lineno, f.line) for f in traceback.extract_tb(error.__traceback__)][1:]
result = (
    shop.__doc__, lines, inspect.getsource(shop.f), inspect.getsource(shop.C.g),
    inspect.getsourcelines(shop.a.y)
)

==== functions and classes pickled
-- __init__.py
from .a import A, f
-- a.py
from .b import B
class A(B):
    def __init__(self): self.x = B
def f(): return B
-- b.py
class B: pass
-> use
import shop, pickle
back = lambda x: pickle.loads(pickle.dumps(x))
result = back(shop.f) is shop.f, back(shop.A) is shop.A, back(shop.A()).x is shop.a.B

==== a module loaded again
-- __init__.py
-- a.py
from .b import x
from .b import y
count = globals().get('count', 0) + 1
def f(): return x, y, count
-- b.py
x, y = 'xy'
-> use
import importlib
from shop import a
old, first = a.f, a.f()
a.x = 'changed'
again = importlib.reload(a)
result = first, old(), a.f(), a.x, again is a

==== an attribute that is no submodule
-- __init__.py
from .a import x
-- a.py
from json import dumps
x = 1
-> use
import shop
result = shop.a.dumps(1), hasattr(shop.a, 'b'), hasattr(shop, 'no')

==== what modules know of themselves
-- __init__.py
from .a import f
name, package, doc = __name__, __package__, __doc__
-- a.py
f = __file__
-> use
import shop, os
s = shop.__spec__
result = (
    shop.name, shop.package, shop.doc, shop.f, s.name, s.origin,
    [*s.submodule_search_locations], shop.__file__, shop.__cached__, repr(shop)
)

==== data beside the modules
-- __init__.py
import importlib.resources as r
def f(): return (r.files('shop') / 'd.txt').read_text()
-- d.txt
data
-> use
import shop, pkgutil
result = shop.f(), pkgutil.get_data('shop', 'd.txt')

==== a syntax error
-- __init__.py
-- a.py
x = (
-> use
import shop.a

==== a package that is not installed
-- __init__.py
-- a.py
import not_installed_at_all.x as n
-- b.py
from . import a
a.n
-> use
import shop.b

==== a name that a module has not
-- __init__.py
-- a.py
from json import nothing
from .b import x
x
-- b.py
-> use
import shop.a

==== code beside the packages
-- __init__.py
from beside import x
import beside.sub
y = beside.sub.y
-- /beside/__init__.py
from .a import x
-- /beside/a.py
x = 1
-- /beside/sub.py
y = 2
-> use
import shop
result = shop.x, shop.y, shop.beside.__name__
'''


def cases() -> Iterator[Case]:
    for case in TABLE.split("\n==== ")[1:]:
        name, _, rest = case.partition("\n-- ")
        files, _, use = rest.partition("\n-> use\n")
        texts = (file.partition("\n") for file in files.split("\n-- "))
        yield Case(name, {file: text for file, _, text in texts}, use)


class Shop:
    """A directory with packages, and a finder that makes the imports of one of them wait."""

    def __init__(self, root: Path):
        self.root, self.caches = root / "packages", root / "caches"
        self.write({"/shop-1.0.dist-info/METADATA": "Name: shop\nVersion: 1.0\n"})

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name[1:] if name.startswith("/") else self.root / "shop" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())

    @contextlib.contextmanager
    def waiting(self, before: Callable = id) -> Iterator[Finder]:
        """Within it, what the modules of shop import waits."""
        with self.plain():
            finder = Finder(["shop"], self.caches, before)
            finder.install()
            try:
                yield finder
            finally:
                if finder in sys.meta_path:
                    finder.remove()

    @contextlib.contextmanager
    def plain(self) -> Iterator[None]:
        before = {*sys.modules}
        sys.path.insert(0, str(self.root))
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path.remove(str(self.root))
            for name in {*sys.modules} - before:
                if name.partition(".")[0] in ("shop", "beside"):
                    del sys.modules[name]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def run(statements: str) -> Any:
    """What they set `result` to, or what kind of error they raise."""
    names: dict = {}
    try:
        exec(statements, names)
    except Exception as error:
        return type(error)
    return names.get("result")


@pytest.mark.parametrize("case", [*cases()], ids=lambda case: case.name)
def test_what_waits_comes_to_the_same_as_a_plain_import(shop: Shop, case: Case):
    shop.write(case.files)
    with shop.plain():
        expected = run(case.use)
    for _ in ("compiled", "from the cache"):
        with shop.waiting():
            assert run(case.use) == expected
            assert type(sys.modules.get("shop")) is not ModuleType
    assert isinstance(expected, type) == ("result" not in case.use)


@pytest.mark.parametrize(
    "statement, use",
    [
        ("import shop.slow", "shop.slow"),
        ("import shop.slow as s", "s"),
        ("from . import slow", "slow"),
        ("from . import slow as s", "s"),
        ("from .slow import x", "x"),
        ("from .slow import x as y", "y"),
        ("from .slow import *", "x"),
        ("if __name__:\n    from .slow import x", "x"),
        ("from .slow import x\ndef f(y: x) -> x: pass", "x"),
        ("from .slow import x\nv: x = 1", "x"),
        ("from .slow import x\nclass C:\n    def f(self, y: x = 1) -> x: pass", "x"),
    ],
)
def test_a_module_is_not_run_before_a_name_of_it_is_used(shop: Shop, statement: str, use: str):
    shop.write({"__init__.py": "", "m.py": f"{statement}\ndef use(): return {use}"})
    shop.write({"slow.py": "x = 1"})
    with shop.waiting():
        m = importlib.import_module("shop.m")
        dir(m)
        assert "shop.slow" not in sys.modules
        m.use()
        assert "shop.slow" in sys.modules


def test_other_packages_wait_too_unless_they_are_there_already(shop: Shop):
    shop.write({"__init__.py": "from beside import x\nfrom json import dumps"})
    shop.write({"/beside.py": "x = 1"})
    with shop.waiting():
        m = importlib.import_module("shop")
        assert "beside" not in sys.modules
        assert "dumps" in vars(m)
        assert m.x == 1


def test_what_is_not_installed_is_told_at_once(shop: Shop):
    tried = "try:\n    from . import a\nexcept ImportError as error:\n    told = error.name"
    shop.write({"__init__.py": tried, "a.py": "import no_such_thing.at.all as x"})
    with shop.waiting():
        assert importlib.import_module("shop").told == "no_such_thing"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "cannot import name 'x' from 'shop.bad'"),
        ("raise ImportError('broken')", "broken"),
        ("import shop.none\nshop.none", "No module named 'shop.none'"),
        ("{}['key']", r"x in shop.m: KeyError\('key'\)"),
        ("''.key", "x in shop.m: AttributeError"),
    ],
)
def test_a_failed_import_is_told_where_the_name_is_used_each_time(
    shop: Shop, text: str, message: str
):
    shop.write({"__init__.py": "", "bad.py": text})
    shop.write({"m.py": "from .bad import x\n\ndef use():\n    return x"})
    with shop.waiting():
        m = importlib.import_module("shop.m")
        for use in (m.use, m.use, lambda: m.x, lambda: hasattr(m, "x")):
            with pytest.raises(ImportError, match=message) as told:
                use()
        with pytest.raises(ImportError) as told:
            m.use()
        assert (told.traceback[1].path.name, told.traceback[1].lineno + 1) == ("m.py", 4)
        shop.write({"bad.py": "x = 'mended'"})
        sys.modules.pop("shop.bad", None)
        importlib.invalidate_caches()
        assert m.use() == "mended"


def test_a_submodule_that_fails_is_no_attribute_and_its_error_is_told(shop: Shop):
    shop.write({"__init__.py": "", "bad.py": "raise ImportError('broken')"})
    shop.write({"m.py": "from . import bad\ndef use(): return bad"})
    with shop.waiting():
        package = importlib.import_module("shop")
        assert not hasattr(package, "bad")
        with pytest.raises(AttributeError) as told:
            _ = package.bad
        assert str(told.value.__cause__) == "broken"
        with pytest.raises(ImportError, match="broken"):
            importlib.import_module("shop.m").use()


@pytest.fixture
def often_switched() -> Iterator[None]:
    """Threads take turns much more often than usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("count", [2, 20])
def test_threads_that_use_a_name_at_once_all_get_it(shop: Shop, count: int, often_switched: None):
    shop.write(
        {
            "__init__.py": "from .a import x\ndef inside(): return x\nimport shop.b as b",
            "a.py": "from .b import y\nx = object()\nz = y",
            "b.py": "y = [*range(100_000)]",  # takes a while, so that others get in between
        }
    )
    for _ in range(10):
        with shop.waiting():
            m = importlib.import_module("shop")
            begin, found = threading.Barrier(count), []

            def use(n: int, begin=begin, m=m, found=found) -> None:
                begin.wait()
                found.append(m.inside() if n % 2 else m.x)

            threads = [threading.Thread(target=use, args=[n]) for n in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(found) == count
            assert {*map(id, found)} == {id(m.x)}


def test_extension_modules_are_left_alone(shop: Shop):
    found = importlib.machinery.PathFinder.find_spec("_json")
    if not found or not found.origin:
        pytest.skip("no extension module at hand")
    shop.write({"__init__.py": "from . import _json\nfrom ._json import *"})
    shutil.copy(found.origin, shop.root / "shop")
    with shop.waiting():
        package = importlib.import_module("shop")
        assert type(package._json) is ModuleType
        assert package._json.scanstring and package.scanstring


def test_each_module_is_announced_before_it_is_run(shop: Shop):
    shop.write({"__init__.py": "from .a import x", "a.py": "x = 1"})
    told: list[str] = []
    with shop.waiting(told.append):
        package = importlib.import_module("shop")
        assert told == ["shop"]
        assert package.x and told == ["shop", "shop.a"]


def test_names_that_no_one_needs_are_not_made():
    code = compiled(b"claude_json_str = 1 / 0\nx = 1", "litellm.utils", "utils.py", frozenset())
    names: dict = {}
    exec(code, names)
    assert names["x"] == 1


def test_with_files_of_any_encoding_and_line_end(shop: Shop):
    text = "# coding: latin-1\r\nfrom .a import x\r\ndef f(ä: x, y: dict[x, 'ö']) -> x: pass\r\n"
    shop.write({"__init__.py": "", "a.py": "\ufeffx = 'ä'"})
    (shop.root / "shop" / "m.py").write_bytes(text.encode("latin-1"))
    with shop.waiting():
        m = importlib.import_module("shop.m")
        assert m.x == "ä"
        assert m.f.__annotations__ == {"ä": "x", "y": "dict[x, 'ö']", "return": "x"}


def test_after_remove_an_import_is_a_plain_one(shop: Shop):
    shop.write({"__init__.py": "from .a import x\nimport beside", "a.py": "x = 1"})
    shop.write({"/beside.py": ""})
    with shop.waiting() as finder:
        old = importlib.import_module("shop")
        assert old.x and old.beside
        finder.remove()
        assert not [name for name in sys.modules if name.partition(".")[0] == "shop"]
        assert "beside" in sys.modules
        new = importlib.import_module("shop")
        assert type(new) is ModuleType
        assert {"x", "a"} <= {*vars(new)}


# The cache


def kept(shop: Shop) -> Path:
    """The file with the code of shop.a."""
    (found,) = shop.caches.glob("*/shop.a")
    return found


def value(shop: Shop) -> Any:
    with shop.waiting():
        return importlib.import_module("shop.a").x


def damages() -> dict[str, Callable[[bytes], bytes]]:
    return {
        "empty": lambda data: b"",
        "truncated": lambda data: data[:-7],
        "without code": lambda data: data[:16],
        "zeros": lambda data: bytes(len(data)),
        "zeros at the end": lambda data: data[:40] + bytes(len(data) - 40),
        "one byte": lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:],
        "too long": lambda data: data + b"x",
    }


@pytest.mark.parametrize("damage", damages().values(), ids=damages())
def test_a_damaged_file_in_the_cache_is_made_anew(shop: Shop, damage: Callable):
    shop.write({"__init__.py": "", "a.py": "x = 'right'"})
    assert value(shop) == "right"
    good = kept(shop).read_bytes()
    kept(shop).write_bytes(damage(good))
    assert value(shop) == "right"
    assert len(kept(shop).read_bytes()) == len(good)


def test_a_cache_that_cannot_be_read_or_written_is_done_without(shop: Shop):
    shop.write({"__init__.py": "", "a.py": "x = 'right'"})
    assert value(shop) == "right"
    kept(shop).unlink()
    (next(shop.caches.iterdir()) / "shop.a").mkdir()
    assert value(shop) == "right"
    assert not [*shop.caches.glob("*/tmp*")]
    shutil.rmtree(shop.caches)
    shop.caches.write_text("a file")
    assert value(shop) == "right"
    assert shop.caches.read_text() == "a file"


@pytest.mark.parametrize("text", ["x = 'longer than before'", "x = 'newer'"])
def test_a_changed_source_is_compiled_anew(shop: Shop, text: str):
    shop.write({"__init__.py": "", "a.py": "x = 'older'"})
    assert value(shop) == "older"
    shop.write({"a.py": text})
    os.utime(shop.root / "shop" / "a.py", (1, 1))
    assert value(shop) in text
    assert value(shop) in text


def test_what_is_in_the_cache_is_what_was_compiled(shop: Shop):
    text = "from .b import x\ndef f(y: x = 1): return y\nclass C: pass"
    shop.write({"__init__.py": "", "a.py": text, "b.py": "x = 1"})
    path = str(shop.root / "shop" / "a.py")
    with shop.waiting():
        loader = importlib.import_module("shop.a").__loader__
        code = loader.get_code("shop.a")
    assert code == compiled(text.encode(), "shop.a", path, frozenset(["shop"]))
    assert code.co_filename == path
    assert stat.S_IMODE(kept(shop).parent.stat().st_mode) == 0o700


def test_each_version_and_place_has_its_own_cache(shop: Shop, tmp_path: Path):
    shop.write({"__init__.py": "", "a.py": "x = 1"})
    with shop.waiting() as finder:
        first = finder.cache
    told = {"/shop-1.0.dist-info/METADATA": "Name: shop\nVersion: 1.1\n"}
    shop.write(told)
    with shop.waiting() as finder:
        second = finder.cache
    shop.root = shop.root.rename(tmp_path / "elsewhere")
    with shop.waiting() as finder:
        assert len({first, second, finder.cache}) == 3


USE = """
import pathlib, sys
from amas_code.lazyimport import Finder
sys.path.insert(0, sys.argv[1])
Finder(["shop"], pathlib.Path(sys.argv[2])).install()
"""


def python(shop: Shop, use: str) -> subprocess.Popen:
    command = [sys.executable, "-c", USE + use, str(shop.root), str(shop.caches)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def test_processes_that_fill_the_cache_at_once_do_not_disturb_each_other(shop: Shop):
    modules = {f"m{n}.py": f"from .m{n + 1} import x\n" + "y = 1\n" * 99 for n in range(30)}
    shop.write({"__init__.py": "from .m0 import x", **modules, "m30.py": "x = 'end'"})
    running = [python(shop, "import shop; print(shop.x)") for _ in range(4)]
    assert [each.communicate()[0] for each in running] == ["end\n"] * 4
    assert len([*shop.caches.glob("*/*")]) == 32


def test_a_program_ends_quietly(shop: Shop):
    shop.write(
        {
            "__init__.py": "import atexit\nfrom .a import x\natexit.register(lambda: print(x))\n"
            "class C:\n    def __del__(self): print('gone')\nc = C()",
            "a.py": "x = 'end'",
        }
    )
    assert python(shop, "import shop").communicate()[0] == "end\ngone\n"
