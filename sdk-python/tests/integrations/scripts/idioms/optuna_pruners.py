"""Each pruner judges the same learning curves."""

import optuna
from optuna.pruners import (
    HyperbandPruner,
    MedianPruner,
    NopPruner,
    PatientPruner,
    PercentilePruner,
    SuccessiveHalvingPruner,
    ThresholdPruner,
)

optuna.logging.set_verbosity(optuna.logging.ERROR)


def objective(trial):
    """Report a curve that falls to x."""
    x = trial.suggest_float("x", 0, 1)
    for step in range(9):
        loss = x + 1 / (step + 1)
        trial.report(loss, step)
        if trial.should_prune():
            raise optuna.TrialPruned(f"at {step}")
    return loss


PRUNERS = {
    "median": MedianPruner(n_startup_trials=2, n_warmup_steps=2, interval_steps=2),
    "percentile": PercentilePruner(25.0, n_startup_trials=1),
    "halving": SuccessiveHalvingPruner(min_resource=1, reduction_factor=3, min_early_stopping_rate=0),
    "hyperband": HyperbandPruner(min_resource=1, max_resource=9, reduction_factor=3),
    "threshold": ThresholdPruner(upper=1.45, n_warmup_steps=1),
    "patient": PatientPruner(MedianPruner(n_startup_trials=1), patience=1),
    "none": NopPruner(),
}
for name, pruner in PRUNERS.items():
    study = optuna.create_study(study_name=name, pruner=pruner)
    for x in (0.5, 0.3, 0.9, 0.1, 0.7, 0.2, 0.6, 0.05):
        study.enqueue_trial({"x": x})
    study.optimize(objective, n_trials=8, n_jobs=1)
    print("=", name, [(t.state.name[0], t.last_step, round(t.value, 3)) for t in study.trials], study.best_trial.number)
