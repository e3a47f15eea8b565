"""Ray Train's names in scripts for Ray Tune: `from outbid import train`.

`train.report` and the related functions are those of `tune`. Ray Train's trainers are not supported.
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
    """An error of Ray Train's trainers, which are not supported."""


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """Raise UnsupportedError, because Ray Data is not supported."""
    unsupported("get_dataset_shard", "read the data in the training function, or bind it with tune.with_parameters")


class _Trainers:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        unsupported(f"Ray Train's {type(self).__name__}", "tune a function that trains on its trial's devices")


_ABSENT = {
    "CheckpointConsistencyMode": "tune.report waits until its checkpoint is copied",
    "CheckpointUploadMode": "tune.report waits until its checkpoint is copied",
    "ControllerError": "a trial that failed has its error in Result.error",
    "LoggingConfig": "RunConfig(log_to_file=True) writes what a trial prints; `outbid logs` shows it",
    "NCCLHangError": "a trial that failed has its error in Result.error",
    "PreemptionError": "a trial that must leave its device goes on from its checkpoint, with no error",
    "PreemptionInfo": "a trial that must leave its device goes on from its checkpoint, with no error",
    "ReportedCheckpoint": "use Result.best_checkpoints",
    "ReportedCheckpointStatus": "use Result.best_checkpoints",
    "UserCallback": "use tune.Callback",
    "ValidationConfig": "validate in the training function",
    "ValidationFn": "validate in the training function",
    "ValidationTaskConfig": "validate in the training function",
    "WorkerGroupError": "a trial that failed has its error in Result.error",
    "get_all_reported_checkpoints": "use Result.best_checkpoints",
    "get_preemption_info": "a trial that must leave its device goes on from its checkpoint",
}


def __getattr__(name: str) -> Any:
    if name in _ABSENT:
        unsupported(f"train.{name}", _ABSENT[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class BackendConfig(_Trainers):
    """Not supported."""


class DataConfig(_Trainers):
    """Not supported."""


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
