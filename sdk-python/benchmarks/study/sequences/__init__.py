"""Families of related tasks: the same space, and a loss for each data set, size, split or shift."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from problem import Config, Problem, Space


class Families(dict[str, list[Problem]]):
    """Lists of related problems by name."""

    def add(self, name: str, space: Space, **tasks: Any) -> Callable[[Callable[..., float]], None]:
        """Return a decorator that adds a family: the loss gets a configuration and what the task has."""

        def added(loss: Callable[..., float]) -> None:
            def of(given: Any) -> Callable[[Config], float]:
                return lambda config: loss(config, given)

            self[name] = [Problem(f"{name}/{task}", of(given), space) for task, given in tasks.items()]

        return added


@functools.cache
def part(make: Any, train: int, validate: int, seed: int) -> tuple[Any, ...]:
    """Return scaled training and validation rows of one of several splits."""
    import numpy as np

    x, y = make()
    x, y = np.asarray(x, float), np.asarray(y)
    rows = np.random.default_rng(seed).permutation(len(x))
    a, b = rows[:train], rows[train : train + validate]
    mean, deviation = x[a].mean(0), x[a].std(0)
    x = (x - mean) / np.where(deviation > 0, deviation, 1)
    if y.dtype.kind == "f":
        y = (y - y[a].mean()) / y[a].std()
    return x[a], y[a], x[b], y[b]
