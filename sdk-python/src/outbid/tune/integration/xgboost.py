"""XGBoost callback that reports to the trial, with the model as checkpoint."""

from __future__ import annotations

from typing import Any

import xgboost

from outbid.integrations.frameworks import xgboost_values
from outbid.tune._absent_names import absent
from outbid.tune.integration._reports import BoostingCallback, MetricsOnly


class TuneReportCheckpointCallback(BoostingCallback, xgboost.callback.TrainingCallback):  # type: ignore[misc]
    """Reports the metrics of `evals` each round, such as "eval-logloss", and the model every `frequency` rounds."""

    CHECKPOINT_NAME = "model.ubj"
    _done = -1

    def after_iteration(self, model: Any, epoch: int, evals_log: dict[str, dict[str, list[Any]]]) -> bool:
        """Report a round."""
        found = {f"{data}-{name}": value for data, name, value in xgboost_values(evals_log)}
        self._done = epoch
        self._round(epoch, found, model)
        return False

    def after_training(self, model: Any) -> Any:
        """Report the model."""
        self._end(self._done, model)
        return model

    @classmethod
    def _load(cls, path: str) -> Any:
        booster = xgboost.Booster()
        booster.load_model(path)
        return booster


class TuneReportCallback(MetricsOnly, TuneReportCheckpointCallback):
    """Reports metrics only, like Ray until 2.10."""


RayTrainReportCallback = TuneReportCheckpointCallback


def __getattr__(name: str) -> Any:
    absent(__name__, name)


__all__ = ["RayTrainReportCallback", "TuneReportCallback", "TuneReportCheckpointCallback"]
