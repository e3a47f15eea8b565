"""Stoppers: conditions for ending a trial or all trials."""

from __future__ import annotations

import datetime
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from outbid.tune import _order


class Stopper:
    """Base class of stoppers. A copy on the server is called for each result of every trial, in order.

    The script's object is called as well, so that its state is current; its `stop_all` ends the experiment.
    """

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether the trial should end."""
        raise NotImplementedError

    def stop_all(self) -> bool:
        """Return whether the experiment should end."""
        raise NotImplementedError


class NoopStopper(Stopper):
    """Stops nothing."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return False."""
        return False

    def stop_all(self) -> bool:
        """Return False."""
        return False


class FunctionStopper(Stopper):
    """Stops a trial when a function of (trial_id, result) returns True."""

    def __init__(self, function: Callable[[str, dict[str, Any]], bool]) -> None:
        self._function = function

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether the function ends the trial."""
        return bool(self._function(trial_id, result))

    def stop_all(self) -> bool:
        """Return False."""
        return False


class CombinedStopper(Stopper):
    """Stops when one of several stoppers does."""

    def __init__(self, *stoppers: Stopper) -> None:
        self._stoppers = stoppers

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether any stopper ends the trial."""
        return any([stopper(trial_id, result) for stopper in self._stoppers])

    def stop_all(self) -> bool:
        """Return whether any stopper ends the experiment."""
        return any([stopper.stop_all() for stopper in self._stoppers])


class MaximumIterationStopper(Stopper):
    """Stops a trial after `max_iter` iterations."""

    def __init__(self, max_iter: int) -> None:
        self._most = max_iter
        self._seen: dict[str, int] = defaultdict(int)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether the trial has done its iterations."""
        self._seen[trial_id] = max(self._seen[trial_id] + 1, int(result.get("training_iteration", 0)))
        return self._seen[trial_id] >= self._most

    def stop_all(self) -> bool:
        """Return False."""
        return False


class TimeoutStopper(Stopper):
    """Stops everything after a time, in seconds or as a timedelta, without the time before a restore."""

    def __init__(self, timeout: float | datetime.timedelta) -> None:
        if isinstance(timeout, datetime.timedelta):
            timeout = timeout.total_seconds()
        if not isinstance(timeout, (int, float)) or not timeout >= 0:
            raise ValueError(f"TimeoutStopper: timeout must be seconds from 0, or a timedelta, got {timeout!r}")
        self.timeout = float(timeout)
        self._budget = self.timeout
        self._last_check: float | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _last_check=None)

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return False."""
        return False

    def stop_all(self) -> bool:
        """Return whether the time is over."""
        now = time.time()
        if self._last_check is not None:
            self._budget -= now - self._last_check
        self._last_check = now
        return self._budget <= 0

    def spend(self, seconds: float) -> None:
        """Set the remaining time to the timeout minus the seconds that the experiment has run."""
        self._budget, self._last_check = self.timeout - seconds, None


class ExperimentPlateauStopper(Stopper):
    """Stops everything when the best `top` results have hardly changed for `patience` results."""

    def __init__(self, metric: str, std: float = 0.001, top: int = 10, mode: str = "min", patience: int = 0) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"ExperimentPlateauStopper: mode must be 'min' or 'max', got {mode!r}")
        for name, value, least in (("top", top, 2), ("patience", patience, 0)):
            if not isinstance(value, int) or value < least:
                raise ValueError(
                    f"ExperimentPlateauStopper: {name} must be a whole number of at least {least}, got {value!r}"
                )
        if not isinstance(std, (int, float)) or not std > 0:
            raise ValueError(f"ExperimentPlateauStopper: std must be a number above 0, got {std!r}")
        self._metric, self._std, self._top, self._mode, self._patience = metric, std, top, mode, patience
        self._best: list[float] = []
        self._flat = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether there is a plateau."""
        self._best.append(float(result[self._metric]))
        self._best = sorted(self._best, key=lambda value: _order.rank(value, self._mode), reverse=True)[: self._top]
        self._flat = self._flat + 1 if self._plateau() else 0
        return self.stop_all()

    def stop_all(self) -> bool:
        """Return whether there is a plateau."""
        return self._plateau() and self._flat >= self._patience

    def _plateau(self) -> bool:
        import numpy as np

        with np.errstate(invalid="ignore"):  # infinities and NaN differ from everything
            return len(self._best) == self._top and float(np.std(self._best)) <= self._std


class TrialPlateauStopper(Stopper):
    """Stops a trial when its last `num_results` results hardly differ."""

    def __init__(
        self,
        metric: str,
        std: float = 0.01,
        num_results: int = 4,
        grace_period: int = 4,
        metric_threshold: float | None = None,
        mode: str | None = None,
    ) -> None:
        if metric_threshold is not None and mode not in ("min", "max"):
            raise ValueError(f"TrialPlateauStopper: mode must be 'min' or 'max' with a threshold, got {mode!r}")
        self._metric, self._std, self._grace = metric, std, grace_period
        self._count, self._threshold, self._mode = num_results, metric_threshold, mode
        self._seen: dict[str, int] = defaultdict(int)
        self._window: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=num_results))

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Return whether the trial has reached a plateau."""
        value = float(result.get(self._metric, "nan"))
        self._window[trial_id].append(value)
        self._seen[trial_id] += 1
        if self._seen[trial_id] < self._grace or len(self._window[trial_id]) < self._count:
            return False
        if self._threshold is not None and (
            (self._mode == "min" and value > self._threshold) or (self._mode == "max" and value < self._threshold)
        ):
            return False
        import numpy as np

        with np.errstate(invalid="ignore"):
            return float(np.std(self._window[trial_id])) < self._std

    def stop_all(self) -> bool:
        """Return False."""
        return False


def asked_in_trial(stop: Any) -> bool:
    """Return whether conditions only need one trial's newest result, so that its process can apply them."""
    if isinstance(stop, CombinedStopper):
        return all(map(asked_in_trial, stop._stoppers))
    return (
        stop is None
        or isinstance(stop, Mapping)
        or type(stop) in (NoopStopper, MaximumIterationStopper, TimeoutStopper)
    )


__all__ = [
    "CombinedStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "NoopStopper",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
]
