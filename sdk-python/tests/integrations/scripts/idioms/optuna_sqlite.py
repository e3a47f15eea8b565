"""A study in SQLite that is created, continued, summed up, copied and deleted."""

import os
import tempfile

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
place = tempfile.mkdtemp()
storage = f"sqlite:///{place}/example.db"


def objective(trial):
    """Save a model in a file, and return a loss."""
    x = trial.suggest_float("x", -10, 10)
    with open(os.path.join(place, f"model_{trial.number}.txt"), "w") as file:
        file.write(str(x))
    return (x - 2) ** 2


for _ in range(2):
    study = optuna.create_study(study_name="kept", storage=storage, load_if_exists=True)
    study.optimize(objective, n_trials=6)
again = optuna.load_study(study_name="kept", storage=storage)
print("= loaded", len(again.trials), again.best_params == study.best_params, {t.state.name for t in again.trials})
with open(os.path.join(place, f"model_{again.best_trial.number}.txt")) as file:
    print("= model", float(file.read()) == again.best_params["x"], len(os.listdir(place)))
try:
    optuna.create_study(study_name="kept", storage=storage)
except optuna.exceptions.DuplicatedStudyError as error:
    print("= twice", type(error).__name__)
summary = optuna.get_all_study_summaries(storage=storage)[0]
print("= summary", summary.study_name, summary.n_trials, summary.best_trial.value == study.best_value)
optuna.copy_study(from_study_name="kept", from_storage=storage, to_storage=storage, to_study_name="copy")
copied_study = optuna.load_study(study_name="copy", storage=storage)
copied_study.optimize(objective, n_trials=2)
print("= copied", len(copied_study.trials), optuna.get_all_study_names(storage=storage))
optuna.delete_study(study_name="copy", storage=storage)
print("= left", optuna.get_all_study_names(storage=storage))
