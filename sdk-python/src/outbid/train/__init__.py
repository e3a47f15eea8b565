"""Ray Train's names as scripts for Ray Tune use them: `from outbid import train`.

`train.report` and its like are `tune.report` and its like. Ray Train's trainers are not here.
"""

from __future__ import annotations

from typing import Any

from outbid.tune._checkpoint import Checkpoint
from outbid.tune._config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, SyncConfig
from outbid.tune._context import TuneContext as TrainContext
from outbid.tune._context import get_context
from outbid.tune._errors import TuneError, unsupported
from outbid.tune._results import Result
from outbid.tune._session import get_checkpoint, report

TRAIN_DATASET_KEY = "train"


class TrainingFailedError(TuneError):
    """Of Ray Train's trainers, which are not here."""


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """Ray Data is Ray's own."""
    unsupported("get_dataset_shard", "read the data in the training function, or bind it with tune.with_parameters")


class _Trainers:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        unsupported(f"Ray Train's {type(self).__name__}", "tune a function that trains on its trial's devices")


class BackendConfig(_Trainers):
    """Not here."""


class DataConfig(_Trainers):
    """Not here."""


__all__ = [
    "TRAIN_DATASET_KEY",
    "BackendConfig",
    "Checkpoint",
    "CheckpointConfig",
    "DataConfig",
    "FailureConfig",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "SyncConfig",
    "TrainContext",
    "TrainingFailedError",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "report",
]
