"""Warns about stop conditions on metrics that trials do not report, because these would silently have no effect."""

from __future__ import annotations

from outbid._client.callbacks import Callback
from outbid._core.user_warning import warn_user
from outbid._results.model import Update


class MissingMetric(Callback):
    """Warns if the first trial that reports does not report a metric in a stop condition."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def _on_update(self, update: Update) -> None:
        first = next((t for t in update.trials if t.step and t.metrics), None) if self._names else None
        if first is None:
            return
        missing, self._names = [name for name in self._names if name not in first.metrics], []
        if missing:
            warn_user(
                f"stop: {', '.join(map(repr, missing))} is not among what trial {first.number} reports: "
                f"{', '.join(first.metrics)}. The condition has no effect until it is reported",
            )
