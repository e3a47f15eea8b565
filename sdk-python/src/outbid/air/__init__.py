"""Ray AIR's names, which scripts of Ray 2.0 to 2.6 hold."""

from __future__ import annotations

from outbid.air import constants, session
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from outbid.tune._results import Result

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
