"""The tasks of trained.py and the spaces of their configurations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from perceptrons import Array, Data, How

Draw = Callable[[np.random.Generator, int], Array]


def log(low: float, high: float) -> Draw:
    """Return a log-uniform distribution."""
    return lambda rng, n: low * (high / low) ** rng.random(n)


def uniform(low: float, high: float) -> Draw:
    """Return a uniform distribution."""
    return lambda rng, n: low + (high - low) * rng.random(n)


def whole(low: int, high: int) -> Draw:
    """Return a uniform distribution of integers."""
    return lambda rng, n: rng.integers(low, high + 1, n).astype(float)


def choice(*values: float) -> Draw:
    """Return a uniform choice between values."""
    return lambda rng, n: rng.choice(np.array(values, float), n)


@dataclass(frozen=True)
class Task:
    """A training task and the space of its configurations; without a network, it trains boosted trees."""

    name: str
    data: Callable[[], Data]
    network: How | None
    space: dict[str, Draw]
    fixed: dict[str, float] = field(default_factory=dict)
    configurations: int = 150
