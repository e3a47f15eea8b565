"""Trials that a scheduler pauses or clones, and that save nothing: they begin again each time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outbid._model import TrialResult
from outbid._user_warning import warn_user
from outbid.tune._trial import Trial
from outbid.tune.schedulers import FIFOScheduler


class Unsaved:
    """Warns once per run when a trial that the scheduler paused or cloned goes on from no checkpoint."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = type(scheduler).__name__
        self._waits = scheduler is not None and type(scheduler) is not FIFOScheduler

    def look(self, infos: Iterable[TrialResult]) -> None:
        """Look at news of trials. Of those that have ended most checkpoints are deleted: they tell nothing."""
        self._warn(t.number for t in infos if t.resumes and not t.checkpoints and not t.over)

    def end(self, trials: Iterable[Trial], infos: Iterable[TrialResult]) -> None:
        """Look at all trials, whose directories have what they saved."""
        both = zip(trials, infos, strict=True)
        self._warn(i.number for t, i in both if i.resumes and not t.checkpoints and Path(t.local_path).is_dir())

    def _warn(self, found: Iterable[int]) -> None:
        number = next(iter(found), None) if self._waits else None
        if number is None:
            return
        self._waits = False
        warn_user(
            f"{self._scheduler}: trial {number} was paused, or was to go on from another trial, and began again "
            "at step 0, as no checkpoint was saved. A function saves with tune.report(metrics, "
            "checkpoint=tune.Checkpoint.from_directory(path)) and begins with tune.get_checkpoint(); a tune.Trainable "
            "has save_checkpoint() and load_checkpoint()",
        )
