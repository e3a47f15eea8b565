"""Search algorithms, which choose configurations."""

from __future__ import annotations

import inspect
from typing import Any

from outbid.tune._errors import UnknownNameError
from outbid.tune._sample import grid_search
from outbid.tune.search._absent import ABSENT
from outbid.tune.search._basic import BasicVariantGenerator
from outbid.tune.search._searcher import ConcurrencyLimiter, Repeater, SearchAlgorithm, Searcher

UNRESOLVED_SEARCH_SPACE = "{cls}: {par} must not contain parameters of tune; pass these as param_space"
UNDEFINED_SEARCH_SPACE = "{cls}: there is no search space; give {space}, or param_space"
UNDEFINED_METRIC_MODE = "{cls}: metric ({metric}) and mode ({mode}) must be given"


def create_searcher(search_alg: str, **kwargs: Any) -> Any:
    """Return a search algorithm by name: "optuna", "random" or "variant_generator"."""
    from outbid.tune.search.optuna import OptunaSearch

    kinds: dict[str, Any] = {
        "variant_generator": BasicVariantGenerator,
        "random": BasicVariantGenerator,
        "optuna": OptunaSearch,
    }
    name = search_alg.lower()
    if name in ABSENT:
        return ABSENT[name][1](**kwargs)
    if name not in kinds:
        raise UnknownNameError(f"there is no search algorithm {search_alg!r}: use one of {', '.join(sorted(kinds))}")
    known = inspect.signature(kinds[name]).parameters
    return kinds[name](**{k: v for k, v in kwargs.items() if k in known})


SearchGenerator = SearchAlgorithm

__all__ = [
    "UNDEFINED_METRIC_MODE",
    "UNDEFINED_SEARCH_SPACE",
    "UNRESOLVED_SEARCH_SPACE",
    "BasicVariantGenerator",
    "ConcurrencyLimiter",
    "Repeater",
    "SearchAlgorithm",
    "SearchGenerator",
    "Searcher",
    "create_searcher",
    "grid_search",
]
