"""with_parameters, with_resources, placement groups, contexts, and functions that yield or return."""

import os

import numpy as np
from ray import tune

DATA = np.arange(1000.0)


def train(config, data=None, scale=1, names=()):
    """Use bound objects and the context."""
    context = tune.get_context()
    tune.report(
        {
            "sum": float(data.sum()) * scale * config["k"],
            "names": list(names),
            "array": np.float32(1.5),
            "experiment": context.get_experiment_name(),
            "named": context.get_trial_name().startswith("train_"),
            "id": len(context.get_trial_id()) > 4,
            "dir": os.path.basename(context.get_trial_dir()) == os.path.basename(os.getcwd()),
            "cpus": dict(context.get_trial_resources().required_resources),
        }
    )


bound = tune.with_parameters(train, data=DATA, scale=2, names=("a", "b"))
for name, resources in (
    ("dict", {"cpu": 1}),
    ("group", tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])),
    ("by", lambda config: {"cpu": 1} if config["k"] == 1 else {"cpu": 2}),
):
    grid = tune.Tuner(
        tune.with_resources(bound, resources),
        param_space={"k": tune.grid_search([1, 2])},
        tune_config=tune.TuneConfig(metric="sum", mode="max"),
        run_config=tune.RunConfig(name=name, verbose=0),
    ).fit()
    for r in grid:
        keys = ("sum", "names", "array", "experiment", "named", "id", "dir", "cpus")
        print("=", {k: r.metrics[k] for k in keys}, r.error)


class Bound(tune.Trainable):
    """A class with bound data."""

    def setup(self, config, data=None):
        """Keep the data."""
        self.data = data

    def step(self):
        """Report one element."""
        return {"element": float(self.data[self.iteration]), "done": self.iteration >= 2}


grid = tune.Tuner(tune.with_parameters(Bound, data=DATA * 10), run_config=tune.RunConfig(name="class", verbose=0)).fit()
print("= class", grid[0].metrics_dataframe["element"].tolist(), len(grid))


def last(config):
    """Report, and return a last result."""
    tune.report({"a": 1})
    return {"a": 2, "b": 3}


grid = tune.Tuner(last, run_config=tune.RunConfig(name="last", verbose=0)).fit()
print("= last", grid[0].metrics["a"], grid[0].metrics["b"], len(grid[0].metrics_dataframe))
