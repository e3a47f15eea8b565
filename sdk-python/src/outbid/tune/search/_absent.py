"""Ray's search algorithms that Outbid does not have; creating one raises an error with an alternative."""

from __future__ import annotations

from typing import Any

from outbid.tune._errors import unsupported
from outbid.tune.search._searcher import Searcher

_SAMPLERS = "outbid.tune.search.optuna.OptunaSearch"


class _Absent(Searcher):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        use = {name: advice for name, (advice, _) in ABSENT.items()}
        unsupported(type(self).__name__, next(use[n] for n, (_, kind) in ABSENT.items() if kind is type(self)))


class AxSearch(_Absent):
    """Not supported."""


class BayesOptSearch(_Absent):
    """Not supported."""


class TuneBOHB(_Absent):
    """Not supported."""


class HEBOSearch(_Absent):
    """Not supported."""


class HyperOptSearch(_Absent):
    """Not supported."""


class NevergradSearch(_Absent):
    """Not supported."""


class ZOOptSearch(_Absent):
    """Not supported."""


BOHB = TuneBOHB

_GP = f"use {_SAMPLERS}(sampler=optuna.samplers.GPSampler()), a Gaussian process"
_TPE = f"use {_SAMPLERS}(), which also uses TPE"

ABSENT: dict[str, tuple[str, Any]] = {
    "ax": (_GP, AxSearch),
    "bayesopt": (_GP, BayesOptSearch),
    "bohb": (f"use {_SAMPLERS}() with HyperBandForBOHB: TPE in Hyperband's brackets", TuneBOHB),
    "hebo": (_GP, HEBOSearch),
    "hyperopt": (_TPE, HyperOptSearch),
    "nevergrad": (f"use {_SAMPLERS}(sampler=optuna.samplers.CmaEsSampler())", NevergradSearch),
    "zoopt": (_TPE, ZOOptSearch),
}
