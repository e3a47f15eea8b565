"""Ask and tell, alone and between two calls of optimize."""

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=3))


def objective(trial):
    """Return what x is worth."""
    return 1 - (trial.suggest_float("x", -1, 1) - 0.5) ** 2


study.optimize(objective, n_trials=5, n_jobs=1)
distributions = {"x": optuna.distributions.FloatDistribution(-1, 1)}
for _ in range(4):
    trial = study.ask(distributions)
    study.tell(trial, objective(trial))
pruned, failed = study.ask(), study.ask()
study.tell(pruned, state=optuna.trial.TrialState.PRUNED)
study.tell(failed.number, state=optuna.trial.TrialState.FAIL)
study.tell(study.ask({"x": distributions["x"]}), 0.25)
try:
    study.tell(0, 1.0)
except ValueError as error:
    print("= twice", error)
print("= ignored", study.tell(0, 1.0, skip_if_finished=True).number)
study.optimize(objective, n_trials=5, n_jobs=1)
print("= states", [t.state.name for t in study.trials])
print("= numbers", [t.number for t in study.trials], study.best_value <= 1)
