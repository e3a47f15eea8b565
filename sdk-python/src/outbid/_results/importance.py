"""Importance of parameters: permutation importance over extremely randomised trees, with numpy only.

Geurts, Ernst and Wehenkel 2006 (trees whose splits are the best of a few random ones) and Breiman 2001 (permutations).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from outbid._results.model import TrialResult, flatten

Floats = npt.NDArray[np.float64]

_TREES = 64
_LEAST = 4  # minimum number of trials
_MOST = 2000  # maximum number of trials that are used
_LEAF = 3  # maximum trials in a leaf, which is not split
_SHUFFLES = 5
_HUGE = 1e100  # the square of such a number may overflow a float, such as the loss of a diverged trial


def importance(trials: Sequence[TrialResult], scales: Mapping[str, bool], *, seed: int = 0) -> dict[str, float]:
    """Return each parameter's share of the importance, largest first."""
    scored = [t for t in trials if t.metric is not None and math.isfinite(t.metric)]
    names, x = encode([flatten(t._stored) for t in scored], scales)
    y = np.array([t.metric for t in scored], dtype=np.float64)
    if len(scored) < _LEAST or not names:
        return {}
    rng = np.random.default_rng(seed)
    if len(y) > _MOST:
        picked = rng.choice(len(y), _MOST, replace=False)
        x, y = x[picked], y[picked]
    if (largest := np.abs(y).max()) > _HUGE:
        y = y / largest  # shares are the same
    raw = permutation(x, y, rng)
    total = raw.sum()
    shares = raw / total if total > 0 else raw
    order = np.argsort(-shares, kind="stable")
    return {names[i]: float(shares[i]) for i in order}


def encode(configs: Sequence[Mapping[str, Any]], scales: Mapping[str, bool]) -> tuple[list[str], Floats]:
    """Return the names of parameters that vary, and one column of numbers for each.

    Numbers on a log scale become their logarithm, other values their rank, and missing values -1e9.
    """
    names: list[str] = []
    columns: list[Floats] = []
    for name in sorted({name for config in configs for name in config}):
        values = [config.get(name) for config in configs]
        if len({repr(value) for value in values}) < 2:
            continue
        names.append(name)
        columns.append(_column(values, log=scales.get(name, False)))
    return names, np.column_stack(columns) if columns else np.empty((len(configs), 0))


def _column(values: Sequence[Any], *, log: bool) -> Floats:
    present = [v for v in values if v is not None]
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in present):
        codes = {repr(v): math.log(v) if log and v > 0 else float(v) for v in present}
    else:
        codes = {text: float(i) for i, text in enumerate(sorted({repr(v) for v in present}))}
    return np.array([-1e9 if v is None else codes[repr(v)] for v in values], dtype=np.float64)


@dataclass
class _Tree:
    """A regression tree in arrays: node i splits on feature[i] at threshold[i], or is a leaf (feature -1)."""

    feature: npt.NDArray[np.int64]
    threshold: Floats
    left: npt.NDArray[np.int64]
    value: Floats

    def predict(self, x: Floats) -> Floats:
        """Return the value of each row's leaf."""
        node = np.zeros(len(x), dtype=np.int64)
        while True:
            feature = self.feature[node]
            inner = feature >= 0
            if not inner.any():
                return self.value[node]
            rows = np.flatnonzero(inner)
            goes_right = x[rows, feature[rows]] > self.threshold[node[rows]]
            node[rows] = self.left[node[rows]] + goes_right


def permutation(x: Floats, y: Floats, rng: np.random.Generator) -> Floats:
    """Return for each column how much shuffling it increases the out-of-bag squared error."""
    n, width = x.shape
    grown = np.zeros(width)
    for _ in range(_TREES):
        bag = rng.integers(0, n, n)
        out = np.setdiff1d(np.arange(n), bag)
        if len(out) < 2:
            continue
        tree = _grow(x[bag], y[bag], rng)
        base = np.mean((tree.predict(x[out]) - y[out]) ** 2)
        for column in range(width):
            for _ in range(_SHUFFLES):
                shuffled = x[out].copy()
                shuffled[:, column] = rng.permutation(shuffled[:, column])
                error = np.mean((tree.predict(shuffled) - y[out]) ** 2)
                grown[column] += (error - base) / _SHUFFLES
    result: Floats = np.maximum(grown, 0.0)
    return result


def _grow(x: Floats, y: Floats, rng: np.random.Generator) -> _Tree:
    feature, threshold, left, value = [-1], [0.0], [0], [float(y.mean())]
    pending = [(0, np.arange(len(y)))]
    while pending:
        node, rows = pending.pop()
        split = _split(x[rows], y[rows], rng)
        if split is None:
            continue
        column, cut = split
        feature[node], threshold[node], left[node] = column, cut, len(feature)
        goes_right = x[rows, column] > cut
        for part in (rows[~goes_right], rows[goes_right]):
            pending.append((len(feature), part))
            feature.append(-1)
            threshold.append(0.0)
            left.append(0)
            value.append(float(y[part].mean()))
    return _Tree(np.array(feature), np.array(threshold), np.array(left), np.array(value))


def _split(x: Floats, y: Floats, rng: np.random.Generator) -> tuple[int, float] | None:
    """Return the best of one random cut per column, by the reduction of the squared error."""
    if len(y) <= _LEAF or np.ptp(y) == 0:
        return None
    best, found = 0.0, None
    low, high = x.min(axis=0), x.max(axis=0)
    for column in np.flatnonzero(high > low):
        cut = float(rng.uniform(low[column], high[column]))
        right = x[:, column] > cut
        share = right.mean()
        if share in (0.0, 1.0):
            continue
        gain = share * (1 - share) * (y[right].mean() - y[~right].mean()) ** 2
        if gain > best:
            best, found = gain, (int(column), cut)
    return found
