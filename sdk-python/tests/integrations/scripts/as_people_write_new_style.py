"""Ray 2.x: a function with checkpoints, ASHA, nested grids, a callback, and the tables afterwards."""

import json
import os
import tempfile

from outbid import tune
from outbid.tune import Checkpoint, CheckpointConfig, RunConfig
from outbid.tune.schedulers import ASHAScheduler


class Watcher(tune.Callback):
    """Records calls."""

    def __init__(self) -> None:
        self.results, self.ended = [], []

    def on_trial_result(self, iteration, trials, trial, result, **info):
        """Record a result."""
        self.results.append((trial.trial_id, result["training_iteration"], result["note"]))

    def on_trial_complete(self, iteration, trials, trial, **info):
        """Record an end."""
        self.ended.append(trial.trial_id)


def train(config):
    """Count from the checkpoint."""
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as place, open(os.path.join(place, "state.json")) as file:
            start = json.load(file)["epoch"] + 1
    for epoch in range(start, 9):
        with tempfile.TemporaryDirectory() as place:
            with open(os.path.join(place, "state.json"), "w") as file:
                json.dump({"epoch": epoch}, file)
            tune.report(
                {"accuracy": config["model"]["width"] * (epoch + 1), "note": "text", "shape": (1, 2)},
                checkpoint=Checkpoint.from_directory(place),
            )


watcher = Watcher()
grid = tune.Tuner(
    tune.with_resources(train, {"cpu": 1}),
    param_space={"model": {"width": tune.grid_search([1, 2, 3, 4]), "kind": tune.choice(["a", "b"])}, "seed": 1},
    tune_config=tune.TuneConfig(
        metric="accuracy", mode="max", scheduler=ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3)
    ),
    run_config=RunConfig(name="new", verbose=0, callbacks=[watcher], checkpoint_config=CheckpointConfig(num_to_keep=2)),
).fit()
best = grid.get_best_result()
assert best.config["model"]["width"] == 4, best
assert best.metrics["accuracy"] == 36 and best.metrics["training_iteration"] == 9 and best.metrics["done"]
assert best.metrics["shape"] == (1, 2)
assert len(best.best_checkpoints) == 2
with best.checkpoint.as_directory() as place:
    assert json.load(open(os.path.join(place, "state.json")))["epoch"] == 8
assert list(best.metrics_dataframe["accuracy"]) == [4 * i for i in range(1, 10)]
assert {"config/model/width", "accuracy", "training_iteration", "trial_id"} <= set(grid.get_dataframe().columns)
assert len(watcher.ended) == 4 and sum(note == "text" for _, _, note in watcher.results) == len(watcher.results) >= 12
assert os.path.exists(os.path.join(best.path, "progress.csv")) and os.path.exists(
    os.path.join(best.path, "params.json")
)
print("passed")
