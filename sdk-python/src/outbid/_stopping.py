"""Conditions of a sweep on what its trials report: one that meets them ends by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Stop: TypeAlias = Mapping[str, float] | Callable[[int, Mapping[str, float]], bool]
"""When a trial ends: a function of a report's step and metrics, or metrics with the values that are enough."""


class Reaches:
    """Whether a report holds one of some metrics with at least a value."""

    def __init__(self, enough: Mapping[str, float]) -> None:
        self._enough = {str(name): float(value) for name, value in enough.items()}

    def __call__(self, step: int, metrics: Mapping[str, float]) -> bool:
        return any(metrics.get(name, float("nan")) >= value for name, value in self._enough.items())


class Stopping:
    """A training function whose trials end when a condition is met."""

    def __init__(self, func: Callable[[Any], Any], stop: Callable[[int, Mapping[str, float]], bool]) -> None:
        self.func = func  # by this name the function itself is found, as that of functools.partial
        self._stop = stop

    def __call__(self, trial: Any) -> Any:
        trial._stop = self._stop
        return self.func(trial)


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
