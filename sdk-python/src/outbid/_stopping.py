"""Conditions of a sweep on what its trials report: one that meets them ends by itself."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Stop: TypeAlias = Mapping[str, float | str] | Callable[[int, Mapping[str, float]], bool]
"""When a trial ends: a function of a report's step and metrics, or metrics with the values that are enough: a number
that is reached from below, or a condition such as "<= 0.1"."""


_STEP = "step"
_WORDS = re.compile(r"\s*(<=|>=|<|>)\s*(\S+)\s*")
_COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


class Reaches:
    """Whether a report holds one of some metrics, or a step, that is enough."""

    def __init__(self, enough: Mapping[str, float | str]) -> None:
        self._enough = {str(name): _condition(str(name), value) for name, value in enough.items()}

    def __call__(self, step: int, metrics: Mapping[str, float]) -> bool:
        known = {_STEP: float(step), **metrics}
        return any(_COMPARE[sign](known.get(name, float("nan")), value) for name, (sign, value) in self._enough.items())

    @property
    def names(self) -> list[str]:
        """The metrics that are compared."""
        return [name for name in self._enough if name != _STEP]


def _condition(name: str, enough: float | str) -> tuple[str, float]:
    """Return what a value is compared with, and how."""
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
        self.func = func  # by this name the function itself is found, as that of functools.partial
        self._stop = stop

    def __call__(self, trial: Any) -> Any:
        trial._stop = self._stop
        return self.func(trial)

    @property
    def names(self) -> list[str]:
        """The metrics that are known to be looked at."""
        return self._stop.names if isinstance(self._stop, Reaches) else []


def stopping(train: Callable[[Any], Any] | None, stop: Stop | None) -> Callable[[Any], Any] | None:
    """Return the training function with the condition."""
    if stop is None:
        return train
    if train is None:
        raise TypeError("stop is for a training function: a program, or a loop of your own, ends by itself")
    if callable(stop):
        return Stopping(train, stop)
    if not isinstance(stop, Mapping) or not stop:
        raise TypeError(f"stop must be a function of (step, metrics) or a dict of metrics, got {stop!r}")
    return Stopping(train, Reaches(stop))
