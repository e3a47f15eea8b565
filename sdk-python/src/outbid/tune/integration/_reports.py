"""The common part of the callbacks: the names of reported metrics, and models as checkpoints."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

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


class BoostingCallback:
    """The common part of the callbacks for boosting: reports metrics after each round, and periodically the model."""

    CHECKPOINT_NAME: ClassVar[str]
    """The file of the model in a checkpoint."""

    def __init__(
        self,
        metrics: str | list[str] | dict[str, str] | None = None,
        filename: str | None = None,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._names, self._filename = names_of(metrics), filename or self.CHECKPOINT_NAME
        self._every, self._at_end, self._processing = frequency, checkpoint_at_end, results_postprocessing_fn
        self._saved = -1
        self._last: dict[str, Any] = {}

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str | None = None) -> Any:
        """Return the model in a checkpoint."""
        with checkpoint.as_directory() as place:
            return cls._load(str(Path(place, filename or cls.CHECKPOINT_NAME)))

    @classmethod
    def _load(cls, path: str) -> Any:
        raise NotImplementedError

    def _round(self, number: int, found: dict[str, Any], model: Any, *, last: bool = False) -> None:
        """Report a round, counted from 0, with the model if a checkpoint is due or if this is known to be the last."""
        picked = {k: found[v] for k, v in self._names.items()} if self._names else dict(found)
        self._last = self._processing(picked) if self._processing else picked
        if (self._every and (number + 1) % self._every == 0) or (last and self._at_end):
            self._save(number, model)
        else:
            report(self._last, self._filename, None)

    def _end(self, number: int, model: Any) -> None:
        """Report the model of the last round if it was not reported, because the round was not known to be the last."""
        if self._at_end and self._saved != number:
            self._save(number, model)

    def _save(self, number: int, model: Any) -> None:
        self._saved = number
        report(self._last, self._filename, model.save_model)


class MetricsOnly(BoostingCallback):
    """Reports metrics only, like Ray until 2.10."""

    def __init__(self, metrics: Any = None, results_postprocessing_fn: Any = None) -> None:
        super().__init__(metrics, checkpoint_at_end=False, results_postprocessing_fn=results_postprocessing_fn)
