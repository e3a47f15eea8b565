"""Callbacks: user code that is called while a program waits for a sweep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from outbid._core import validation
from outbid._results.model import Report, SweepInfo, TrialResult, Update

if TYPE_CHECKING:
    from outbid._results.result import Result


class Callback:
    """Base class of callbacks for `Sweep.run` and `SweepHandle.wait`. Override the methods that you need.

    They are called one at a time, in the waiting thread. An exception ends the waiting, not the sweep.
    """

    def on_sweep_start(self, sweep: SweepInfo) -> None:
        """Called first, with the state of the sweep when the waiting begins."""

    def on_report(self, trial: TrialResult, report: Report) -> None:
        """Called for every report, in order."""

    def on_trial_end(self, trial: TrialResult) -> None:
        """Called once for every trial that has ended, in the order of their ends."""

    def on_sweep_end(self, result: Result) -> None:
        """Called when the sweep has ended."""

    def _on_update(self, update: Update) -> None:
        """Called with each update, at most ten times a second. This is cheaper than a call for every report."""

    def _on_idle(self) -> float | None:
        """Call before news is waited for; returns the seconds after which it is called again, None: after news."""
        return None


def callables(name: str, given: Iterable[Callback]) -> tuple[Callback, ...]:
    """Return callbacks or loggers as a tuple. Raises TypeError if they are not a list of them."""
    such = "outbid.Callback objects"
    for callback in (called := tuple(validation.several(name, given, such))):
        if not isinstance(callback, Callback):
            raise TypeError(f"{name} must be {such}, got {callback!r:.80}")
    return called


class Caller:
    """Calls callbacks for the updates of a watched sweep."""

    def __init__(self, callbacks: tuple[Callback, ...]) -> None:
        self._callbacks = callbacks
        self._trials: dict[int, TrialResult] = {}
        self._over: set[int] = set()
        self._early: list[Report] = []  # reports of trials that no update has contained yet
        self._begun = False

    @property
    def wants_reports(self) -> bool:
        """Whether any callback handles reports."""
        return any(type(c).on_report is not Callback.on_report for c in self._callbacks)

    def update(self, update: Update) -> None:
        """Make the calls for an update: reports first, so that a trial's end comes last."""
        if not self._begun:
            self._begun = True
            for callback in self._callbacks:
                callback.on_sweep_start(update.sweep)
        for callback in self._callbacks:
            callback._on_update(update)
        self._trials.update({trial.number: trial for trial in update.trials})
        reports, self._early = [*self._early, *update.reports], []
        for report in reports:
            trial = self._trials.get(report.trial)
            if trial is None:
                self._early.append(report)
                continue
            for callback in self._callbacks:
                callback.on_report(trial, report)
        ended = [trial for trial in update.trials if trial.over and trial.number not in self._over]
        for trial in sorted(ended, key=lambda t: (t.ended.timestamp() if t.ended else 0.0, t.number)):
            self._over.add(trial.number)
            for callback in self._callbacks:
                callback.on_trial_end(trial)

    def idle(self) -> float | None:
        """Make the calls that are due without news; return the seconds until the next."""
        return min((s for c in self._callbacks if (s := c._on_idle()) is not None), default=None)

    def end(self, result: Result) -> None:
        """Call on_sweep_end."""
        for callback in self._callbacks:
            callback.on_sweep_end(result)
