"""What trained.py trains: the tasks, and the spaces that their configurations are drawn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from perceptrons import Array, Data, How
from trained_data import (
    affairs,
    cancer,
    care,
    character_names,
    diabetes,
    digits,
    documentation,
    faults,
    names,
    photographs,
    scan,
    sources,
    wrong_digits,
)

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


TASKS = [
    Task(
        "digits-constant",
        digits,
        How((64,), optimiser="sgd", metric="accuracy"),
        {
            "learning_rate": log(1e-3, 1),
            "momentum": uniform(0, 0.99),
            "weight_decay": log(1e-6, 1e-2),
            "width": whole(8, 64),
            "batch_size": choice(16, 32, 64, 128),
        },
    ),
    Task(
        "cancer-constant",
        cancer,
        How((32,)),
        {
            "learning_rate": log(1e-5, 1e-1),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-5, 1),
            "dropout": uniform(0, 0.5),
        },
    ),
    Task(
        "names-constant",
        names,
        How((32,), metric="accuracy"),
        {
            "learning_rate": log(1e-5, 1e-1),
            "weight_decay": log(1e-5, 1),
            "dropout": uniform(0, 0.6),
            "batch_size": choice(32, 64, 128),
        },
    ),
    Task(
        "photographs-constant",
        photographs,
        How((64,)),
        {
            "learning_rate": log(1e-5, 1e-1),
            "momentum": uniform(0.5, 0.99),
            "width": whole(4, 64),
            "noise": uniform(0, 0.5),
        },
    ),
    Task(
        "sources-constant",
        sources,
        How((64,)),
        {
            "learning_rate": log(1e-4, 1e-1),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-4, 1),
            "dropout": uniform(0, 0.3),
        },
        fixed={"batch_size": 64},
    ),
    Task(
        "documentation-cosine",
        documentation,
        How((64,), schedule="cosine"),
        {
            "learning_rate": log(1e-4, 1e-1),
            "warmup": uniform(0, 0.2),
            "weight_decay": log(1e-4, 1),
            "dropout": uniform(0, 0.3),
            "beta2": uniform(0.9, 0.999),
        },
        fixed={"batch_size": 64},
    ),
    Task(
        "digits-linear",
        digits,
        How((64,), optimiser="sgd", schedule="linear"),
        {
            "learning_rate": log(1e-2, 3),
            "warmup": uniform(0, 0.2),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-5, 1e-1),
            "dropout": uniform(0, 0.5),
            "smoothing": uniform(0, 0.2),
        },
    ),
    Task(
        "digits-wrong-labels",
        wrong_digits,
        How((64,)),
        {
            "learning_rate": log(1e-4, 1e-1),
            "weight_decay": log(1e-3, 10),
            "dropout": uniform(0, 0.7),
            "width": whole(16, 64),
            "smoothing": uniform(0, 0.3),
        },
    ),
    Task(
        "names-restarts",
        names,
        How((32,), optimiser="sgd", schedule="restarts"),
        {
            "learning_rate": log(1e-2, 3),
            "first_cycle": whole(5, 25),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-6, 1e-2),
            "dropout": uniform(0, 0.6),
        },
    ),
    Task(
        "photographs-steps",
        photographs,
        How((64, 16, 64), optimiser="sgd", schedule="steps"),
        {
            "learning_rate": log(3e-3, 3),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-7, 1e-3),
            "first_drop": uniform(0.3, 0.8),
            "drop": log(0.05, 0.5),
        },
    ),
    Task(
        "diabetes-boosting",
        diabetes,
        None,
        {
            "learning_rate": log(0.003, 0.3),
            "max_depth": whole(2, 10),
            "min_child_weight": log(1, 50),
            "subsample": uniform(0.4, 1),
            "colsample_bytree": uniform(0.3, 1),
            "reg_lambda": log(0.01, 100),
        },
    ),
    Task(
        "affairs-constant",
        affairs,
        How((32,)),
        {
            "learning_rate": log(1e-5, 1e-1),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-4, 1),
            "width": whole(4, 32),
        },
    ),
    Task(
        "scan-linear",
        scan,
        How((48,), schedule="linear"),
        {
            "learning_rate": log(1e-4, 1e-1),
            "warmup": uniform(0, 0.3),
            "momentum": uniform(0.5, 0.99),
            "width": whole(8, 48),
            "noise": uniform(0, 0.3),
        },
    ),
    Task(
        "care-hold",
        care,
        How((48, 48), schedule="hold"),
        {
            "learning_rate": log(1e-4, 1e-1),
            "fall": uniform(0.05, 0.7),
            "weight_decay": log(1e-4, 1),
            "dropout": uniform(0, 0.5),
            "momentum": uniform(0.5, 0.99),
        },
    ),
    Task(
        "faults-hold",
        faults,
        How((48, 48), schedule="hold"),
        {
            "learning_rate": log(3e-4, 1e-1),
            "fall": uniform(0.05, 0.7),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-4, 1),
        },
    ),
    Task(
        "faults-cosine",
        faults,
        How((48, 48), optimiser="sgd", schedule="cosine"),
        {
            "learning_rate": log(3e-3, 1),
            "warmup": uniform(0, 0.3),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-7, 1e-3),
            "width": whole(12, 48),
        },
    ),
    Task(
        "character-names-hold",
        character_names,
        How((64,), schedule="hold"),
        {
            "learning_rate": log(1e-3, 3e-1),
            "fall": uniform(0.05, 0.7),
            "beta2": uniform(0.9, 0.999),
            "weight_decay": log(1e-4, 1),
        },
        fixed={"batch_size": 64},
    ),
    Task(
        "digits-hold",
        digits,
        How((48,), optimiser="sgd", schedule="hold"),
        {
            "learning_rate": log(3e-2, 3),
            "fall": uniform(0.05, 0.7),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-5, 1e-2),
            "dropout": uniform(0, 0.6),
            "smoothing": uniform(0, 0.2),
        },
    ),
    Task(
        "care-boosting",
        care,
        None,
        {
            "learning_rate": log(0.001, 0.3),
            "max_depth": whole(2, 10),
            "min_child_weight": log(1, 100),
            "subsample": uniform(0.3, 1),
            "colsample_bytree": uniform(0.3, 1),
            "reg_lambda": log(0.01, 100),
        },
    ),
    Task(
        "faults-narrow",
        faults,
        How((48, 48), schedule="hold"),
        {
            "learning_rate": log(3e-3, 3e-2),
            "fall": uniform(0.1, 1),
            "momentum": uniform(0.8, 0.99),
            "beta2": uniform(0.9, 0.999),
            "dropout": uniform(0, 0.1),
        },
    ),
    Task(
        "documentation-narrow",
        documentation,
        How((64,), schedule="hold"),
        {
            "learning_rate": log(3e-3, 3e-2),
            "fall": uniform(0.1, 1),
            "weight_decay": log(1e-3, 3e-1),
            "dropout": uniform(0, 0.2),
        },
        fixed={"batch_size": 64},
    ),
    Task(
        "photographs-narrow",
        photographs,
        How((64, 16, 64), optimiser="sgd", schedule="restarts"),
        {
            "learning_rate": log(0.03, 0.3),
            "first_cycle": whole(5, 40),
            "momentum": uniform(0.8, 0.99),
            "width": whole(32, 64),
        },
    ),
    Task(
        "care-narrow",
        care,
        How((48, 48), optimiser="sgd", schedule="cosine"),
        {
            "learning_rate": log(0.01, 0.1),
            "warmup": uniform(0, 0.5),
            "momentum": uniform(0.5, 0.95),
            "weight_decay": log(1e-5, 1e-2),
            "dropout": uniform(0, 0.5),
        },
    ),
]
