"""The median stopping rule."""

from __future__ import annotations

import bisect
import math
from typing import Any

import numpy as np

from outbid.tune import _order
from outbid.tune._trial import Trial
from outbid.tune.schedulers._base import FIFOScheduler


class _Sums:
    """The sums of one trial's scores from the grace period on, after each of its results."""

    def __init__(self, grace: float, results: list[tuple[float, float]]) -> None:
        self._grace = grace
        self.times: list[float] = []
        self.sums: list[float] = []
        self.best = math.nan
        self.ordered = True  # false after a restart from a checkpoint: then times are repeated
        for time, score in results:
            self.add(time, score)

    def add(self, time: float, score: float) -> None:
        if _order.rank(score) > _order.rank(self.best):
            self.best = score
        if time >= self._grace:
            self.ordered = self.ordered and (not self.times or time >= self.times[-1])
            self.times.append(time)
            self.sums.append(score + (self.sums[-1] if self.sums else 0.0))

    def mean(self, until: float) -> float:
        """Return the mean of the scores until a time, or NaN without a score. Times must be ordered."""
        count = bisect.bisect_right(self.times, until)
        return self.sums[count - 1] / count if count else math.nan


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
        self._sums: dict[str, _Sums] = {}  # made from the results when needed

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sums": {}}

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
        own = self._sums_of(trial.trial_id)
        self._results.setdefault(trial.trial_id, []).append((float(time), score))
        own.add(float(time), score)
        if time < self._grace:
            return self.CONTINUE
        means = [
            mean
            for name, seen in self._results.items()
            if name != trial.trial_id and seen[-1][0] >= time and math.isfinite(mean := self._mean(name, float(time)))
        ]
        if len(means) < self._least:
            return self.CONTINUE
        if _order.rank(own.best) < _order.rank(float(np.median(means))):
            self._stopped.add(trial.trial_id)
            return self.STOP if self._hard else self.PAUSE
        return self.CONTINUE

    def _sums_of(self, name: str) -> _Sums:
        if name not in self._sums:
            self._sums[name] = _Sums(self._grace, self._results.get(name, []))
        return self._sums[name]

    def _mean(self, name: str, until: float) -> float:
        """Return the mean of a trial's scores from the grace period until a time, or NaN without a score."""
        sums = self._sums_of(name)
        if sums.ordered:
            return sums.mean(until)
        scores = [score for time, score in self._results[name] if self._grace <= time <= until]
        return sum(scores) / len(scores) if scores else math.nan
