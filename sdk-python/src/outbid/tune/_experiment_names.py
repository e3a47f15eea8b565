"""Names of Ray's `tune.experiment`."""

from __future__ import annotations

from outbid.tune._run import Experiment
from outbid.tune._trial import Trial

__all__ = ["Experiment", "Trial"]
