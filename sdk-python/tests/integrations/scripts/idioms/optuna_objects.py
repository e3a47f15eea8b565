"""Stops from the objective, study attributes, artifacts, reproducible choices, and categories of any kind."""

import os
import tempfile

import numpy as np
import optuna
from optuna.artifacts import FileSystemArtifactStore, download_artifact, get_all_artifact_meta, upload_artifact

optuna.logging.set_verbosity(optuna.logging.ERROR)
place = tempfile.mkdtemp()
os.makedirs(os.path.join(place, "artifacts"))
store = FileSystemArtifactStore(os.path.join(place, "artifacts"))


def square(x):
    """Return the square."""
    return x * x


def objective(trial):
    """Use functions and tuples as categories, and keep an array, a model and a file."""
    function = trial.suggest_categorical("function", [square, abs, np.tanh])
    layers = trial.suggest_categorical("layers", [(50,), (100, 50), ()])
    x = trial.suggest_float("x", -2, 2)
    path = os.path.join(place, f"{trial.number}.txt")
    with open(path, "w") as file:
        file.write(str(len(layers)))
    trial.set_user_attr("artifact", upload_artifact(artifact_store=store, file_path=path, study_or_trial=trial))
    trial.set_user_attr("weights", np.full(3, x))
    trial.set_user_attr("layers", layers)
    trial.study.set_user_attr("objective", "ran")
    if trial.number == 9:
        trial.study.stop()
    return float(function(x)) + len(layers)


study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=4))
study.enqueue_trial({"function": abs, "layers": (), "x": -0.5})
study.optimize(objective, n_trials=30, n_jobs=1)
print("= trials", len(study.trials), study.user_attrs)
first = study.trials[0]
print("= first", first.value, first.params["function"] is abs, first.params["layers"] == ())
best = study.best_trial
print("= best", best.user_attrs["weights"].tolist() == [best.params["x"]] * 3, type(best.user_attrs["layers"]).__name__)
print("= categories", all(isinstance(t.params["layers"], tuple) for t in study.trials))
print("= functions", {t.params["function"] for t in study.trials} <= {square, abs, np.tanh})
(meta,) = get_all_artifact_meta(best, storage=study._storage)
download_artifact(artifact_store=store, artifact_id=meta.artifact_id, file_path=os.path.join(place, "down"))
print("= artifact", meta.filename == f"{best.number}.txt", meta.artifact_id == best.user_attrs["artifact"])
with open(os.path.join(place, "down")) as file:
    print("= content", int(file.read()) == len(best.params["layers"]))
