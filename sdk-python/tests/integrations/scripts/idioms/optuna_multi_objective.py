"""Two objectives with names and constraints, and the front of the best."""

import warnings

import optuna

warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)


def objective(trial):
    """Return Binh and Korn's function."""
    x, y = trial.suggest_float("x", 0, 5), trial.suggest_float("y", 0, 3)
    trial.set_user_attr("constraint", ((x - 5) ** 2 + y**2 - 25, 7.7 - (x - 8) ** 2 - (y + 3) ** 2))
    return 4 * x**2 + 4 * y**2, (x - 5) ** 2 + (y - 5) ** 2


def constraints(trial):
    """Return the constraints."""
    return trial.user_attrs["constraint"]


sampler = optuna.samplers.NSGAIISampler(population_size=10, constraints_func=constraints, seed=2)
study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
study.set_metric_names(["first", "second"])
for x in range(5):
    study.enqueue_trial({"x": x, "y": x / 2})
study.optimize(objective, n_trials=60)
print("= trials", len(study.trials), study.directions, study.metric_names)
front = study.best_trials
print("= front", len(front) >= 3, all(max(t.user_attrs["constraint"]) <= 0 for t in front), type(front[0].values))
print("= columns", [c for c in study.trials_dataframe().columns if c.startswith("values")])
for broken in ("best_trial", "best_value", "direction"):
    try:
        getattr(study, broken)
    except RuntimeError as error:
        print("=", broken, error)


def pruning(trial):
    """Report, which is for one objective only."""
    try:
        trial.report(1.0, 0)
    except NotImplementedError as error:
        trial.set_user_attr("error", str(error))
    return 1.0, 2.0


study = optuna.create_study(directions=["minimize", "maximize"])
study.optimize(pruning, n_trials=1)
print("= report", study.trials[-1].user_attrs["error"])
