"""The callback of a study's sweep, which keeps the study up to date."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import optuna
from optuna.trial import FrozenTrial

from outbid._client.callbacks import Callback
from outbid._core.exception_codec import unpacked
from outbid._core.user_warning import warn_user
from outbid._results.model import TrialResult, Update
from outbid._search.sweep import Sweep
from outbid.integrations.optuna.study_copy import Following
from outbid.integrations.optuna.trial_process import CHANGED, IDLE, RAISED, call_for, is_stopped, stoppable

_LOOKS = (0.002, 0.1)  # first and maximum seconds between looks at the study after news of its sweep


class StudyCallback(Callback):
    """Updates the study, calls Optuna's callbacks, and ends the sweep when the study was stopped."""

    def __init__(
        self,
        following: Following,
        sweep: Sweep,
        callbacks: tuple[Callable[[optuna.Study, FrozenTrial], None], ...],
    ) -> None:
        self._following, self._sweep, self._callbacks = following, sweep, callbacks
        self._stopped = self._stop_seen = self._warned = False
        self._called: set[str] = set()  # trials whose callbacks have been called
        self._pause = _LOOKS[1]  # seconds until the next look at the study, if no news comes before
        self._running: set[str] = set()  # trials of the sweep that run, or are about to run, a trial of the study

    def _on_update(self, update: Update) -> None:
        """Process the results from the workers."""
        self._following.pull()
        for trial in update.trials:
            runs = trial.state == "running" and IDLE not in trial.attributes
            (self._running.add if runs else self._running.discard)(trial.id)
        self._stop(update.sweep.id)
        self._pause = _LOOKS[0]

    def _on_idle(self) -> float | None:
        """Call the callbacks of trials that have ended: news of the sweep comes ten times a second at the most."""
        if not self._callbacks or self._pause >= _LOOKS[1]:
            return None
        self._following.pull()
        self._pause *= 2
        for trial in self._following.finished():
            self._call(trial)
            self._pause = _LOOKS[0]
        return self._pause

    def on_trial_end(self, trial: TrialResult) -> None:
        """Call the callbacks with Optuna's trial. Raises exceptions of the objective that are not in `catch`."""
        following = self._following
        if raised := trial.attributes.get(RAISED):
            self._sweep.handle.stop()
            raise unpacked(raised)
        if trial.state in ("failed", "stopped"):
            following.fail(trial.id)
        if (names := trial.attributes.get(CHANGED)) and not self._warned:
            self._warned = True
            warn_user(_lost(names))
        self._call(trial.id)

    def _call(self, of_sweep: str) -> None:
        """Call the callbacks with the study's trial that a trial of the sweep ran, once it has ended."""
        following, sweep = self._following, of_sweep.rpartition("/")[0]
        told = following.trial(of_sweep) if self._callbacks and of_sweep not in self._called else None
        if told is not None and told.state.is_finished():
            self._called.add(of_sweep)
            try:
                with stoppable(following.study, following.shared, sweep):
                    for callback in self._callbacks:
                        callback(following.study, copy.deepcopy(told))
            except KeyboardInterrupt:
                raise  # the sweep is paused or continues, like at any other time
            except BaseException:
                self._sweep.handle.stop()
                raise
        following.push()
        if told is not None and told.state.is_finished():
            call_for(following.shared, sweep, len(self._called))

    def _stop(self, sweep: str) -> None:
        """End the sweep of a stopped study when its running trials have finished.

        A trial that had begun when the study was stopped may appear only in the next update.
        """
        following, seen = self._following, self._stop_seen
        self._stop_seen = seen or is_stopped(following.shared, sweep)
        if not seen or self._stopped:
            return
        following.pull()
        if not following.runs() and all(map(following.is_over, self._running)):
            self._stopped = True
            self._sweep.handle.stop()


def _lost(names: Sequence[str]) -> str:
    """Return the warning about changes that this process does not see."""
    what = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
    return (
        f"the objective changes {what} outside of itself: trials run in other processes, each with a copy of it, so "
        "the original is not changed. Store data of a trial with trial.set_user_attr(...), which takes any object, "
        "and read study.best_trial.user_attrs; save large models to files named by trial.number; count with "
        "trial.number; collect in callbacks=[...], which are called here"
    )
