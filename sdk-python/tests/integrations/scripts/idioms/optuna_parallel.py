"""Two jobs, a class as an objective, a partial function, and a limit of time."""

import functools
import time

import numpy as np
import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)


class Objective:
    """An objective with data."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __call__(self, trial):
        """Return the error of a line."""
        slope, offset = trial.suggest_float("slope", -3, 3), trial.suggest_float("offset", -3, 3)
        return float(np.mean((slope * self.x + offset - self.y) ** 2))


x = np.linspace(0, 1, 50)
study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1, n_startup_trials=5, constant_liar=True))
study.optimize(Objective(x, 2 * x - 1), n_trials=40, n_jobs=2)
print("= class", len(study.trials), {t.state.name for t in study.trials}, study.best_value < 1)


def bound(trial, low, high):
    """Return x within bounds."""
    return trial.suggest_float("x", low, high)


study = optuna.create_study(direction="maximize")
study.optimize(functools.partial(bound, low=1, high=2), n_trials=5)
study.optimize(lambda trial: bound(trial, 1, 2), n_trials=5, gc_after_trial=True)
print("= bound", len(study.trials), 1 <= study.best_value <= 2)


def slow(trial):
    """Wait."""
    time.sleep(0.05)
    return trial.suggest_float("x", 0, 1)


study = optuna.create_study()
began = time.time()
study.optimize(slow, timeout=1.0)
print("= timeout", 2 <= len(study.trials) <= 60, time.time() - began < 30)
study.optimize(slow, n_trials=3, timeout=600)
print("= both", sum(t.state.name == "COMPLETE" for t in study.trials) >= 3)


def nested(trial):
    """Run another study, with Optuna."""
    inner = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=trial.number))
    deep = trial.suggest_int("depth", 1, 3)
    inner.optimize(lambda t: t.suggest_float("z", 0, deep), n_trials=3)
    return inner.best_value


outer_study = optuna.create_study()
outer_study.optimize(nested, n_trials=3)
print("= nested", len(outer_study.trials), {t.state.name for t in outer_study.trials})
