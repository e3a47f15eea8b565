"""The median stopping rule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from outbid.tune import _order
from outbid.tune._trial import Trial
from outbid.tune.schedulers._base import FIFOScheduler


class MedianStoppingRule(FIFOScheduler):
    """Stops a trial whose best value is below the median of the others' running means."""

    compares = True

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        min_time_slice: int = 0,
        hard_stop: bool = True,
    ) -> None:
        self._time, self._metric, self._mode = time_attr, metric, mode
        self._grace, self._least, self._slice, self._hard = (
            grace_period,
            min_samples_required,
            min_time_slice,
            hard_stop,
        )
        self._results: dict[str, list[tuple[float, float]]] = {}
        self._stopped: set[str] = set()

    def target(self, trial: Trial, step: int) -> int:
        """Return the end of the grace period, and then every result."""
        if self._time == "training_iteration":
            return max(step + 1, int(self._grace))
        return step + 1

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Compare a trial with those that have reached the same time."""
        time, score = result.get(self._time), self._score(result)
        if time is None or score is None or trial.trial_id in self._stopped:
            return self.CONTINUE
        own = self._results.setdefault(trial.trial_id, [])
        own.append((float(time), score))
        if time < self._grace:
            return self.CONTINUE
        others = [
            [s for t, s in seen if self._grace <= t <= time]
            for name, seen in self._results.items()
            if name != trial.trial_id and seen[-1][0] >= float(time)
        ]
        means = [mean for scores in others if scores and math.isfinite(mean := sum(scores) / len(scores))]
        if len(means) < self._least:
            return self.CONTINUE
        best = _order.extreme([s for _, s in own], "max")
        if _order.rank(best) < _order.rank(float(np.median(means))):
            self._stopped.add(trial.trial_id)
            return self.STOP if self._hard else self.PAUSE
        return self.CONTINUE
