"""Helpers of Ray Tune's."""

from __future__ import annotations

import time
from collections.abc import Mapping
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


__all__ = [
    "date_str",
    "diagnose_serialization",
    "flatten_dict",
    "unflatten_dict",
    "validate_save_restore",
    "wait_for_gpu",
]
