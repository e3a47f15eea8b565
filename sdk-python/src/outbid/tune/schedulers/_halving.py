"""Successive halving: asynchronous, and in the brackets of Hyperband."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from outbid.tune import _order
from outbid.tune._trial import Trial
from outbid.tune.schedulers._base import FIFOScheduler, TrialScheduler


class _Rungs:
    """The rungs of one bracket, with the scores of trials there."""

    def __init__(self, least: float, most: float, factor: float, first: int) -> None:
        count = int(math.log(most / least) / math.log(factor) - first + 1)
        self.levels: list[tuple[float, dict[str, float]]] = [
            (least * factor ** (k + first), {}) for k in reversed(range(max(count, 0)))
        ]

    def after(self, time: float) -> float | None:
        """Return the first rung after a time."""
        return min((level for level, _ in self.levels if level > time), default=None)


class AsyncHyperBandScheduler(FIFOScheduler):
    """Asynchronous successive halving: a trial stops at a rung unless it is among the best 1/`reduction_factor`."""

    compares = True

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: int = 100,
        grace_period: int = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
    ) -> None:
        if max_t <= 0 or grace_period <= 0 or max_t < grace_period:
            raise ValueError(f"ASHA: max_t must not be below grace_period, got {max_t} and {grace_period}")
        if reduction_factor <= 1:
            raise ValueError(f"ASHA: reduction_factor must be above 1, got {reduction_factor!r}")
        if brackets <= 0:
            raise ValueError(f"ASHA: brackets must be above 0, got {brackets!r}")
        if mode not in (None, "min", "max"):
            raise ValueError(f"ASHA: mode must be 'min' or 'max', got {mode!r}")
        self._time, self._metric, self._mode, self._max = time_attr, metric, mode, max_t
        self._factor, self._stop_last = reduction_factor, stop_last_trials
        self._brackets = [_Rungs(grace_period, max_t, reduction_factor, s) for s in range(brackets)]
        self._of: dict[str, _Rungs] = {}
        self._rng = np.random.RandomState(0)

    def target(self, trial: Trial, step: int) -> int:
        """Return the next rung."""
        if self._time != "training_iteration":
            return step + 1
        rung = self._of[trial.trial_id].after(step)
        return min(math.ceil(rung), self._max) if rung is not None else max(self._max, step + 1)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Assign a trial to a bracket, larger ones with a higher probability."""
        sizes = np.array([len(b.levels) for b in self._brackets], dtype=float)
        if len(self._brackets) == 1:
            self._of[trial.trial_id] = self._brackets[0]
            return
        weights = np.exp(sizes - sizes.max())
        self._of[trial.trial_id] = self._brackets[int(self._rng.choice(len(sizes), p=weights / weights.sum()))]

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Stop trials at `max_t`, and worse ones at a rung."""
        time, score = result.get(self._time), self._score(result)
        if time is None or score is None:
            return self.CONTINUE
        if time >= self._max and self._stop_last:
            return self.STOP
        return self._at(trial, float(time), score)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Count the last result."""
        time, score = result.get(self._time), self._score(result)
        if time is not None and score is not None:
            self._at(trial, float(time), score)

    def _at(self, trial: Trial, time: float, score: float) -> str:
        for level, scores in self._of[trial.trial_id].levels:
            if time < level or trial.trial_id in scores:
                continue
            # A cutoff of NaN means that no trial had a number here, so no trial can be worse.
            cutoff = _order.percentile(scores.values(), (1 - 1 / self._factor) * 100)
            good = _order.rank(score) >= _order.rank(cutoff)
            scores[trial.trial_id] = score
            return self.CONTINUE if good else self.STOP
        return self.CONTINUE


class HyperBandScheduler(FIFOScheduler):
    """Hyperband: brackets of trials that start together. Each rung waits for all of its trials and halves them."""

    compares = True

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: int = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        if max_t <= 0:
            raise ValueError(f"HyperBand: max_t must be above 0, got {max_t!r}")
        if reduction_factor <= 1:
            raise ValueError(f"HyperBand: reduction_factor must be above 1, got {reduction_factor!r}")
        self._time, self._metric, self._mode, self._max = time_attr, metric, mode, max_t
        self._eta, self._stop_last = reduction_factor, stop_last_trials
        self._most = int(np.round(np.log(max_t) / np.log(reduction_factor)))
        self._brackets: list[_Bracket] = []
        self._of: dict[str, _Bracket] = {}
        self._next = self._most

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial to the bracket that is being filled."""
        if not self._brackets or self._brackets[-1].full:
            s, top = self._next, self._most + 1
            size = math.ceil(top / (s + 1) * self._eta**s)
            self._brackets.append(_Bracket(size, max(1, round(self._max / self._eta**s)), self._max, self._eta))
            self._next = s - 1 if s > 0 else self._most
        self._brackets[-1].add(trial)
        self._of[trial.trial_id] = self._brackets[-1]

    def target(self, trial: Trial, step: int) -> int:
        """Return the next rung."""
        if self._time != "training_iteration":
            return step + 1
        return max(step + 1, int(self._of[trial.trial_id].rung))

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Pause at a rung until all trials of the bracket have reached it."""
        time, score = result.get(self._time), self._score(result)
        if time is None or score is None:
            return self.CONTINUE
        bracket = self._of[trial.trial_id]
        if time >= self._max and self._stop_last:
            bracket.leave(trial)
            return self._judge(tune_controller, bracket, trial, self.STOP)
        if time < bracket.rung:
            return self.CONTINUE
        bracket.waiting[trial] = score
        return self._judge(tune_controller, bracket, trial, self.PAUSE)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Remove a trial that has ended."""
        bracket = self._of[trial.trial_id]
        bracket.leave(trial)
        self._judge(tune_controller, bracket, trial, self.STOP)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Remove a trial that was stopped."""
        self.on_trial_complete(tune_controller, trial, {})

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Remove a trial that failed."""
        self.on_trial_complete(tune_controller, trial, {})

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return a paused trial that may continue; others wait for their rung."""
        for trial in tune_controller.get_trials():
            if trial.status == Trial.PAUSED and trial not in self._of[trial.trial_id].waiting:
                return trial  # type: ignore[no-any-return]
        return None

    def _judge(self, controller: Any, bracket: _Bracket, trial: Trial, otherwise: str) -> str:
        """Halve a bracket if all of its trials are at the rung. Returns the decision on the trial."""
        if not bracket.complete(controller):
            return otherwise
        good, bad = bracket.halve()
        for other in bad:
            bracket.leave(other)
            if other is not trial:
                controller.stop_trial(other)
        if trial in bad:
            return self.STOP
        return self.CONTINUE if trial in good else otherwise


class _Bracket:
    def __init__(self, size: int, rung: float, most: float, eta: float) -> None:
        self.size, self.rung, self.most, self.eta = size, rung, most, eta
        self.trials: list[Trial] = []
        self.waiting: dict[Trial, float] = {}
        self._added = 0

    @property
    def full(self) -> bool:
        return self._added >= self.size

    def add(self, trial: Trial) -> None:
        self.trials.append(trial)
        self._added += 1

    def leave(self, trial: Trial) -> None:
        if trial in self.trials:
            self.trials.remove(trial)
        self.waiting.pop(trial, None)

    def complete(self, controller: Any) -> bool:
        """Return whether all trials are at the rung, and no others will come."""
        if not self.waiting or any(trial not in self.waiting for trial in self.trials):
            return False
        return self.full or bool(controller.no_more_trials())

    def halve(self) -> tuple[list[Trial], list[Trial]]:
        ranked = sorted(self.waiting, key=lambda trial: _order.rank(self.waiting[trial]), reverse=True)
        keep = max(1, math.ceil(len(ranked) / self.eta))
        # NaN does not pass a rung that a number has reached.
        keep = min(keep, sum(map(_order.is_number, self.waiting.values())) or keep)
        self.rung = min(self.rung * self.eta, self.most)
        self.waiting = {}
        return ranked[:keep], ranked[keep:]


class HyperBandForBOHB(HyperBandScheduler):
    """Hyperband with trials drawn by a model: use `OptunaSearch()` as the search algorithm."""


__all__ = ["AsyncHyperBandScheduler", "HyperBandForBOHB", "HyperBandScheduler", "TrialScheduler"]
