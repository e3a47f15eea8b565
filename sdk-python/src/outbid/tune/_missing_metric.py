"""Warns about stopping criteria on metrics that no trial reports, because they would silently have no effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from outbid._core.user_warning import warn_user
from outbid._results.model import TrialResult
from outbid.tune._result_files import UNSENT
from outbid.tune._trial import Trial, flatten


class MissingMetric:
    """The criteria of a run. Unreported ones are warned about at the first result, like in Ray, and at the end."""

    def __init__(self, stop: Any) -> None:
        self._stop = dict(stop) if isinstance(stop, Mapping) else {}
        self._waits = bool(self._stop)

    def look(self, trials: Iterable[TrialResult]) -> None:
        """Check updates of trials until one of them has reported."""
        first = next((t for t in trials if t.step and t.metrics), None) if self._waits else None
        if first is None:
            return
        self._waits = False
        missing = [name for name in self._stop if name not in first.metrics and name not in UNSENT]
        if missing:
            self._warn(missing, f"is not in the first result of trial {first.number}", first.metrics)

    def end(self, trials: Iterable[Trial]) -> None:
        """Check all metrics that were reported."""
        known = {name for trial in trials for result in trial.history for name in (*result, *flatten(result))}
        missing = [name for name in self._stop if name not in known]
        if missing and known:
            self._warn(missing, "was never reported", known)

    def _warn(self, missing: list[str], what: str, known: Iterable[str]) -> None:
        named = ", ".join(sorted(name for name in known if name != "config" and not name.startswith("config/")))
        warn_user(
            f"stop={self._stop}: {', '.join(map(repr, missing))} {what}. Reported are {named}. "
            "Only reported metrics end trials",
        )
