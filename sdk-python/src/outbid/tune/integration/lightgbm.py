"""LightGBM callback that reports to the trial, with the model as checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from outbid.tune._absent_names import absent
from outbid.tune._checkpoint import Checkpoint
from outbid.tune.integration._reports import Rounds


class TuneReportCheckpointCallback:
    """Reports the metrics of `valid_sets` after each round, such as "eval-binary_error", and periodically the model."""

    CHECKPOINT_NAME = "model.txt"
    order = 20
    before_iteration = False

    def __init__(
        self,
        metrics: str | list[str] | dict[str, str] | None = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._rounds = Rounds(metrics, filename, frequency, checkpoint_at_end, results_postprocessing_fn)

    def __call__(self, env: Any) -> None:
        """Report a round."""
        found: dict[str, Any] = {}
        for entry in env.evaluation_result_list or ():
            data, name, value, *rest = entry
            found[f"{data}-{name}" + ("-mean" if len(rest) > 1 else "")] = value
            if len(rest) > 1:  # of lightgbm.cv
                found[f"{data}-{name}-stdv"] = rest[1]
        self._rounds.round(env.iteration, found, env.model, last=env.iteration + 1 == env.end_iteration)

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """Return the model in a checkpoint."""
        import lightgbm

        with checkpoint.as_directory() as place:
            return lightgbm.Booster(model_file=str(Path(place, filename)))


class TuneReportCallback(TuneReportCheckpointCallback):
    """Reports metrics only, like Ray until 2.10."""

    def __init__(self, metrics: Any = None, results_postprocessing_fn: Any = None) -> None:
        super().__init__(metrics, checkpoint_at_end=False, results_postprocessing_fn=results_postprocessing_fn)


RayTrainReportCallback = TuneReportCheckpointCallback


def __getattr__(name: str) -> Any:
    absent(__name__, name)


__all__ = ["RayTrainReportCallback", "TuneReportCallback", "TuneReportCheckpointCallback"]
