"""PBT over a function with checkpoints: the perturbed rates and the population afterwards."""

import json
import os
import random
import tempfile

from ray import tune
from ray.tune import Checkpoint
from ray.tune.schedulers import PopulationBasedTraining

random.seed(3)


def train(config):
    """Add the rate in each step."""
    total, step = 0.0, 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as place, open(os.path.join(place, "state")) as file:
            total, step = json.load(file)
    while True:
        step += 1
        total += config["rate"]
        with tempfile.TemporaryDirectory() as place:
            with open(os.path.join(place, "state"), "w") as file:
                json.dump([total, step], file)
            saved = Checkpoint.from_directory(place) if step % 2 == 0 else None
            tune.report({"total": total, "step": step, "rate": config["rate"]}, checkpoint=saved)


def explore(config):
    """Keep the rate within bounds."""
    config["rate"] = min(max(config["rate"], 0.0), 1.0)
    return config


scheduler = PopulationBasedTraining(
    time_attr="training_iteration",
    perturbation_interval=2,
    quantile_fraction=0.25,
    resample_probability=0.5,
    hyperparam_mutations={"rate": tune.uniform(0.0, 1.0)},
    custom_explore_fn=explore,
)
grid = tune.Tuner(
    train,
    param_space={"rate": tune.grid_search([0.01, 0.2, 0.5, 0.9]), "other": 1},
    tune_config=tune.TuneConfig(metric="total", mode="max", scheduler=scheduler, reuse_actors=False),
    run_config=tune.RunConfig(name="pbt", stop={"training_iteration": 12}, verbose=0),
).fit()
print("= population", len(grid), grid.num_errors, [r.metrics["training_iteration"] for r in grid])
totals = [r.metrics["total"] for r in grid]
print("= better", min(totals) > 0.5, max(totals) >= 10.8 - 1e-9)
print("= within", all(0 <= r.config["rate"] <= 1 for r in grid), grid.get_best_result().config["other"])
files = os.listdir(grid.experiment_path)
print("= files", "pbt_global.txt" in files, any(f.startswith("pbt_policy") for f in files))
