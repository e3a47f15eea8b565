"""Stop conditions of a sweep: a trial whose report meets one ends by itself."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Stop: TypeAlias = Mapping[str, float | str] | Callable[[int, Mapping[str, float]], bool]
"""When a trial ends: a function of a report's step and metrics, or metrics with the values that end it: a number
that is reached from below, or a condition such as "<= 0.1"."""


_STEP = "step"
_WORDS = re.compile(r"\s*(<=|>=|<|>)\s*(\S+)\s*")
_COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


class Reaches:
    """A condition that holds if one of some metrics, or the step, has reached its value."""

    def __init__(self, enough: Mapping[str, float | str]) -> None:
        self._enough = {str(name): _condition(str(name), value) for name, value in enough.items()}

    def __call__(self, step: int, metrics: Mapping[str, float]) -> bool:
        known = {_STEP: float(step), **metrics}
        return any(_COMPARE[sign](known.get(name, float("nan")), value) for name, (sign, value) in self._enough.items())

    @property
    def names(self) -> list[str]:
        """The metrics in the condition."""
        return [name for name in self._enough if name != _STEP]


def _condition(name: str, enough: float | str) -> tuple[str, float]:
    """Return the comparison and the value to compare with."""
    sign, number = ">=", enough
    if isinstance(enough, str) and (found := _WORDS.fullmatch(enough)):
        sign, number = found.group(1), found.group(2)
    try:
        return sign, float(number)
    except (TypeError, ValueError):
        raise ValueError(f'stop: {name} must be a number, or a condition such as "<= 0.1", got {enough!r}') from None


class Stopping:
    """A training function whose trials end when a condition is met."""

    def __init__(self, func: Callable[[Any], Any], stop: Callable[[int, Mapping[str, float]], bool]) -> None:
        self.func = func  # the name under which the wrapped function is found, like that of functools.partial
        self._stop = stop

    def __call__(self, trial: Any) -> Any:
        trial._stop = self._stop
        return self.func(trial)

    @property
    def names(self) -> list[str]:
        """The metrics in the condition, as far as they are known."""
        return self._stop.names if isinstance(self._stop, Reaches) else []


def stopping(train: Callable[[Any], Any] | None, stop: Stop | None) -> Callable[[Any], Any] | None:
    """Wrap the training function if there is a stop condition."""
    if stop is None:
        return train
    if train is None:
        raise TypeError("stop needs a training function; a program or your own loop must end trials itself")
    if callable(stop):
        return Stopping(train, stop)
    if not isinstance(stop, Mapping) or not stop:
        raise TypeError(f"stop must be a function of (step, metrics) or a dict of metrics, got {stop!r}")
    return Stopping(train, Reaches(stop))
