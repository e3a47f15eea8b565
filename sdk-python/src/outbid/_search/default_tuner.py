"""The default tuner of a sweep."""

from __future__ import annotations

import importlib.util

from outbid._search.tuners import TPE, Tuner

_LEAST = 11  # trials: TPE draws the first ten at random anyway
_MOST = 1000  # trials, above which TPE takes longer to draw a configuration than many trials take to train


def default_tuner(trials: int, *, several: bool, here: bool) -> Tuner | None:
    """Return the default tuner of a sweep with a limit of `trials` (0: no limit), or None if the server chooses it.

    The server chooses `Bayes` for one objective, following a comparison of the samplers: docs/benchmarks.md.
    With `several` objectives it is TPE if Optuna is installed where the server runs this Python, that is `here`.
    """
    if several and here and _LEAST <= trials <= _MOST and importlib.util.find_spec("optuna") is not None:
        return TPE()
    return None
