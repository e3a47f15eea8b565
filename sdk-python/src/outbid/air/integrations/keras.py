"""Keras's callback under the name that Ray AIR had for it."""

from __future__ import annotations

from outbid.tune.integration.keras import ReportCheckpointCallback

__all__ = ["ReportCheckpointCallback"]
