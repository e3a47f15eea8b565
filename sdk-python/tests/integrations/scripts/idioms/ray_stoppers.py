"""Stoppers of all kinds."""

import time

from ray import tune
from ray.tune.stopper import (
    CombinedStopper,
    ExperimentPlateauStopper,
    FunctionStopper,
    MaximumIterationStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)


def train(config):
    """Report for long."""
    for step in range(30):
        tune.report({"score": min(step, config["cap"]), "deep": {"step": step}})


class AtTheFirst(Stopper):
    """Ends all trials when one reaches 5."""

    def __init__(self):
        self.over = False

    def __call__(self, trial_id, result):
        """See a result."""
        self.over = self.over or result["score"] >= 5
        return self.over

    def stop_all(self):
        """Return whether it is over."""
        return self.over


def fit(name, stop, **more):
    """Print how long each trial ran."""
    grid = tune.Tuner(
        train,
        param_space={"cap": tune.grid_search([2, 8])},
        tune_config=tune.TuneConfig(metric="score", mode="max", max_concurrent_trials=1, **more),
        run_config=tune.RunConfig(name=name, stop=stop, verbose=0),
    ).fit()
    rows = [(r.config["cap"], r.metrics["training_iteration"], r.metrics["score"]) for r in grid if r.metrics]
    print("=", name, rows, grid.num_errors, grid.num_terminated)


fit("dict", {"score": 6, "training_iteration": 12})
fit("nested", {"deep/step": 4})
fit("maximum", MaximumIterationStopper(max_iter=3))
fit("function", lambda trial_id, result: result["score"] > 6 or result["training_iteration"] == 9)
fit("FunctionStopper", FunctionStopper(lambda trial_id, result: result["deep"]["step"] >= 2))
fit("plateau", TrialPlateauStopper("score", std=0.01, num_results=3, grace_period=3))
fit("combined", CombinedStopper(MaximumIterationStopper(20), TrialPlateauStopper("score", num_results=4)))
fit("list", [MaximumIterationStopper(5), TimeoutStopper(600)])
fit("own", AtTheFirst())
fit("experiment", ExperimentPlateauStopper("score", mode="max", top=2, std=0.1, patience=2))
began = time.time()
fit("none", None)
print("= soon", time.time() - began < 60)
