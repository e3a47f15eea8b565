"""What a task of trained.py is, and how spaces of configurations are said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from perceptrons import Array, Data, How

Draw = Callable[[np.random.Generator, int], Array]


def log(low: float, high: float) -> Draw:
    """Log-uniform."""
    return lambda rng, n: low * (high / low) ** rng.random(n)


def uniform(low: float, high: float) -> Draw:
    """Uniform."""
    return lambda rng, n: low + (high - low) * rng.random(n)


def whole(low: int, high: int) -> Draw:
    """Whole numbers, uniform."""
    return lambda rng, n: rng.integers(low, high + 1, n).astype(float)


def choice(*values: float) -> Draw:
    """One of the values."""
    return lambda rng, n: rng.choice(np.array(values, float), n)


@dataclass(frozen=True)
class Task:
    """What is trained, and the space that its configurations are drawn from; boosted trees if no network is said."""

    name: str
    data: Callable[[], Data]
    network: How | None
    space: dict[str, Draw]
    fixed: dict[str, float] = field(default_factory=dict)
    configurations: int = 150
