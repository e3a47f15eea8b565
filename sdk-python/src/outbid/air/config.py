"""Ray AIR's configuration classes."""

from __future__ import annotations

from outbid.tune._config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig"]
