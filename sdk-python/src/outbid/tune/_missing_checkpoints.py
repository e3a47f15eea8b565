"""Warns about trials that are paused or cloned without checkpoints, because they start again each time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outbid._core.user_warning import warn_user
from outbid._results.model import TrialResult
from outbid.tune._trial import Trial
from outbid.tune.schedulers import FIFOScheduler


class MissingCheckpoints:
    """Warns once per run if a trial that the scheduler paused or cloned continues without a checkpoint."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = type(scheduler).__name__
        self._waits = scheduler is not None and type(scheduler) is not FIFOScheduler

    def look(self, infos: Iterable[TrialResult]) -> None:
        """Check updates of trials. Ended trials are skipped, because most of their checkpoints are deleted."""
        self._warn(t.number for t in infos if t.resumes and not t.checkpoints and not t.over)

    def end(self, trials: Iterable[Trial], infos: Iterable[TrialResult]) -> None:
        """Check all trials by their directories, which contain their checkpoints."""
        both = zip(trials, infos, strict=True)
        self._warn(i.number for t, i in both if i.resumes and not t.checkpoints and Path(t.local_path).is_dir())

    def _warn(self, found: Iterable[int]) -> None:
        number = next(iter(found), None) if self._waits else None
        if number is None:
            return
        self._waits = False
        warn_user(
            f"{self._scheduler}: trial {number} was paused or cloned from another trial, and started again at step 0 "
            "because there was no checkpoint. A function must save with tune.report(metrics, "
            "checkpoint=tune.Checkpoint.from_directory(path)) and load with tune.get_checkpoint(); a tune.Trainable "
            "needs save_checkpoint() and load_checkpoint()",
        )
