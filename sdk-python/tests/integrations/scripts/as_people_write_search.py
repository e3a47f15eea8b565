"""Optuna with a limit, a user-defined searcher, stoppers, budgets and errors."""

import time

from outbid import train, tune
from outbid.air import session
from outbid.tune.search import ConcurrencyLimiter, Searcher
from outbid.tune.search.optuna import OptunaSearch
from outbid.tune.stopper import CombinedStopper, MaximumIterationStopper, TrialPlateauStopper


def objective(config):
    """Report with the old function."""
    for i in range(20):
        session.report({"score": -((config["x"] - 2) ** 2) + config["deep"]["y"], "step": i})


grid = tune.Tuner(
    objective,
    param_space={"x": tune.uniform(-5, 5), "deep": {"y": tune.randint(0, 3)}, "fixed": [1, 2]},
    tune_config=tune.TuneConfig(
        metric="score",
        mode="max",
        search_alg=ConcurrencyLimiter(OptunaSearch(seed=1, points_to_evaluate=[{"x": 2.0, "deep": {"y": 2}}]), 2),
        num_samples=6,
    ),
    run_config=train.RunConfig(
        name="optuna",
        verbose=0,
        stop=CombinedStopper(MaximumIterationStopper(5), TrialPlateauStopper("score", num_results=4, grace_period=4)),
    ),
).fit()
assert grid.get_best_result().config == {"x": 2.0, "deep": {"y": 2}, "fixed": [1, 2]}
assert len(grid) == 6 and all(r.metrics["training_iteration"] == 4 for r in grid)


class Halves(Searcher):
    """Halves the distance each time."""

    def __init__(self) -> None:
        super().__init__("y", "min")
        self.at, self.waits = 8.0, False

    def suggest(self, trial_id):
        """Wait for the last result."""
        if self.waits:
            return None
        self.waits = True
        return {"x": self.at}

    def on_trial_complete(self, trial_id, result=None, error=False):
        """Continue."""
        self.at, self.waits = result["y"] / 2, False


halved = tune.Tuner(
    lambda config: {"y": config["x"]},
    tune_config=tune.TuneConfig(search_alg=Halves(), num_samples=4),
    run_config=tune.RunConfig(name="halves", verbose=0),
).fit()
assert [r.config["x"] for r in halved] == [8.0, 4.0, 2.0, 1.0], halved


def endless(config):
    """Never end."""
    while True:
        time.sleep(0.05)
        tune.report({"loss": 1.0})


began = time.time()
timed = tune.Tuner(
    endless,
    tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=-1, time_budget_s=3),
    run_config=tune.RunConfig(name="timed", verbose=0),
).fit()
assert time.time() - began < 200 and timed.num_errors == 0

odd = tune.Tuner(
    lambda config: {"loss val/%": config["x"]},
    param_space={"x": tune.grid_search([2, 1])},
    tune_config=tune.TuneConfig(metric="loss val/%", mode="min"),
    run_config=tune.RunConfig(name="odd", verbose=0),
).fit()
assert odd.get_best_result().metrics["loss val/%"] == 1
print("passed")
