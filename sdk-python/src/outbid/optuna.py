"""Optuna's objectives on Outbid, and Outbid's sweeps in Optuna. Needs the extra outbid[optuna].

    import optuna
    import outbid.optuna

    def objective(trial):
        x = trial.suggest_float("x", -5, 5)
        for step in range(10):
            trial.report(..., step)
            if trial.should_prune():
                raise optuna.TrialPruned()
        return ...

    study = outbid.optuna.optimize(objective, n_trials=100)
    print(study.best_params)

Each trial of the study is a trial of a sweep and runs wherever Outbid has a free device.
"""

from __future__ import annotations

from outbid.integrations.optuna.optimize import optimize, to_study

__all__ = ["optimize", "to_study"]
