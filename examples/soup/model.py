"""A small network for digits, and the partition of the data."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

PARTS = {
    "training": slice(0, 900),
    "validation": slice(900, 1200),
    "selection": slice(1200, 1500),
    "test": slice(1500, 1797),
}
Weights = dict[str, np.ndarray]


def samples(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images and their digits."""
    spec = importlib.util.find_spec("sklearn")  # locates the file; importing all of scikit-learn takes seconds
    assert spec and spec.origin, "install scikit-learn"
    table = np.loadtxt(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")[PARTS[part]]
    return table[:, :-1] / 16, table[:, -1].astype(int)


def scores(weights: Weights, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hidden layer and the score of each digit."""
    hidden = np.maximum(0, x @ weights["in.weight"] + weights["in.bias"])
    return hidden, hidden @ weights["out.weight"] + weights["out.bias"]


def accuracy(weights: Weights, part: str) -> float:
    """Return the share of images that are classified correctly."""
    x, y = samples(part)
    return float(np.mean(np.argmax(scores(weights, x)[1], axis=1) == y))


def descend(weights: Weights, x: np.ndarray, y: np.ndarray, rate: float) -> None:
    """Take one step against the gradient of the cross-entropy."""
    hidden, out = scores(weights, x)
    p = np.exp(out - out.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    p /= len(y)
    back = (p @ weights["out.weight"].T) * (hidden > 0)
    weights["out.weight"] -= rate * hidden.T @ p
    weights["out.bias"] -= rate * p.sum(axis=0)
    weights["in.weight"] -= rate * x.T @ back
    weights["in.bias"] -= rate * back.sum(axis=0)


def pretrained() -> Weights:
    """Return the initial weights of every trial: the same weights, trained briefly."""
    draw = np.random.default_rng(0)
    weights = {
        "in.weight": draw.normal(0, 0.15, (64, 48)),
        "in.bias": np.zeros(48),
        "out.weight": draw.normal(0, 0.15, (48, 10)),
        "out.bias": np.zeros(10),
    }
    x, y = samples("training")
    for _ in range(60):
        rows = draw.choice(len(x), 64)
        descend(weights, x[rows], y[rows], 0.5)
    return weights
