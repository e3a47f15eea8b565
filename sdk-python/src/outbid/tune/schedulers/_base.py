"""The base class of schedulers, which run on the server and are called for one result after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outbid.tune import _order
from outbid.tune._trial import Trial


@dataclass(frozen=True)
class Exploit:
    """A decision: the trial continues from another trial's checkpoint with another configuration."""

    source: Trial
    config: dict[str, Any]


class TrialScheduler:
    """Base class of schedulers: override `on_trial_result`, which returns CONTINUE, PAUSE or STOP."""

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    STOP = "STOP"
    NOOP = "NOOP"

    compares = False
    """Whether it compares trials, and therefore needs a metric."""

    _metric: str | None = None
    _mode: str | None = None

    @property
    def metric(self) -> str | None:
        """The metric."""
        return self._metric

    @property
    def supports_buffered_results(self) -> bool:
        """Whether results may arrive in groups, which they do not."""
        return False

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Set the experiment's metric and mode. Returns False if others are set already."""
        if self._metric and metric and self._metric != metric:
            return False
        if self._mode and mode and self._mode != mode:
            return False
        self._metric, self._mode = self._metric or metric, self._mode or mode
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Called for a new trial."""

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Called when a trial has failed."""

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> Any:
        """Return a decision on a result."""
        return self.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Called when a trial has ended by itself."""

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Called when a trial was stopped."""

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return the paused trial to continue; None for a new one."""
        return next((t for t in tune_controller.get_trials() if t.status == Trial.PAUSED), None)

    def debug_string(self) -> str:
        """Return a description in one line."""
        return f"Using {type(self).__name__}."

    def target(self, trial: Trial, step: int) -> int:
        """Return the step where a trial waits for a decision; 0 for its end.

        A user-defined scheduler decides on every result.
        """
        return step + 1

    def _score(self, result: dict[str, Any]) -> float | None:
        """Return the metric's value with more being better, or None if it is missing; see `_order` about NaN."""
        return _order.score(result.get(self._metric or ""), self._mode)


class FIFOScheduler(TrialScheduler):
    """Runs trials in order, each to its end."""

    def target(self, trial: Trial, step: int) -> int:
        """Return 0 so that trials train to their end, unless a subclass decides on results."""
        return 0 if type(self).on_trial_result is FIFOScheduler.on_trial_result else step + 1

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> Any:
        """Continue the trial."""
        return self.CONTINUE

    def debug_string(self) -> str:
        """Return a description in one line."""
        return "Using FIFO scheduling algorithm."


def next_multiple(step: int, interval: int) -> int:
    """Return the first multiple of an interval after a step."""
    return (step // interval + 1) * interval
