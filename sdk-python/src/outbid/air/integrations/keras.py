"""Keras callback under Ray AIR's name."""

from __future__ import annotations

from outbid.tune.integration.keras import ReportCheckpointCallback

__all__ = ["ReportCheckpointCallback"]
