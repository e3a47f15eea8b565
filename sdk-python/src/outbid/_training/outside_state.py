"""Detects changes to state outside a function that was sent: they are lost, because a worker's process has a copy.

The state is the variables outside the function that it uses, also through functions sent with it. In these variables,
lists, dicts, sets, small arrays, and objects, classes and modules that were sent are inspected. Objects of libraries,
such as loggers and random generators, are not. Filling in a missing value is a cache and not a change.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import enum
import functools
import inspect
import itertools
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from outbid._core import main_module

_DEEPEST = 4  # containers and objects inside of each other
_MOST = 1000  # elements of a container that are compared
_VALUES_IN_ALL = 20_000  # values that are looked at
_ARRAY = 1 << 20  # bytes of an array that is compared
_CACHES = ("cache", "memo")  # in the name of a variable
_SWITCHES = frozenset({"training"})  # attributes that libraries set, such as torch's `model.eval()`
_MISSING = object()
_NAMELESS = "an argument"  # of functools.partial
_SIMPLE = (bool, int, float, str, bytes)  # compared by value
_WRAPPERS = frozenset({"outbid._search.choices", "outbid._search.derived", "outbid._search.stopping"})
"""The modules of wrappers with the user's function as `func`."""

_Read = Callable[[], list[Any]]


def watched(function: Any) -> Any:
    """Return the user's own function, without what the SDK wraps around it."""
    while type(function).__module__ in _WRAPPERS:
        function = function.func
    return function


class Watch:
    """Compares the state outside a function before and after the first trials of a process.

    With `ignore_resets`, state that every trial assigns before its use is not a change: no trial sees that of others.
    """

    def __init__(self, function: Any, trials: int, *, ignore_resets: bool = False) -> None:
        self._function, self._left, self._ignore_resets = function, trials, ignore_resets
        self._outside: Outside | None = None

    def begin(self) -> None:
        """Note the state, before a trial."""
        self._outside = None
        if self._left:
            self._left -= 1
            with contextlib.suppress(Exception):  # an object of the user's may do anything where it is looked at
                self._outside = Outside(self._function, ignore_resets=self._ignore_resets)

    def changed(self) -> list[str]:
        """Return the names of the variables that the first trial with changes changed."""
        names: list[str] = []
        if self._outside is not None:
            with contextlib.suppress(Exception):
                names = self._outside.changed()
        if names:
            self._left = 0
        return names


@dataclass
class _Part:
    """A part of the state: its name, the last word of the name, its reader, and its value."""

    name: str
    key: str
    read: _Read
    before: list[Any]
    names: bool  # what is read are names of attributes


class Outside:
    """The state outside a function when this object was made."""

    def __init__(self, function: Any, *, ignore_resets: bool = False) -> None:
        self._ignore_resets = ignore_resets
        self._seen: set[int] = set()
        self._functions: list[FunctionType] = []
        self._parts: list[_Part] = []
        self._walk(function, "", "", 0)

    def changed(self) -> list[str]:
        """Return the names of the changed variables, such as "best_model" or "self.results"."""
        found: list[str] = []
        ignored: set[str] | None = None
        for part in self._parts:
            now = part.read()
            if _are_same(part.before, now):
                continue
            if ignored is None:
                ignored = _Assignments.of(self._functions).ignored(self._ignore_resets)
            if self._is_change(part, now, ignored) and (part.name or _NAMELESS) not in found:
                found.append(part.name or _NAMELESS)
        return found

    def _is_change(self, part: _Part, now: list[Any], ignored: set[str]) -> bool:
        """Report whether a part that is not as it was has been changed for good."""
        if part.key in ignored or any(word in part.name.lower() for word in _CACHES):
            return False
        return not part.names or bool((set(part.before) ^ set(now)) - ignored)

    def _walk(self, value: Any, name: str, key: str, depth: int) -> None:
        """Note the state that is reached from a value of a name."""
        if id(value) in self._seen or depth > _DEEPEST or len(self._seen) > _VALUES_IN_ALL:
            return
        self._seen.add(id(value))
        if isinstance(value, functools.partial):
            for inner in (value.func, *value.args, *value.keywords.values()):
                self._walk(inner, name, key, depth + 1)
        elif isinstance(value, MethodType):
            self._walk(value.__self__, name, key, depth)
            self._walk(value.__func__, name, key, depth)
        elif isinstance(value, FunctionType):
            if _travelled(value):
                self._walk_variables(value, depth)
        elif isinstance(value, (list, dict, set, bytearray, collections.deque)) or _is_small_array(value):
            self._note(name, key, functools.partial(_content, value))
            for inner in _content(value):
                self._walk(inner, name, key, depth + 1)
        elif isinstance(value, type):
            if _travelled(value) and not isinstance(value, enum.EnumMeta):
                self._walk_attributes(value, name, depth)
        elif isinstance(value, ModuleType) and issubclass(type(value), ModuleType):  # cffi's claim to be modules
            if sys.modules.get(value.__name__) is not value or main_module.travelled(value.__name__):
                self._walk_attributes(value, name, depth)
        elif _travelled(type(value)) and not isinstance(value, enum.Enum):
            self._walk_attributes(value, name, depth)
            for kind in type(value).__mro__:
                self._walk(kind, kind.__name__, kind.__name__, depth)

    def _walk_variables(self, function: FunctionType, depth: int) -> None:
        """Record the outside variables that a function uses."""
        self._functions.append(function)
        for name in sorted(_names(function.__code__) & set(function.__globals__)):
            self._note(name, name, functools.partial(_variable, function.__globals__, name))
            self._walk(function.__globals__[name], name, name, depth + 1)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._note(name, name, functools.partial(_cell, cell))
            self._walk(_cell(cell)[0], name, name, depth + 1)

    def _walk_attributes(self, value: Any, name: str, depth: int) -> None:
        """Record the attributes of an object, a class or a module."""
        for attribute, inner in list(getattr(value, "__dict__", {}).items()):
            if attribute in _SWITCHES or (attribute.startswith("__") and attribute not in ("__call__", "__init__")):
                continue
            inner = inner.__func__ if isinstance(inner, (staticmethod, classmethod)) else inner
            full = f"{name or 'self'}.{attribute}" if name.count(".") < 1 else name
            read = _class_attribute if isinstance(value, type) else _attribute
            self._note(full, attribute, functools.partial(read, value, attribute))
            self._walk(inner, full, attribute, depth + 1)
        self._note(name or "self", "", functools.partial(_attributes, value), names=True)

    def _note(self, name: str, key: str, read: _Read, *, names: bool = False) -> None:
        self._parts.append(_Part(name, key, read, read(), names))


def _are_same(before: list[Any], now: list[Any]) -> bool:
    return len(before) == len(now) and all(
        a is b or (type(a) is type(b) and type(a) in _SIMPLE and a == b) for a, b in zip(before, now, strict=True)
    )


def _variable(variables: dict[str, Any], name: str) -> list[Any]:
    return [variables.get(name, _MISSING)]


def _attribute(value: Any, name: str) -> list[Any]:
    return [getattr(value, "__dict__", {}).get(name, _MISSING)]


def _class_attribute(value: Any, name: str) -> list[Any]:
    """Return what is compared of a class attribute. Identity is useless: unpickling an object sets them all again."""
    found = value.__dict__.get(name, _MISSING)
    return [type(found), found if type(found) in _SIMPLE else None]


def _attributes(value: Any) -> list[Any]:
    """Return the names of a value's attributes, without those of cached properties."""
    return sorted(
        name
        for name in getattr(value, "__dict__", {})
        if not name.startswith("__") and not _is_cached(inspect.getattr_static(type(value), name, None))
    )


def _is_cached(attribute: Any) -> bool:
    return type(attribute).__name__ == "cached_property"


def _cell(cell: Any) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # an empty cell
        return [_MISSING]


def _content(value: Any) -> list[Any]:
    """Return the elements of a container that are compared."""
    if isinstance(value, dict):
        pairs = itertools.islice(value.items(), _MOST)
        return [len(value), *itertools.chain.from_iterable(pairs)]
    if isinstance(value, (list, set, collections.deque)):
        return [len(value), *itertools.islice(value, _MOST)]
    data = bytes(value) if isinstance(value, bytearray) else value.tobytes()
    return [len(data), zlib.crc32(data)]


def _is_small_array(value: Any) -> bool:
    kind = type(value)
    numeric = kind.__module__ == "numpy" and kind.__name__ == "ndarray" and value.dtype.kind in "biufc"
    return bool(numeric and value.nbytes <= _ARRAY)


def _travelled(thing: Any) -> bool:
    """Return whether a function or a class was in the pickle, because it cannot be imported here."""
    if main_module.travelled(thing.__module__):
        return True
    if thing.__module__ != "__main__":
        return thing.__module__ not in sys.modules
    found: Any = sys.modules["__main__"]
    for name in thing.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found is not thing


def _names(code: CodeType) -> set[str]:
    """Return the names that code uses, including those of functions inside it."""
    found = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= _names(inner)
    return found


@dataclass
class _Assignments:
    """The global names that functions assign, by how they assign them."""

    guarded: set[str] = field(default_factory=set)  # where it is missing, such as `if data is None: data = load()`
    resets: set[str] = field(default_factory=set)  # in any case, and without reading it
    others: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, functions: list[FunctionType]) -> _Assignments:
        """Return what functions assign, except in `__init__`."""
        found = cls()
        for function in functions:
            if function.__name__ == "__init__":
                continue
            try:
                tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            except (OSError, TypeError, SyntaxError):
                continue
            shared = {n for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal)) for n in node.names}
            found._read(tree, shared, guarded=False, conditional=False)
        return found

    def ignored(self, resets: bool) -> set[str]:
        """Return the names whose changes do not count."""
        if resets:
            return (self.guarded - self.others) | self.resets
        return self.guarded - self.others - self.resets

    def _read(self, node: ast.AST, shared: set[str], *, guarded: bool, conditional: bool) -> None:
        """Note what is assigned in a piece of source; `shared` are the variables that it does not have for itself."""
        for target, value in _assigned(node):
            name = ast.unparse(target)
            if isinstance(target, ast.Name) and name not in shared:
                continue  # a variable of the function's own
            reads = isinstance(node, ast.AugAssign) or any(_is_named(inner, name) for inner in ast.walk(value))
            if guarded or (isinstance(value, ast.BoolOp) and _is_named(value.values[0], name)):
                kind = self.guarded
            elif reads or conditional or isinstance(target, ast.Subscript):
                kind = self.others
            else:
                kind = self.resets
            kind.add(name.partition("[")[0].rpartition(".")[2])
        for child in ast.iter_child_nodes(node):
            asked = isinstance(node, ast.If) and child in node.body and _asks_for_missing(node.test)
            self._read(
                child,
                shared,
                guarded=guarded or asked or _handles_missing(node),
                conditional=conditional or isinstance(node, ast.If),
            )


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Yield what a statement assigns, and the value; `x.clear()` assigns to x as `x = []` does."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            for one in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                yield one, node.value
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "clear":
        yield ast.Attribute(ast.Name("it"), ast.unparse(node.func.value).rpartition(".")[2]), ast.List([])


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == name


def _asks_for_missing(test: ast.expr) -> bool:
    """Report whether a condition is of the kind `x is None`, `not x`, `len(x) == 0` or `key not in x`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        kind, right = test.ops[0], test.comparators[0]
        none = isinstance(kind, ast.Is) and isinstance(right, ast.Constant) and right.value is None
        empty = isinstance(kind, ast.Eq) and ast.unparse(test).startswith("len(") and ast.unparse(right) == "0"
        return isinstance(kind, ast.NotIn) or none or empty
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _handles_missing(node: ast.AST) -> bool:
    """Report whether a piece of source runs where something was not found, such as `except KeyError:`."""
    missing = ("KeyError", "LookupError", "AttributeError", "NameError")
    named = node.type if isinstance(node, ast.ExceptHandler) else None
    return named is not None and any(isinstance(n, ast.Name) and n.id in missing for n in ast.walk(named))
