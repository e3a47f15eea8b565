"""The tuner of a sweep that names none."""

from __future__ import annotations

import importlib.util

from outbid._tuners import TPE, Random, Tuner

_LEAST = 11  # trials: the first ten of TPE are drawn at random anyway
_MOST = 1000  # trials, beyond which TPE takes longer to draw one than many take to train


def usual(trials: int, *, here: bool) -> Tuner:
    """Return the tuner of a sweep of so many trials (0: no limit) that names none.

    Which sampler finds better configurations was measured: docs/benchmarks.md. `here` says that the server is on this
    machine, and so runs this Python.
    """
    if here and _LEAST <= trials <= _MOST and importlib.util.find_spec("optuna") is not None:
        return TPE()
    return Random()
