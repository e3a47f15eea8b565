"""Samplers: grids, all combinations, fixed parameters, quasi-random, CMA-ES and genetic ones."""

import warnings

import optuna
from optuna import samplers

warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
GRID = {"x": [-50, 0, 50], "y": [-99, 0, 99]}


def objective(trial):
    """Return a paraboloid."""
    return trial.suggest_float("x", -100, 100) ** 2 + trial.suggest_int("y", -100, 100) ** 2


study = optuna.create_study(sampler=samplers.GridSampler(GRID))
study.optimize(objective, n_jobs=1)  # two at once may both take the last point
print("= grid", sorted((t.params["x"], t.params["y"]) for t in study.trials), study.best_params)


def tree(trial):
    """Suggest in branches."""
    if trial.suggest_categorical("c", ["float", "int"]) == "float":
        return trial.suggest_float("x", 1, 3, step=0.5)
    return trial.suggest_int("a", 1, 3) + trial.suggest_int("b", 1, 2)


study = optuna.create_study(sampler=samplers.BruteForceSampler())
study.optimize(tree, n_jobs=1)
print("= all", sorted(t.value for t in study.trials))
fixed = samplers.PartialFixedSampler({"y": 7}, samplers.TPESampler(seed=2))
study = optuna.create_study(sampler=fixed)
study.optimize(objective, n_trials=5)
print("= fixed", {t.params["y"] for t in study.trials}, len(study.trials))
for name, sampler in {
    "qmc": samplers.QMCSampler(seed=1),
    "cma": samplers.CmaEsSampler(seed=1, n_startup_trials=1),
    "nsga": samplers.NSGAIIISampler(seed=1, population_size=8),
    "random": samplers.RandomSampler(seed=1),
    "tpe": samplers.TPESampler(seed=1, n_startup_trials=4),
}.items():
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=20, n_jobs=1)
    values = [t.value for t in study.trials]
    print("=", name, len(values), {t.state.name for t in study.trials}, min(values) < 10000, len(set(values)) > 10)
    print("= same", name, study.sampler is sampler)
