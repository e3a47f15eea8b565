"""Values chosen from a list: objects of any kind, and the texts that represent them where only JSON travels."""

from __future__ import annotations

import enum
import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MOST = 200  # characters of a text
_PLAIN = (bool, int, float, str, type(None))


def is_plain(value: Any) -> bool:
    """Return whether a value has the same type and value after a trip through JSON."""
    if type(value) is list:
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(type(key) is str and is_plain(inner) for key, inner in value.items())
    return type(value) in _PLAIN


def text_of(value: Any) -> str:
    """Return a short text for a value: the same in every process, for equal values."""
    return _text(value, 5)[:_MOST]


def texts_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return values with a text in the place of each that is not a scalar of JSON; no two are the same.

    Texts that would be the same are numbered by their order in the list.
    """
    taken = [value for value in values if type(value) in _PLAIN]
    found: list[Any] = []
    for value in values:
        if type(value) in _PLAIN:
            found.append(value)
            continue
        text = base = text_of(value)
        number = 1
        while text in taken:
            number += 1
            text = f"{base} #{number}"
        taken.append(text)
        found.append(text)
    return tuple(found)


def index_of(values: Sequence[Any], texts: Sequence[Any], value: Any) -> int | None:
    """Return the index of a value: that of the object itself, of one of its type that is equal, of any that is equal.

    A text of `texts`, the text of a value, and a value as JSON returns it count as well. Returns None for others.
    """
    tests = (
        lambda mine, _: mine is value,
        lambda mine, _: type(mine) is type(value) and _equal(mine, value),
        lambda mine, _: _equal(mine, value),
        lambda _, text: type(value) is str and text == value,
        lambda _, text: text == text_of(value),
        lambda mine, _: type(value) in (list, dict) and _as_json(mine) == _as_json(value),
    )
    for test in tests:
        for index, (mine, text) in enumerate(zip(values, texts, strict=True)):
            if test(mine, text):
                return index
    return None


def _text(value: Any, depth: int) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, functools.partial):
        return f"partial({_text(value.func, depth)})"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return str(value.__qualname__)
    if depth and type(value) in (list, tuple, set, frozenset):
        inner = [_text(one, depth - 1) for one in value]
        return _enclosed(type(value), inner)
    if depth and isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(k, depth - 1)}: {_text(v, depth - 1)}" for k, v in value.items()) + "}"
    if getattr(value, "ndim", None) == 0 and callable(item := getattr(value, "item", None)):
        return f"{type(value).__name__}({item()!r})"
    try:
        return _ADDRESS.sub("", repr(value))
    except Exception:  # a repr of the user's
        return type(value).__name__


def _enclosed(kind: type, inner: list[str]) -> str:
    if kind is tuple:
        return f"({inner[0]},)" if len(inner) == 1 else f"({', '.join(inner)})"
    if kind is list:
        return f"[{', '.join(inner)}]"
    return f"{kind.__name__}({', '.join(sorted(inner))})"


def _equal(a: Any, b: Any) -> bool:
    """Compare two values; those whose comparison fails, or has no single answer, are not equal."""
    try:
        return bool(a == b)
    except Exception:
        return False


def _as_json(value: Any) -> str | None:
    try:
        return json.dumps(value, sort_keys=True, default=_listed)
    except (TypeError, ValueError):
        return None


def _listed(value: Any) -> Any:
    if callable(tolist := getattr(value, "tolist", None)):
        return tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")
