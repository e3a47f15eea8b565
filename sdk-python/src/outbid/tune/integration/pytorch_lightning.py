"""Lightning callback that reports to the trial, with the trainer's checkpoint."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from outbid._core.errors import MissingExtraError
from outbid.tune import _session
from outbid.tune._checkpoint import Checkpoint

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError:
        raise MissingExtraError("outbid.tune.integration.pytorch_lightning needs lightning") from None


class TuneReportCheckpointCallback(Callback):  # type: ignore[misc]
    """Reports the trainer's metrics and its checkpoint at a hook, by default "validation_end"."""

    def __init__(
        self,
        metrics: str | list[str] | dict[str, str] | None = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | list[str] = "validation_end",
    ) -> None:
        names = [metrics] if isinstance(metrics, str) else metrics
        self._names = {n: n for n in names} if isinstance(names, list) else names
        self._filename, self._save = filename, save_checkpoints
        for hook in [on] if isinstance(on, str) else on:
            if not hasattr(Callback, f"on_{hook}"):
                raise ValueError(f"TuneReportCheckpointCallback: Lightning has no hook on_{hook}")
            setattr(self, f"on_{hook}", self._handle)

    def _handle(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.sanity_checking:
            return
        found = trainer.callback_metrics
        names = self._names or {name: name for name in found}
        metrics = {name: found[source].item() for name, source in names.items() if source in found}
        if not metrics:
            return
        if not self._save:
            _session.report(metrics)
            return
        with tempfile.TemporaryDirectory(prefix="checkpoint_") as place:
            trainer.save_checkpoint(str(Path(place, self._filename)))
            _session.report(metrics, checkpoint=Checkpoint(place))


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports metrics only."""

    def __init__(self, metrics: Any = None, on: str | list[str] = "validation_end") -> None:
        super().__init__(metrics, save_checkpoints=False, on=on)


__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]
