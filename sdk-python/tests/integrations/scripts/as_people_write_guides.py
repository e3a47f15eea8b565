"""Large data, resources by configuration, checkpoints at the end, files of loggers, and a replayed PBT policy."""

import glob
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from outbid import tune
from outbid.tune.logger import LoggerCallback
from outbid.tune.schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay

LARGE = np.random.RandomState(0).rand(2_000_000)  # 16 MB, which exceeds the server's messages


def on_data(config, data=None):
    """Use bound data, and data in the space."""
    tune.report({"sum": float(data.sum()) * config["k"], "size": config["table"].size, "cpus": cpus()})


def cpus():
    """Return the CPUs that the trial requested."""
    return tune.get_context().get_trial_resources().required_resources["CPU"]


class Lines(LoggerCallback):
    """Keeps a file in each trial's directory."""

    def log_trial_start(self, trial):
        """Open it."""
        Path(trial.local_path, "lines").write_text("began\n")


grid = tune.Tuner(
    tune.with_resources(
        tune.with_parameters(on_data, data=LARGE), lambda config: {"cpu": 2} if config["k"] == 2 else {"cpu": 1}
    ),
    param_space={"k": tune.grid_search([1, 2]), "table": LARGE},
    tune_config=tune.TuneConfig(metric="sum", mode="max"),
    run_config=tune.RunConfig(name="large", verbose=0, callbacks=[Lines()]),
).fit()
assert not grid.errors, grid.errors
assert abs(grid.get_best_result().metrics["sum"] - 2 * LARGE.sum()) < 1e-3
assert [r.metrics["size"] for r in grid] == [LARGE.size] * 2 and [r.metrics["cpus"] for r in grid] == [1, 2]
assert grid[0].config["table"] is LARGE
assert all(Path(r.path, "lines").read_text() == "began\n" for r in grid)


class Counter(tune.Trainable):
    """Counts, and saves when configured."""

    def setup(self, config):
        """Begin."""
        self.n = 0

    def step(self):
        """Count."""
        self.n += 1
        return {"n": self.n, "should_checkpoint": self.n == 3}

    def save_checkpoint(self, checkpoint_dir):
        """Return a dict."""
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        """Restore the count."""
        self.n = checkpoint["n"]


ended = tune.Tuner(
    Counter,
    run_config=tune.RunConfig(
        name="ended",
        verbose=0,
        stop={"training_iteration": 5},
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
    ),
).fit()
assert [m["n"] for _, m in ended[0].best_checkpoints] == [3, 5], ended[0].best_checkpoints


def climb(config):
    """Add the learning rate in each step, starting from the checkpoint."""
    total, step = 0.0, 0
    if checkpoint := tune.get_checkpoint():
        total, step = json.loads(Path(checkpoint.path, "state").read_text())
    while True:
        total, step = total + config["lr"], step + 1
        with tempfile.TemporaryDirectory() as place:
            Path(place, "state").write_text(json.dumps([total, step]))
            tune.report({"total": total, "lr": config["lr"]}, checkpoint=tune.Checkpoint.from_directory(place))


population = tune.Tuner(
    climb,
    param_space={"lr": tune.grid_search([0.001, 0.01, 0.02, 0.05])},
    tune_config=tune.TuneConfig(
        scheduler=PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=3,
            metric="total",
            mode="max",
            quantile_fraction=0.5,
            hyperparam_mutations={"lr": tune.uniform(0.05, 0.1)},
        )
    ),
    run_config=tune.RunConfig(name="population", verbose=0, stop={"training_iteration": 12}),
).fit()
assert not population.errors, population.errors
policy = glob.glob(os.path.join(population.experiment_path, "pbt_policy_*.txt"))[0]
replay = PopulationBasedTrainingReplay(policy)
again = tune.Tuner(
    climb,
    tune_config=tune.TuneConfig(scheduler=replay),
    run_config=tune.RunConfig(name="replay", verbose=0, stop={"training_iteration": 12}),
).fit()
assert not again.errors, again.errors
rates = list(again[0].metrics_dataframe["lr"])
lines = [json.loads(line) for line in Path(policy).read_text().splitlines()]
assert len(rates) == 12 and rates[0] == replay.config["lr"] and rates[-1] == lines[-1][5]["lr"], (rates, lines)
print("passed")
