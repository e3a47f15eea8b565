"""Values of choices: objects of any kind, and the texts that represent them in JSON."""

from __future__ import annotations

import enum
import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MOST = 200  # maximum characters of a text
_PLAIN = (bool, int, float, str, type(None))


def is_plain(value: Any) -> bool:
    """Return whether a value has the same type and value after a round trip through JSON."""
    if type(value) is list:
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(type(key) is str and is_plain(inner) for key, inner in value.items())
    return type(value) in _PLAIN


def text_of(value: Any) -> str:
    """Return a short text for a value, which is the same in every process for equal values."""
    return _text(value, 5)[:_MOST]


def texts_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """Replace each value that is not a JSON scalar by a text. All results are different.

    Equal texts are numbered by their order in the list.
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
    """Return the index of a value, or None if it is not found.

    An identical object is preferred, then an equal one of its type, then any equal one. Values are also found by their
    text in `texts`, by the text of an equal value, and by their form after JSON.
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
    except Exception:  # a repr written by the user
        return type(value).__name__


def _enclosed(kind: type, inner: list[str]) -> str:
    if kind is tuple:
        return f"({inner[0]},)" if len(inner) == 1 else f"({', '.join(inner)})"
    if kind is list:
        return f"[{', '.join(inner)}]"
    return f"{kind.__name__}({', '.join(sorted(inner))})"


def _equal(a: Any, b: Any) -> bool:
    """Return whether two values are equal; False if the comparison fails or has no single result."""
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
