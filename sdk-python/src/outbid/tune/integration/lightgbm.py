"""LightGBM callback that reports to the trial, with the model as checkpoint."""

from __future__ import annotations

from typing import Any

from outbid.tune._absent_names import absent
from outbid.tune.integration._reports import BoostingCallback, MetricsOnly


class TuneReportCheckpointCallback(BoostingCallback):
    """Reports the metrics of `valid_sets` after each round, such as "eval-binary_error", and periodically the model."""

    CHECKPOINT_NAME = "model.txt"
    order = 20
    before_iteration = False

    def __call__(self, env: Any) -> None:
        """Report a round."""
        found: dict[str, Any] = {}
        for entry in env.evaluation_result_list or ():
            data, name, value, *rest = entry
            found[f"{data}-{name}" + ("-mean" if len(rest) > 1 else "")] = value
            if len(rest) > 1:  # of lightgbm.cv
                found[f"{data}-{name}-stdv"] = rest[1]
        self._round(env.iteration, found, env.model, last=env.iteration + 1 == env.end_iteration)

    @classmethod
    def _load(cls, path: str) -> Any:
        import lightgbm

        return lightgbm.Booster(model_file=path)


class TuneReportCallback(MetricsOnly, TuneReportCheckpointCallback):
    """Reports metrics only, like Ray until 2.10."""


RayTrainReportCallback = TuneReportCheckpointCallback


def __getattr__(name: str) -> Any:
    absent(__name__, name)


__all__ = ["RayTrainReportCallback", "TuneReportCallback", "TuneReportCheckpointCallback"]
