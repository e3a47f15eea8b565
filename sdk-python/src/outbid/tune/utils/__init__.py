"""Helpers of Ray Tune's."""

from __future__ import annotations

import copy
import time
from collections.abc import Collection, Mapping
from typing import Any

from outbid.tune._trial import flatten as flatten_dict
from outbid.tune._validate import diagnose_serialization, validate_save_restore


def wait_for_gpu(*args: Any, **kwargs: Any) -> bool:
    """Return at once: a trial's devices are its own."""
    return True


def date_str() -> str:
    """Return the time as text."""
    return time.strftime("%Y-%m-%d_%H-%M-%S")


def unflatten_dict(flat: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """Return nested dicts for one whose names are joined by `delimiter`."""
    out: dict[str, Any] = {}
    for path, value in flat.items():
        *around, last = path.split(delimiter)
        inside = out
        for key in around:
            inside = inside.setdefault(key, {})
        inside[last] = value
    return out


def deep_update(
    original: dict[str, Any],
    new_dict: Mapping[str, Any],
    new_keys_allowed: bool = False,
    allow_new_subkey_list: Collection[str] = (),
) -> dict[str, Any]:
    """Put a nested dict's values into another one, which is returned; new names are refused unless allowed."""
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise KeyError(f"deep_update: there is no {key!r} among {', '.join(map(repr, original))}")
        if isinstance(original.get(key), dict) and isinstance(value, Mapping):
            deep_update(original[key], value, new_keys_allowed or key in allow_new_subkey_list)
        else:
            original[key] = value
    return original


def merge_dicts(d1: Mapping[str, Any], d2: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a nested dict with another one's values."""
    return deep_update(copy.deepcopy(dict(d1)), d2, True)


__all__ = [
    "date_str",
    "deep_update",
    "diagnose_serialization",
    "flatten_dict",
    "merge_dicts",
    "unflatten_dict",
    "validate_save_restore",
    "wait_for_gpu",
]
