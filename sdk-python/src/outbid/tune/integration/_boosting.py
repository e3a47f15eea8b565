"""The common part of the callbacks for XGBoost and LightGBM."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from outbid.tune import _session
from outbid.tune._checkpoint import Checkpoint


class Reports:
    """Reports metrics after each round, and periodically a model."""

    def __init__(
        self,
        metrics: str | list[str] | dict[str, str] | None,
        filename: str,
        frequency: int,
        checkpoint_at_end: bool,
        processing: Callable[[dict[str, Any]], dict[str, Any]] | None,
    ) -> None:
        names = [metrics] if isinstance(metrics, str) else metrics
        self._names: Mapping[str, str] | None = {n: n for n in names} if isinstance(names, list) else names
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
            _session.report(self._last)

    def end(self, number: int, model: Any) -> None:
        """Report the model of the last round if it was not reported, because the round was not known to be the last."""
        if self._at_end and self._saved != number:
            self._save(number, model)

    def _save(self, number: int, model: Any) -> None:
        with self._written(model) as place:
            self._saved = number
            _session.report(self._last, checkpoint=Checkpoint(place))

    @contextlib.contextmanager
    def _written(self, model: Any) -> Any:
        with tempfile.TemporaryDirectory(prefix="checkpoint_") as place:
            model.save_model(str(Path(place, self._filename)))
            yield place
