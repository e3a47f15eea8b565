"""Queries of a trial, and of an experiment on disk: `ray` and `outbid` print the same lines with a =."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

if sys.argv[1] == "ray":
    import ray
    from ray import tune

    ray.init(address="local", num_cpus=2, include_dashboard=False)
else:
    from outbid import tune

RESULTS = os.environ["RESULTS"]
said: list[str] = []  # warnings about the stopping criterion
warnings.showwarning = lambda message, *rest: said.append(str(message))
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
logging.getLogger("ray").addHandler(handler)


def train(config: dict[str, Any]) -> None:
    """Report the location of files with a few results."""
    storage: Any = tune.get_context().get_storage()
    for step in range(2):
        where = {
            "storage": storage.storage_fs_path,
            "experiment": storage.experiment_dir_name,
            "experiment_path": storage.experiment_fs_path,
            "right": storage.trial_fs_path == f"{storage.experiment_fs_path}/{storage.trial_dir_name}",
            "file_system": type(storage.storage_filesystem).__name__,
        }
        tune.report({"loss": config["x"] / (step + 1), "where": where})


class Seen(tune.Callback):
    """Checks a trial's storage."""

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        """Print a difference."""
        if trial.storage.trial_fs_path != str(Path(RESULTS, "asked", trial.storage.trial_dir_name)):
            print("= another storage", trial.storage.trial_fs_path)


tune.Tuner(
    train,
    param_space={"x": tune.grid_search([2.0, 1.0])},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=tune.RunConfig(
        name="asked", storage_path=RESULTS, stop={"accuracy": 0.9}, callbacks=[Seen()], verbose=0
    ),
).fit()
print("= warned of accuracy", any("accuracy" in text and "loss" in text for text in said))
analysis: Any = tune.ExperimentAnalysis(os.path.join(RESULTS, "asked"))
grid: Any = tune.ResultGrid(analysis)
print("= grid", len(grid), grid.num_errors, grid.num_terminated, grid.experiment_path)
best: Any = grid.get_best_result(metric="loss", mode="min")
print("= best", best.config, best.metrics["loss"], best.metrics["where"])
print("= rows", sorted(grid.get_dataframe()["loss"]), [len(result.metrics_dataframe) for result in grid])
print("= again", len(tune.Tuner.restore(os.path.join(RESULTS, "asked"), trainable=train).get_results()))
