"""Queued trials, trials from elsewhere, and calls of a study in its objective."""

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial

optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(study_name="enqueue", sampler=optuna.samplers.TPESampler(seed=0))
study.set_user_attr("contributors", ["Akiba", "Sano"])
study.add_trial(
    create_trial(
        params={"x": 2.0, "kind": "a"},
        distributions={"x": FloatDistribution(0, 10), "kind": CategoricalDistribution(("a", "b"))},
        value=4.0,
        user_attrs={"from": "elsewhere"},
    )
)
study.enqueue_trial({"x": 1.0}, user_attrs={"memo": "partly"})
study.enqueue_trial({"x": 5.0, "kind": "b"})
study.enqueue_trial({"x": 5.0, "kind": "b"}, skip_if_exists=True)
study.enqueue_trial({"x": 30.0, "kind": "b"})  # outside of the range


def objective(trial):
    """Look at the study and at the trial."""
    x = trial.suggest_float("x", 0, 10)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    seen = [t.number for t in trial.study.get_trials(states=(TrialState.COMPLETE,))]
    trial.set_user_attr("seen", seen)
    trial.set_user_attr("best", trial.study.best_value)
    trial.set_user_attr("mine", [trial.number, trial.params == {"x": x, "kind": kind}, trial.relative_params])
    trial.set_user_attr("when", trial.datetime_start is not None)
    trial.set_user_attr("names", sorted(trial.distributions))
    trial.set_user_attr("people", trial.study.user_attrs["contributors"])
    trial.set_user_attr("direction", trial.study.direction.name)
    return x**2


study.optimize(objective, n_trials=4, n_jobs=1)
for t in study.trials:
    attrs = {k: v for k, v in t.user_attrs.items() if k != "outbid"}
    fixed = t.system_attrs.get("fixed_params")
    print("=", t.number, t.state.name, t.params["x"] if t.number < 3 else "", sorted(t.params), attrs, fixed)
print("= best", study.best_trial.number, study.best_params["x"], study.study_name, sorted(study.user_attrs))
