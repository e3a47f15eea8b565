"""Callbacks for the training loops of other libraries, which report to a trial, save when needed, and end it.

    def train(trial):
        xgboost.train(
            {"eta": trial.config.eta}, data, num_boost_round=100, evals=[(held_out, "valid")],
            xgb_model=trial.checkpoint(), callbacks=[ob.callbacks.xgboost(trial)],
        )

Every value that the library measures is reported under the library's name, and also under the names that `metric=` maps
to it. When the trial should stop or pause, `ob.StopTrial` is raised in the library's loop; do not catch it. If the
library ends training by itself, such as by early stopping, the current model is saved. Cross-validation (`xgboost.cv`,
`lightgbm.cv`) is reported per round and saves nothing, because its models cannot continue training. `trial.steps()` is
not needed with these callbacks: a step is a boosting round, an epoch or an evaluation.
"""

from __future__ import annotations

from outbid.integrations.frameworks import keras, lightgbm, lightning, load_keras, load_torch, transformers, xgboost

__all__ = ["keras", "lightgbm", "lightning", "load_keras", "load_torch", "transformers", "xgboost"]
