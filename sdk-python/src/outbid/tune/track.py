"""`tune.track` of Ray Tune before 1.0: `track.log(loss=0.1)` in a training function."""

from __future__ import annotations

from typing import Any

from outbid.tune._absent_names import absent
from outbid.tune._session import report


def log(**metrics: Any) -> None:
    """Report one iteration's metrics, like `tune.report`."""
    report(metrics)


def __getattr__(name: str) -> Any:
    absent(__name__, name)


__all__ = ["log"]
