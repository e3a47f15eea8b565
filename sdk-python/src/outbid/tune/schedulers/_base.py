"""The base of schedulers. They run beside the server, and are asked about one result after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outbid.tune import _order
from outbid.tune._trial import Trial


@dataclass(frozen=True)
class Exploit:
    """A decision: the trial goes on from another's checkpoint, with another configuration."""

    source: Trial
    config: dict[str, Any]


class TrialScheduler:
    """Base of schedulers: override `on_trial_result`, which returns CONTINUE, PAUSE or STOP."""

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    STOP = "STOP"
    NOOP = "NOOP"

    compares = False
    """Whether it compares trials, for which it has to know by what."""

    _metric: str | None = None
    _mode: str | None = None

    @property
    def metric(self) -> str | None:
        """What it goes by."""
        return self._metric

    @property
    def supports_buffered_results(self) -> bool:
        """Whether results may come in groups: they do not."""
        return False

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take the experiment's metric and mode; False if there are others already."""
        if self._metric and metric and self._metric != metric:
            return False
        if self._mode and mode and self._mode != mode:
            return False
        self._metric, self._mode = self._metric or metric, self._mode or mode
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Hear of a new trial."""

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Hear of a trial that failed."""

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> Any:
        """Decide on a result."""
        return self.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Hear of a trial that has ended by itself."""

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Hear of a trial that was stopped."""

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return which of the paused trials goes on; None for a new one."""
        return next((t for t in tune_controller.get_trials() if t.status == Trial.PAUSED), None)

    def debug_string(self) -> str:
        """Return a line about it."""
        return f"Using {type(self).__name__}."

    def target(self, trial: Trial, step: int) -> int:
        """Return the step up to which a trial trains before it waits for a decision; 0 for its end.

        A scheduler that is not one of Outbid's own decides on every result.
        """
        return step + 1

    def _score(self, result: dict[str, Any]) -> float | None:
        """Return the metric's value so that more is better, None if it is missing; NaN is the worst: see `_order`."""
        return _order.score(result.get(self._metric or ""), self._mode)


class FIFOScheduler(TrialScheduler):
    """Trials in their order, each to its end."""

    def target(self, trial: Trial, step: int) -> int:
        """Let trials train to their end, unless a subclass decides on results."""
        return 0 if type(self).on_trial_result is FIFOScheduler.on_trial_result else step + 1

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> Any:
        """Go on."""
        return self.CONTINUE

    def debug_string(self) -> str:
        """Return a line about it."""
        return "Using FIFO scheduling algorithm."


def next_multiple(step: int, interval: int) -> int:
    """Return the first multiple of an interval after a step."""
    return (step // interval + 1) * interval
