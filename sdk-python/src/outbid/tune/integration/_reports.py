"""The common part of the callbacks: the names of reported metrics, and models as checkpoints."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from outbid.tune import _session
from outbid.tune._checkpoint import Checkpoint


def names_of(metrics: str | list[str] | dict[str, str] | None) -> Mapping[str, str] | None:
    """Return the library's names of the metrics to report, by the names to report; None for all."""
    names = [metrics] if isinstance(metrics, str) else metrics
    return {name: name for name in names} if isinstance(names, list) else names


def report(metrics: dict[str, Any], filename: str, save: Callable[[str], Any] | None) -> None:
    """Report metrics, with the file that `save` writes as checkpoint."""
    if save is None:
        _session.report(metrics)
        return
    with tempfile.TemporaryDirectory(prefix="checkpoint_") as place:
        save(str(Path(place, filename)))
        _session.report(metrics, checkpoint=Checkpoint(place))


class Rounds:
    """Reports metrics after each round of boosting, and periodically a model."""

    def __init__(
        self,
        metrics: str | list[str] | dict[str, str] | None,
        filename: str,
        frequency: int,
        checkpoint_at_end: bool,
        processing: Callable[[dict[str, Any]], dict[str, Any]] | None,
    ) -> None:
        self._names = names_of(metrics)
        self._filename, self._every, self._at_end, self._processing = filename, frequency, checkpoint_at_end, processing
        self._saved = -1
        self._last: dict[str, Any] = {}

    def round(self, number: int, found: dict[str, Any], model: Any, *, last: bool = False) -> None:
        """Report a round, counted from 0, with the model if a checkpoint is due or if this is known to be the last."""
        picked = {k: found[v] for k, v in self._names.items()} if self._names else dict(found)
        self._last = self._processing(picked) if self._processing else picked
        if (self._every and (number + 1) % self._every == 0) or (last and self._at_end):
            self._save(number, model)
        else:
            report(self._last, self._filename, None)

    def end(self, number: int, model: Any) -> None:
        """Report the model of the last round if it was not reported, because the round was not known to be the last."""
        if self._at_end and self._saved != number:
            self._save(number, model)

    def _save(self, number: int, model: Any) -> None:
        self._saved = number
        report(self._last, self._filename, model.save_model)
