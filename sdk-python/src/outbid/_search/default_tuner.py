"""The default tuner of a sweep."""

from __future__ import annotations

import importlib.util

from outbid._search.tuners import TPE, Tuner
from outbid.v1 import sweep_pb2 as pb

_LEAST = 11  # trials: TPE draws the first ten at random anyway
_MOST = 1000  # trials, above which TPE takes longer to draw a configuration than many trials take to train


def default_tuner(trials: int, *, several: bool, here: bool) -> Tuner | None:
    """Return the default tuner of a sweep with a limit of `trials` (0: no limit), or None if the server chooses it.

    The server chooses `Auto` for one objective, and `Random` if the space has too many parameters for it.
    With `several` objectives it is TPE if Optuna is installed where the server runs this Python, that is `here`.
    """
    if several and here and _LEAST <= trials <= _MOST and importlib.util.find_spec("optuna") is not None:
        return TPE()
    return None


def reason(spec: pb.SweepSpec) -> str:
    """Say which tuner a sweep that sets none has, and why, as `outbid run` does."""
    kind = spec.tuner.WhichOneof("kind")
    if kind == "auto":
        return (
            "tuner: auto, because the sweep sets none: Bayesian search that stops trials with little chance early; "
            "with 'bayes' all trials train to the end"
        )
    name = "tpe" if kind == "plugin" else kind
    why = "has several objectives" if spec.objectives else "has more parameters than Bayesian search takes"
    return f"tuner: {name}, because the sweep sets none and {why}; all trials train to the end"
