"""A study in a journal that several loops continue, with a heartbeat of none."""

import os
import tempfile

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

optuna.logging.set_verbosity(optuna.logging.ERROR)
path = os.path.join(tempfile.mkdtemp(), "journal.log")
storage = JournalStorage(JournalFileBackend(path, lock_obj=JournalFileOpenLock(path)))
study = optuna.create_study(study_name="journal", storage=storage, direction="maximize")


def objective(trial):
    """Use numbers of all kinds."""
    n = trial.suggest_int("n", 1, 64, log=True)
    x = trial.suggest_float("x", 0, 1, step=0.25)
    flag = trial.suggest_categorical("flag", [True, False, None])
    trial.set_user_attr("info", {"n": n, "list": [1, 2, None]})
    return n * x if flag else float(x)


study.optimize(objective, n_trials=8, n_jobs=2)
study.optimize(objective, n_trials=8, n_jobs=1)
other = optuna.load_study(
    study_name="journal", storage=JournalStorage(JournalFileBackend(path, lock_obj=JournalFileOpenLock(path)))
)
print("= trials", len(other.trials), {t.state.name for t in other.trials}, other.best_value == study.best_value)
print("= attrs", all(t.user_attrs["info"]["n"] == t.params["n"] for t in other.trials))
print("= steps", all(t.params["x"] % 0.25 == 0 for t in other.trials))
print("= flags", {t.params["flag"] for t in other.trials} <= {True, False, None})
