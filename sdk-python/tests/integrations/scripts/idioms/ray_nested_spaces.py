"""Nested spaces with grids, samples, dependent values and constants; seeds draw the same again."""

import random

import numpy as np
from ray import tune

np.random.seed(11)
random.seed(11)


def train(config):
    """Report one value."""
    tune.report({"score": config["model"]["width"] * config["lr"] + config["layers"][0]})


space = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "model": {
        "width": tune.grid_search([16, 32]),
        "act": tune.choice(["relu", "tanh"]),
        "double": tune.sample_from(lambda spec: spec.config.model.width * 2),
    },
    "layers": [tune.randint(1, 5), tune.quniform(0, 1, 0.25), "last"],
    "seed": tune.grid_search([0, 1]),
    "q": tune.qrandint(10, 100, 10),
    "n": tune.randn(0, 1),
    "own": tune.sample_from(lambda _: random.choice([7])),
    "constant": {"tuple": (1, 2), "none": None},
}
grid = tune.Tuner(
    train,
    param_space=space,
    tune_config=tune.TuneConfig(metric="score", mode="max", num_samples=3),
    run_config=tune.RunConfig(name="nested", verbose=0),
).fit()
print("= trials", len(grid), grid.num_errors)
for result in grid:
    print("=", result.config)
print("= best", round(grid.get_best_result().metrics["score"], 9))
