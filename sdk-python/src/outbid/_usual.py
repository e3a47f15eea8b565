"""The default tuner of a sweep."""

from __future__ import annotations

import importlib.util

from outbid._tuners import TPE, Random, Tuner

_LEAST = 11  # trials: TPE draws the first ten at random anyway
_MOST = 1000  # trials, above which TPE takes longer to draw a configuration than many trials take to train


def usual(trials: int, *, here: bool) -> Tuner:
    """Return the default tuner of a sweep with a limit of `trials` (0: no limit).

    The choice follows a comparison of the samplers: docs/benchmarks.md. `here` is whether
    the server is on this machine, and therefore runs this Python.
    """
    if here and _LEAST <= trials <= _MOST and importlib.util.find_spec("optuna") is not None:
        return TPE()
    return Random()
