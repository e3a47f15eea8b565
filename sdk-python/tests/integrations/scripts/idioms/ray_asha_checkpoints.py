"""A function with checkpoints under ASHA, one trial at a time."""

import json
import os
import tempfile

from ray import tune
from ray.tune import Checkpoint
from ray.tune.schedulers import ASHAScheduler


def train(config):
    """Fall to the learning rate's distance from 0.1."""
    start = 1
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as place, open(os.path.join(place, "state.json")) as file:
            start = json.load(file)["epoch"] + 1
    for epoch in range(start, 10):
        with tempfile.TemporaryDirectory() as place:
            with open(os.path.join(place, "state.json"), "w") as file:
                json.dump({"epoch": epoch, "lr": config["lr"]}, file)
            loss = abs(config["lr"] - 0.1) + 1 / epoch
            tune.report({"loss": loss, "epoch": epoch}, checkpoint=Checkpoint.from_directory(place))


grid = tune.Tuner(
    train,
    param_space={"lr": tune.grid_search([0.1, 0.2, 0.4, 0.3, 0.05, 0.5, 0.11])},
    tune_config=tune.TuneConfig(
        metric="loss",
        mode="min",
        scheduler=ASHAScheduler(time_attr="epoch", max_t=9, grace_period=1, reduction_factor=3),
        max_concurrent_trials=1,
    ),
    run_config=tune.RunConfig(
        name="asha",
        checkpoint_config=tune.CheckpointConfig(
            num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
        ),
        verbose=0,
    ),
).fit()
print("= epochs", [(r.config["lr"], r.metrics["epoch"], r.metrics["done"]) for r in grid])
best = grid.get_best_result()
print("= best", best.config, round(best.metrics["loss"], 6), [round(m["loss"], 6) for _, m in best.best_checkpoints])
with best.checkpoint.as_directory() as place, open(os.path.join(place, "state.json")) as file:
    print("= state", json.load(file))
again = best.get_best_checkpoint(metric="loss", mode="min")
print("= again", os.path.basename(again.path), os.path.basename(best.checkpoint.path))
print("= rows", [len(r.metrics_dataframe) for r in grid])
