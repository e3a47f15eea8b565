"""Callbacks: one ends the study after five trials without progress, another keeps a history."""

import optuna

optuna.logging.set_verbosity(optuna.logging.WARNING)


class EarlyStopping:
    """Ends a study that makes no progress."""

    def __init__(self, patience):
        self.patience, self.best, self.since = patience, float("inf"), 0

    def __call__(self, study, trial):
        """Count trials since the best one."""
        if study.best_value < self.best:
            self.best, self.since = study.best_value, 0
        else:
            self.since += 1
        if self.since >= self.patience:
            study.stop()


history = []


def record(study, trial):
    """Keep what a trial found."""
    history.append((trial.number, trial.value, study.best_trial.number, trial.user_attrs["square"]))
    study.set_user_attr("last", trial.number)


def objective(trial):
    """Return the queued value."""
    x = trial.suggest_float("x", 0, 10)
    trial.set_user_attr("square", x**2)
    return x


study = optuna.create_study()
for value in (9.0, 4.0, 6.0, 2.0, 3.0, 3.0, 3.0, 3.0, 5.0, 1.0):
    study.enqueue_trial({"x": value})
study.optimize(objective, n_trials=50, n_jobs=1, callbacks=[EarlyStopping(5), record])
done = [t for t in study.trials if t.state.is_finished()]
print("= trials", [t.value for t in done], study.best_trial.number)
print("= waiting", [t.system_attrs["fixed_params"] for t in study.trials if t.state.name == "WAITING"])
print("= history", history, study.user_attrs["last"])
