"""A callback that records all of its calls, and the loggers' files."""

import collections
import csv
import json
import os

from ray import tune
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback

calls = collections.Counter()
order = []


class Recorder(tune.Callback):
    """Counts calls."""

    def setup(self, **info):
        """Record the start."""
        calls["setup"] += 1

    def on_step_begin(self, iteration, trials, **info):
        """Record a step."""
        calls["step"] = 1

    def on_trial_start(self, iteration, trials, trial, **info):
        """Record a start."""
        calls["start"] += 1
        order.append(("start", trial.config["x"]))

    def on_trial_result(self, iteration, trials, trial, result, **info):
        """Record a result."""
        calls["result"] += 1
        order.append(("result", trial.config["x"], result["y"], result["training_iteration"]))

    def on_trial_complete(self, iteration, trials, trial, **info):
        """Record an end."""
        calls["complete"] += 1
        order.append(("complete", trial.config["x"], trial.last_result["y"]))

    def on_trial_error(self, iteration, trials, trial, **info):
        """Record a failure."""
        calls["error"] += 1
        order.append(("error", trial.config["x"], trial.status))

    def on_checkpoint(self, iteration, trials, trial, checkpoint, **info):
        """Record a checkpoint."""
        calls["checkpoint"] += 1

    def on_experiment_end(self, trials, **info):
        """Record the end."""
        calls["end"] += 1
        order.append(("end", len(trials)))


def train(config):
    """Report two results; the third trial fails after one."""
    for i in range(2):
        tune.report({"y": config["x"] * (i + 1), "deep": {"list": [i], "none": None}})
        if config["x"] == 3:
            raise RuntimeError("three")


grid = tune.Tuner(
    train,
    param_space={"x": tune.grid_search([1, 2, 3])},
    tune_config=tune.TuneConfig(metric="y", mode="max", max_concurrent_trials=1),
    run_config=tune.RunConfig(
        name="calls", callbacks=[Recorder(), JsonLoggerCallback(), CSVLoggerCallback()], verbose=0
    ),
).fit()
print("= calls", sorted(calls.items()))
for x in (1, 2, 3):
    print("=", [line[0:1] + line[2:] for line in order if line[0] != "end" and line[1] == x])
print("= last", order[-1])
print("= errors", grid.num_errors, [isinstance(e, RuntimeError) and "three" in str(e) for e in grid.errors])
for result in grid:
    with open(os.path.join(result.path, "result.json")) as file:
        print("= json", [(r["y"], r["deep"]) for r in map(json.loads, file)])
    with open(os.path.join(result.path, "progress.csv")) as file:
        rows = list(csv.DictReader(file))
        print("= csv", [r["y"] for r in rows], sorted(k for k in rows[0] if k.startswith("deep")))
    print("= files", os.path.exists(os.path.join(result.path, "error.txt")))
