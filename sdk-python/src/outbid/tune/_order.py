"""How values of a metric compare: the one place of outbid.tune that knows about NaN, missing values and infinities.

In both modes values order as: missing or not a number, NaN, the worse infinity, finite values, the better infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Rank: TypeAlias = tuple[int, float]
"""A key to sort by, the best last."""

_MISSING: Rank = (0, 0.0)
_NAN: Rank = (1, 0.0)


def number(value: Any) -> float | None:
    """Return a metric's value as a float, or None if it is missing or not a number.

    The text "0.5", True and an array of one element are numbers, as in `trial.report`. So is a list of one element,
    because results in files have arrays as lists. A whole number too large for a float is an infinity.
    """
    while isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if value is None or isinstance(value, (bytes, bytearray)):
        return None
    try:
        if getattr(value, "ndim", 0):
            value = value.item()  # raises unless there is exactly one element
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (AttributeError, TypeError, ValueError, RuntimeError):  # RuntimeError: of a tensor
        return None


def score(value: Any, mode: str | None) -> float | None:
    """Return a metric's value with its sign changed if less is better, so that more is better; None if missing."""
    found = number(value)
    return -found if found is not None and mode == "min" else found


def rank(value: Any, mode: str | None = "max") -> Rank:
    """Return the sort key of a metric's value, the best last: NaN and missing values are the worst."""
    found = score(value, mode)
    if found is None:
        return _MISSING
    return _NAN if math.isnan(found) else (2, found)


def is_number(value: Any) -> bool:
    """Report whether a value is a number other than NaN; infinities are."""
    found = number(value)
    return found is not None and not math.isnan(found)


def best(things: Iterable[T], value: Callable[[T], Any], mode: str | None) -> T | None:
    """Return the thing with the best value, the first of equals; None if no thing has a value. NaN is a value."""
    found = max(things, key=lambda thing: rank(value(thing), mode), default=None)
    return None if found is None or rank(value(found)) == _MISSING else found


def extreme(values: Iterable[Any], mode: str) -> float:
    """Return the best of values; NaN if no value is another number."""
    found = best(values, lambda value: value, mode)
    value = number(found)
    return math.nan if value is None else value


def percentile(scores: Iterable[float], percent: float) -> float:
    """Return the score below which `percent` of the scores lie; NaN are left out, and it is NaN if none remain.

    Between two scores it interpolates, as numpy.nanpercentile does, but infinities yield an infinity and not NaN.
    """
    ordered = sorted(s for s in scores if not math.isnan(s))
    if not ordered:
        return math.nan
    place = (len(ordered) - 1) * percent / 100
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    part = place - math.floor(place)
    if low == high or part == 0:
        return low
    if math.isinf(low):
        return low
    return high if math.isinf(high) else low + (high - low) * part
