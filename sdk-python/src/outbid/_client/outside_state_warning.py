"""A warning of state outside a training function that its trials changed in their own processes."""

from __future__ import annotations

from outbid._client.callbacks import Callback
from outbid._core.user_warning import warn_user
from outbid._results.model import TrialResult

_SHOWN = 3  # names in the warning


class ChangesOutside(Callback):
    """Warns once of the first trial that changed state outside its training function."""

    def __init__(self) -> None:
        self._warned = False

    def on_trial_end(self, trial: TrialResult) -> None:
        """Warn if the trial changed anything."""
        if self._warned or not trial._outside:
            return
        self._warned = True
        names = ", ".join(map(repr, trial._outside[:_SHOWN])) + (", ..." if len(trial._outside) > _SHOWN else "")
        warn_user(
            f"the training function changes {names} outside of itself: trials run in other processes, each with a copy "
            "of it, and here it stays as it was. Report metrics with trial.report(...), keep facts with "
            "trial.note(...), models with trial.save(...), and read them from the result; collect in callbacks=[...], "
            "which are called here"
        )
