"""Validation of reported metrics and steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from outbid._core.limits import check_name


def step_number(step: Any) -> int:
    try:
        number = int(step.__index__())
    except (AttributeError, TypeError):
        raise TypeError(f"report: step must be a whole number, got {step!r}") from None
    if isinstance(step, bool) or number < 0:
        raise ValueError(f"report: step must be a whole number from 0, got {step!r}")
    return number


def metric_values(where: str, *sources: Mapping[str, Any] | None) -> dict[str, float]:
    """Return reported metrics as floats.

    Raises TypeError for a value that is not a number, ValueError for a bad name.
    """
    values: dict[str, float] = {}
    for source in sources:
        if source is not None and not isinstance(source, Mapping):
            raise TypeError(
                f"{where}: metrics must be a dict or keywords such as loss=0.1, got {type(source).__name__}"
            )
        for name, value in (source or {}).items():
            values[check_name(where, "a metric's name", name)] = _number(where, name, value)
    if not values:
        raise TypeError(f"{where}: name at least one metric, such as loss=0.1")
    return values


def is_number(value: Any) -> bool:
    """Return whether a value is a number. Text, True, False and None are not."""
    if value is None or isinstance(value, (bool, str, bytes, bytearray)):
        return False
    try:
        _number("", "", value)
    except TypeError:
        return False
    return True


def _number(where: str, name: str, value: Any) -> float:
    """Return a metric's value as a float. Raises TypeError with the metric and the value's type.

    Anything that `float` accepts is valid: numbers of any library, True and False, and text such as "0.5" or "nan"; and
    an array, tensor or series of one element. Numbers too large for a float become infinite.
    """
    if type(value) is float:
        return value
    try:
        if getattr(value, "ndim", 0) and callable(item := getattr(value, "item", None)):
            value = item()  # raises unless there is exactly one element
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except Exception:
        raise _no_number(where, name, value) from None


def _no_number(where: str, name: str, value: Any) -> TypeError:
    shape = getattr(value, "shape", None)
    try:
        what = type(value).__name__ + (f" of shape {tuple(shape)}" if shape else f": {value!r:.80}")
    except Exception:  # a shape or repr that raises
        what = type(value).__name__
    return TypeError(f"{where}: metric {name!r} must be one number, such as 0.5, got {what}")
