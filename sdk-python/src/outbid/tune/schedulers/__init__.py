"""Schedulers: they decide which trials continue, stop, or continue from another trial's checkpoint."""

from __future__ import annotations

from functools import partial
from typing import Any

from outbid.tune._absent_names import absent
from outbid.tune._errors import UnknownNameError
from outbid.tune.schedulers._base import FIFOScheduler, TrialScheduler
from outbid.tune.schedulers._halving import AsyncHyperBandScheduler, HyperBandForBOHB, HyperBandScheduler
from outbid.tune.schedulers._median import MedianStoppingRule
from outbid.tune.schedulers._pb2 import PB2
from outbid.tune.schedulers._population import PopulationBasedTraining, PopulationBasedTrainingReplay
from outbid.tune.schedulers._resources import (
    DistributeResources,
    DistributeResourcesToTopJob,
    ResourceChangingScheduler,
)

ASHAScheduler = AsyncHyperBandScheduler

SCHEDULERS: dict[str, Any] = {
    "fifo": FIFOScheduler,
    "async_hyperband": AsyncHyperBandScheduler,
    "asynchyperband": AsyncHyperBandScheduler,
    "asha": ASHAScheduler,
    "median_stopping_rule": MedianStoppingRule,
    "medianstopping": MedianStoppingRule,
    "hyperband": HyperBandScheduler,
    "hb_bohb": HyperBandForBOHB,
    "pbt": PopulationBasedTraining,
    "pbt_replay": PopulationBasedTrainingReplay,
    "pb2": PB2,
    "resource_changing": ResourceChangingScheduler,
}


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """Return a scheduler by its name, such as "asha"."""
    kind = SCHEDULERS.get(scheduler.lower())
    if kind is None:
        raise UnknownNameError(f"there is no scheduler {scheduler!r}: use one of {', '.join(sorted(SCHEDULERS))}")
    made: TrialScheduler = kind(**kwargs)
    return made


__getattr__ = partial(absent, __name__)  # names that only Ray has

__all__ = [
    "PB2",
    "SCHEDULERS",
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "DistributeResources",
    "DistributeResourcesToTopJob",
    "FIFOScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "ResourceChangingScheduler",
    "TrialScheduler",
    "create_scheduler",
]
