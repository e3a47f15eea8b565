"""Ray AIR's names, for scripts of Ray 2.0 to 2.6."""

from __future__ import annotations

from typing import Any

from outbid.air import constants, session
from outbid.tune._absent_names import absent
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from outbid.tune._results import Result


def __getattr__(name: str) -> Any:
    absent(__name__, name)


__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "FailureConfig",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "constants",
    "session",
]
