"""Exceptions and return values of an objective, with and without `catch`."""

import warnings

import optuna

warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.CRITICAL)


def objective(trial):
    """Do what the number of the trial says."""
    x = trial.suggest_int("x", 0, 20)
    trial.report(0.5, 1)
    trial.report(0.25, 1)  # ignored, as step 1 was reported
    if x == 1:
        raise ValueError("one")
    if x == 2:
        raise optuna.TrialPruned
    if x == 3:
        raise optuna.exceptions.TrialPruned("with a reason")
    return {4: float("nan"), 5: None, 7: [], 8: float("-inf"), 9: True, 10: (1.0,), 11: [1, 2]}.get(x, x)


study = optuna.create_study()
for x in range(13):
    study.enqueue_trial({"x": x})
study.optimize(objective, n_trials=13, n_jobs=1, catch=(ValueError,))
for t in study.trials:
    print("=", t.number, t.state.name, t.value, t.intermediate_values)
print("= best", study.best_trial.number, study.best_value)


def twice(trial):
    """Suggest one name twice, with other ranges."""
    a, b = trial.suggest_float("a", 0, 1), trial.suggest_float("a", 0, 1)
    trial.set_user_attr("same", a == b)
    try:
        trial.suggest_int("a", 0, 1)
    except ValueError as error:
        trial.set_user_attr("error", type(error).__name__)
    try:
        trial.suggest_float("c", 1, 0)
    except ValueError as error:
        trial.set_user_attr("range", str(error)[:30])
    return a


study = optuna.create_study()
study.optimize(twice, n_trials=2)
print("= twice", [{k: v for k, v in t.user_attrs.items() if k != "outbid"} for t in study.trials])


def changing(trial):
    """Change the categories from trial to trial."""
    trial.suggest_categorical("c", ["a", "b"][: trial.number + 1])
    return 1.0


study = optuna.create_study()
try:
    study.optimize(changing, n_trials=3, n_jobs=1, catch=())
except ValueError as error:
    print("= changing", error, [t.state.name for t in study.trials])
