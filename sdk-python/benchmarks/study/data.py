"""Data sets that ship with packages or are made, each split once into a part to train on and a part to validate on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

_WORST = 1e6  # the loss of a model that predicts no finite numbers


@functools.cache
def split(make: Callable[[], tuple[Any, Any]], train: int, validate: int, *, scale: bool = True) -> tuple[Any, ...]:
    """Return train inputs, train targets, validation inputs and validation targets of fixed random rows."""
    x, y = make()
    x, y = np.asarray(x, float), np.asarray(y)
    rows = np.random.default_rng(20261127).permutation(len(x))
    a, b = rows[:train], rows[train : train + validate]
    if scale:
        mean, deviation = x[a].mean(0), x[a].std(0)
        x = (x - mean) / np.where(deviation > 0, deviation, 1)
    if y.dtype.kind == "f":
        y = (y - y[a].mean()) / y[a].std()
    return x[a], y[a], x[b], y[b]


def error(model: Any, parts: tuple[Any, ...]) -> float:
    """Return the share of validation rows that a fitted classifier gets wrong."""
    xa, ya, xb, yb = parts
    return float(np.mean(model.fit(xa, ya).predict(xb) != yb))


def log_loss(model: Any, parts: tuple[Any, ...]) -> float:
    """Return a fitted classifier's mean negative log likelihood on validation rows."""
    xa, ya, xb, yb = parts
    chances = model.fit(xa, ya).predict_proba(xb)
    at = np.searchsorted(model.classes_, yb)
    return float(-np.log(np.clip(chances[np.arange(len(yb)), at], 1e-6, 1)).mean())


def squared(model: Any, parts: tuple[Any, ...]) -> float:
    """Return a fitted regressor's mean squared error on validation rows; targets have variance 1."""
    xa, ya, xb, yb = parts
    return squared_of(np.ravel(model.fit(xa, ya).predict(xb)), yb)


def squared_of(predicted: Any, y: Any) -> float:
    """Return the mean squared error of predictions."""
    value = float(np.mean((predicted - y) ** 2))
    return min(value, _WORST) if np.isfinite(value) else _WORST
