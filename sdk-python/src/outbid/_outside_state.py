"""Detects changes to state outside a function that was sent: they are lost, because a worker's process has a copy.

The state is the variables outside the function that it uses, also through functions sent with it. In these variables,
lists, dicts, sets, small arrays, and objects, classes and modules that were sent are inspected. Objects of libraries,
such as loggers and random generators, are not. Filling in a missing value is a cache and not a change.
"""

from __future__ import annotations

import ast
import collections
import enum
import functools
import inspect
import itertools
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from outbid import _main_module

_DEEPEST = 4  # maximum depth of nested containers and objects
_MOST = 1000  # maximum elements of a container that are compared
_ARRAY = 1 << 20  # maximum bytes of an array that is compared
_CACHES = ("cache", "memo")  # parts of the names of caches
_MISSING = object()
_NAMELESS = "an argument"  # for functools.partial
_VALUES = (bool, int, float, str, bytes)  # these are compared by value

_Read = Callable[[], list[Any]]


class Outside:
    """The state outside a function when this object was made."""

    def __init__(self, function: Any) -> None:
        self._seen: set[int] = set()
        self._functions: list[FunctionType] = []
        # name, function that reads a part of the state, and its result
        self._parts: list[tuple[str, _Read, list[Any]]] = []
        self._walk(function, "", 0)
        self._caches = _caches(self._functions)

    def changed(self) -> list[str]:
        """Return the names of changed state, such as "best_model" or "self.results"."""
        found = []
        for name, read, before in self._parts:
            cache = name in self._caches or any(word in name.lower() for word in _CACHES)
            if not cache and (name or _NAMELESS) not in found and not _are_same(before, read()):
                found.append(name or _NAMELESS)
        return found

    def _walk(self, value: Any, name: str, depth: int) -> None:
        """Record the state that is reachable from a named value."""
        if id(value) in self._seen or depth > _DEEPEST:
            return
        self._seen.add(id(value))
        if isinstance(value, functools.partial):
            for inner in (value.func, *value.args, *value.keywords.values()):
                self._walk(inner, name, depth + 1)
        elif isinstance(value, MethodType):
            self._walk(value.__self__, name, depth)
            self._walk(value.__func__, name, depth)
        elif isinstance(value, FunctionType):
            if _travelled(value):
                self._walk_variables(value, depth)
        elif isinstance(value, (list, dict, set, bytearray, collections.deque)) or _is_small_array(value):
            self._note(name, functools.partial(_content, value))
            for inner in _content(value):
                self._walk(inner, name, depth + 1)
        elif isinstance(value, type):
            if _travelled(value) and not isinstance(value, enum.EnumMeta):
                self._walk_attributes(value, name, depth)
        elif isinstance(value, ModuleType):
            if sys.modules.get(value.__name__) is not value or _main_module.travelled(value.__name__):
                self._walk_attributes(value, name, depth)
        elif _travelled(type(value)) and not isinstance(value, enum.Enum):
            self._walk_attributes(value, name, depth)
            for kind in type(value).__mro__:
                self._walk(kind, kind.__name__, depth)

    def _walk_variables(self, function: FunctionType, depth: int) -> None:
        """Record the outside variables that a function uses."""
        self._functions.append(function)
        for name in sorted(_names(function.__code__) & set(function.__globals__)):
            self._note(name, functools.partial(_variable, function.__globals__, name))
            self._walk(function.__globals__[name], name, depth + 1)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._note(name, functools.partial(_cell, cell))
            self._walk(_cell(cell)[0], name, depth + 1)

    def _walk_attributes(self, value: Any, name: str, depth: int) -> None:
        """Record the attributes of an object, a class or a module."""
        for attribute, inner in list(getattr(value, "__dict__", {}).items()):
            if attribute.startswith("__") and attribute not in ("__call__", "__init__"):
                continue
            inner = inner.__func__ if isinstance(inner, (staticmethod, classmethod)) else inner
            full = f"{name or 'self'}.{attribute}" if name.count(".") < 1 else name
            read = _class_attribute if isinstance(value, type) else _attribute
            self._note(full, functools.partial(read, value, attribute))
            self._walk(inner, full, depth + 1)
        self._note(name or "self", functools.partial(_attributes, value))

    def _note(self, name: str, read: _Read) -> None:
        self._parts.append((name, read, read()))


def _are_same(before: list[Any], now: list[Any]) -> bool:
    return len(before) == len(now) and all(
        a is b or (type(a) is type(b) and type(a) in _VALUES and a == b) for a, b in zip(before, now, strict=True)
    )


def _variable(variables: dict[str, Any], name: str) -> list[Any]:
    return [variables.get(name, _MISSING)]


def _attribute(value: Any, name: str) -> list[Any]:
    return [getattr(value, "__dict__", {}).get(name, _MISSING)]


def _class_attribute(value: Any, name: str) -> list[Any]:
    """Return what is compared of a class attribute. Identity is useless: unpickling an object sets them all again."""
    found = value.__dict__.get(name, _MISSING)
    return [type(found), found if type(found) in _VALUES else None]


def _attributes(value: Any) -> list[Any]:
    return sorted(name for name in getattr(value, "__dict__", {}) if not name.startswith("__"))


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
    if _main_module.travelled(thing.__module__):
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


def _caches(functions: list[FunctionType]) -> set[str]:
    """Return variables that functions assign only if they are missing, such as `if data is None: data = load()`."""
    guarded: set[str] = set()
    others: set[str] = set()
    for function in functions:
        if function.__name__ == "__init__":
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError):
            continue
        for name, is_guarded in _assigned(tree, False):
            (guarded if is_guarded else others).add(name)
    return guarded - others


def _assigned(node: ast.AST, guarded: bool) -> Iterator[tuple[str, bool]]:
    """Yield assigned names in a piece of source, and whether the assignment is under a condition for missing values."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    for target in targets:
        for one in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            yield ast.unparse(one.value if isinstance(one, ast.Subscript) else one), guarded
    if isinstance(node, ast.If):
        for inner in node.body:
            yield from _assigned(inner, guarded or _asks_for_missing(node.test))
        for inner in node.orelse:
            yield from _assigned(inner, guarded)
        return
    for child in ast.iter_child_nodes(node):
        yield from _assigned(child, guarded)


def _asks_for_missing(test: ast.expr) -> bool:
    """Return whether a condition has the form `x is None`, `not x`, or `key not in x`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        none = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None
        return isinstance(test.ops[0], ast.NotIn) or (isinstance(test.ops[0], ast.Is) and none)
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
