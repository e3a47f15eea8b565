"""Search algorithms: Optuna with points and a separate space, limits, repeats, and an algorithm of the script."""

import optuna
from ray import tune
from ray.tune.search import ConcurrencyLimiter, Repeater, Searcher
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.tune.search.optuna import OptunaSearch


def objective(config):
    """Report a paraboloid."""
    for step in range(3):
        tune.report({"loss": (config["x"] - 3) ** 2 + config.get("y", 0) + 1 / (step + 1), "step": step})


def fit(name, algorithm, samples, **space):
    """Run an experiment."""
    grid = tune.Tuner(
        objective,
        param_space=space or None,
        tune_config=tune.TuneConfig(metric="loss", mode="min", search_alg=algorithm, num_samples=samples),
        run_config=tune.RunConfig(name=name, verbose=0),
    ).fit()
    print("=", name, len(grid), grid.num_errors, sorted(grid[0].config))
    return grid


points = OptunaSearch(points_to_evaluate=[{"x": 3.0, "y": 0}, {"x": 1.0, "y": 2}], seed=1)
grid = fit("optuna", points, 6, x=tune.uniform(0, 10), y=tune.randint(0, 3))
print("= points", [r.config for r in grid][:2], grid.get_best_result().config)


def define(trial):
    """Define by run."""
    if trial.suggest_categorical("kind", ["a", "b"]) == "a":
        trial.suggest_float("x", 0, 1)
    else:
        trial.suggest_float("x", 5, 6)
    return {"extra": 4}


grid = tune.Tuner(
    objective,
    tune_config=tune.TuneConfig(
        search_alg=OptunaSearch(space=define, metric="loss", mode="min", sampler=optuna.samplers.RandomSampler(seed=2)),
        num_samples=8,
    ),
    run_config=tune.RunConfig(name="define", verbose=0),
).fit()
print("= define", len(grid), all(r.config["x"] <= 1 or r.config["x"] >= 5 for r in grid), grid[0].config["extra"])
limited = ConcurrencyLimiter(OptunaSearch(sampler=optuna.samplers.TPESampler(seed=1)), max_concurrent=1)
grid = fit("limited", limited, 8, x=tune.uniform(0, 10), fixed=5)
print("= configs", [r.config["x"] for r in grid])


class Counts(Searcher):
    """Suggests 0, 1, 2 and remembers the results."""

    def __init__(self, metric="loss", mode="min"):
        super().__init__(metric=metric, mode=mode)
        self.n, self.done = -1, {}

    def suggest(self, trial_id):
        """Suggest the next number; four are enough."""
        self.n += 1
        return {"x": self.n // 2} if self.n < 8 else Searcher.FINISHED

    def on_trial_complete(self, trial_id, result=None, error=False):
        """Remember."""
        self.done[trial_id] = result["loss"]


counts = Counts()
grid = fit("own", counts, -1)
print("= own", sorted(r.config["x"] for r in grid), len(counts.done), min(counts.done.values()) > 0)
grid = fit("repeated", Repeater(Counts(), repeat=2, set_index=True), 4)
print("= repeated", sorted((r.config["x"], r.config["__trial_index__"]) for r in grid))
basic = BasicVariantGenerator(points_to_evaluate=[{"x": 1.5}], max_concurrent=1, random_state=7)
grid = fit("basic", basic, 3, x=tune.uniform(0, 10))
print("= basic", [r.config["x"] for r in grid])
