"""XGBoost callback that reports to the trial, with the model as checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import xgboost

from outbid.integrations.frameworks import xgboost_values
from outbid.tune._absent_names import absent
from outbid.tune._checkpoint import Checkpoint
from outbid.tune.integration._reports import Rounds


class TuneReportCheckpointCallback(xgboost.callback.TrainingCallback):  # type: ignore[misc]
    """Reports the metrics of `evals` each round, such as "eval-logloss", and the model every `frequency` rounds."""

    CHECKPOINT_NAME = "model.ubj"

    def __init__(
        self,
        metrics: str | list[str] | dict[str, str] | None = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._rounds = Rounds(metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn)
        self._round = -1

    def after_iteration(self, model: Any, epoch: int, evals_log: dict[str, dict[str, list[Any]]]) -> bool:
        """Report a round."""
        found = {f"{data}-{name}": value for data, name, value in xgboost_values(evals_log)}
        self._round = epoch
        self._rounds.round(epoch, found, model)
        return False

    def after_training(self, model: Any) -> Any:
        """Report the model."""
        self._rounds.end(self._round, model)
        return model

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """Return the model in a checkpoint."""
        booster = xgboost.Booster()
        with checkpoint.as_directory() as place:
            booster.load_model(str(Path(place, filename)))
        return booster


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports metrics only, like Ray until 2.10."""

    def __init__(self, metrics: Any = None, results_postprocessing_fn: Any = None) -> None:
        super().__init__(metrics, checkpoint_at_end=False, results_postprocessing_fn=results_postprocessing_fn)


RayTrainReportCallback = TuneReportCheckpointCallback


def __getattr__(name: str) -> Any:
    absent(__name__, name)


__all__ = ["RayTrainReportCallback", "TuneReportCallback", "TuneReportCheckpointCallback"]
