"""Validation of arguments. An error names the argument, the problem, and a valid value."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any


def quoted(value: Any) -> str:
    """Return a value for a message, text in double quotes like in the server's messages."""
    return json.dumps(value, ensure_ascii=False)[:82] if isinstance(value, str) else f"{value!r:.80}"


def text(name: str, value: Any, such: str = "text") -> str:
    """Return `value` if it is valid text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be {such}, got {value!r:.80}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be valid Unicode, got {value!r:.80}") from None
    return value


def path(name: str, value: Any) -> str:
    """Return a path as text."""
    try:
        return text(name, os.fspath(value))
    except TypeError:
        raise TypeError(f"{name} must be a path, got {value!r:.80}") from None


def number(name: str, value: Any) -> float:
    """Return a number (Python's or numpy's) as a float."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, got {value!r:.80}")
    return float(value)


def whole(name: str, value: Any) -> int:
    """Return a whole number (Python's or numpy's) as an int."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, got {value!r:.80}")
    return int(value.__index__())


def several(name: str, value: Any, such: str) -> list[Any]:
    """Return an iterable that is not text or a dict as a list."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a list of {such}, got {value!r:.80}")
    return list(value)


def mapping(name: str, value: Any, such: str) -> dict[Any, Any]:
    """Return a mapping as a dict."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict such as {such}, got {value!r:.80}")
    return dict(value)
