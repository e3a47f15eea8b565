"""Keras callback that reports to the trial, with the model as checkpoint."""

from __future__ import annotations

from typing import Any

from outbid._core.optional import optional
from outbid.tune.integration._reports import names_of, report

Callback: Any = optional("outbid.tune.integration.keras", "keras.callbacks").Callback

_HOOKS = ("epoch_begin", "epoch_end", "train_batch_begin", "train_batch_end", "test_end", "train_end")


class TuneReportCheckpointCallback(Callback):  # type: ignore[misc]
    """Reports Keras's logs and the model after each epoch, or at other hooks."""

    def __init__(
        self,
        checkpoint_on: str | list[str] = "epoch_end",
        report_metrics_on: str | list[str] = "epoch_end",
        metrics: str | list[str] | dict[str, str] | None = None,
        filename: str = "model.keras",
    ) -> None:
        super().__init__()
        self._names = names_of(metrics)
        self._filename = filename
        self._saving = [checkpoint_on] if isinstance(checkpoint_on, str) else checkpoint_on
        for hook in {
            *([report_metrics_on] if isinstance(report_metrics_on, str) else report_metrics_on),
            *self._saving,
        }:
            if hook not in _HOOKS:
                raise ValueError(f"TuneReportCheckpointCallback: {hook!r} must be one of {', '.join(_HOOKS)}")
            setattr(self, f"on_{hook}", self._at(hook))

    def _at(self, hook: str) -> Any:
        def handle(*args: Any, **kwargs: Any) -> None:
            found = kwargs.get("logs") or (args[-1] if args and isinstance(args[-1], dict) else {})
            names = self._names or {name: name for name in found}
            metrics = {name: float(found[source]) for name, source in names.items() if source in found}
            report(metrics, self._filename, self.model.save if hook in self._saving else None)

        return handle


ReportCheckpointCallback = TuneReportCheckpointCallback

__all__ = ["ReportCheckpointCallback", "TuneReportCheckpointCallback"]
