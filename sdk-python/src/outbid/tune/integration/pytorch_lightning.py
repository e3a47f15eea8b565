"""Lightning callback that reports to the trial, with the trainer's checkpoint."""

from __future__ import annotations

from typing import Any

from outbid._core.optional import optional
from outbid.integrations.frameworks import LIGHTNING
from outbid.tune.integration._reports import names_of, report

Callback: Any = optional("outbid.tune.integration.pytorch_lightning", *LIGHTNING).Callback


class TuneReportCheckpointCallback(Callback):  # type: ignore[misc]
    """Reports the trainer's metrics and its checkpoint at a hook, by default "validation_end"."""

    def __init__(
        self,
        metrics: str | list[str] | dict[str, str] | None = None,
        filename: str = "checkpoint",
        save_checkpoints: bool = True,
        on: str | list[str] = "validation_end",
    ) -> None:
        self._names = names_of(metrics)
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
        if metrics:
            report(metrics, self._filename, trainer.save_checkpoint if self._save else None)


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports metrics only."""

    def __init__(self, metrics: Any = None, on: str | list[str] = "validation_end") -> None:
        super().__init__(metrics, save_checkpoints=False, on=on)


__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]
