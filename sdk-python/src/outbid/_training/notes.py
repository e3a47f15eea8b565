"""Attributes: JSON values by name that training code notes about a trial in addition to its metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from outbid._core.limits import NAME, check_name
from outbid._training.config import Config

OUTSIDE = "outbid:outside"
"""Noted of a trial: the names of the state outside its training function that it changed."""

PATH = NAME - len("config.")
"""Bounds the dotted path of a parameter, in bytes."""

_DRAWN = "config."  # before the name of a parameter whose value a function of the sweep's space gave


def encode(where: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return values as JSON by name.

    Raises TypeError for a value that is not JSON, ValueError for a name that is too long.
    """
    found = {}
    for name, value in values.items():
        check_name(where, "a name", name)
        try:
            found[name] = json.dumps(value, default=_plain, allow_nan=True)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{where}: {name!r} must be JSON (numbers, strings, lists, dicts): {error}") from None
    return found


def decode(attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return what training code noted: not the values of parameters, nor the changes outside of it."""
    return {
        name: json.loads(text) for name, text in attributes.items() if not name.startswith(_DRAWN) and name != OUTSIDE
    }


def changed_outside(attributes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the variables outside its training function that a trial changed."""
    return tuple(json.loads(attributes.get(OUTSIDE, "[]")))


def drawn(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return computed parameters, by dotted path, as attributes. Values that JSON cannot represent are left out.

    Raises ValueError for a parameter whose name is too long.
    """
    found = {}
    for path, value in values.items():
        size = len(path.encode(errors="replace"))
        if size > PATH:
            raise ValueError(f"the parameter {path[:40]!r}... has a name of {size:,} bytes, at most {PATH} are allowed")
        try:
            encode("", {path: value})
        except TypeError:
            continue
        found[_DRAWN + path] = value
    return found


def complete(config: Config, attributes: Mapping[str, str]) -> Config:
    """Add the noted values of computed parameters to a configuration, and return it."""
    for name, text in sorted(attributes.items()):
        if name.startswith(_DRAWN):
            put(config, name[len(_DRAWN) :], json.loads(text))
    return config


def put(config: Config, path: str, value: Any) -> None:
    """Set the value at a dotted path. If part of the path is a value instead of a group, the whole path is the key."""
    *around, name = path.split(".")
    group = config
    for key in around:
        group = group.setdefault(key, Config())
        if not isinstance(group, dict):  # names from Optuna such as "depth" and "depth.max"
            group, name = config, path
            break
    group[name] = value


def _plain(value: Any) -> Any:
    """Convert numpy scalars and arrays for JSON."""
    if callable(tolist := getattr(value, "tolist", None)):
        return tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")
