"""The callbacks for other libraries' training loops: they report, are pruned, and go on from what was saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import outbid as ob

ROUNDS = 9


def boost_xgboost(trial: ob.Trial) -> None:
    """Train as XGBoost's users write it, from a checkpoint on if there is one."""
    import xgboost
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    x, held, y, right = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
    start = trial.checkpoint()
    trial.note(started=trial.start_step, held=start.num_boosted_rounds() if start else 0)
    xgboost.train(
        {"objective": "binary:logistic", "eta": trial.config.eta, "nthread": 1},
        xgboost.DMatrix(x, y),
        num_boost_round=ROUNDS - trial.start_step,
        evals=[(xgboost.DMatrix(held, right), "valid")],
        verbose_eval=False,
        xgb_model=start,
        callbacks=[ob.callbacks.xgboost(trial, metric={"loss": "valid-logloss"})],
    )


def boost_lightgbm(trial: ob.Trial) -> None:
    """Train as LightGBM's users write it, from a checkpoint on if there is one."""
    import lightgbm
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    x, held, y, right = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
    data = lightgbm.Dataset(x, y, free_raw_data=False)
    start = trial.checkpoint()
    trial.note(started=trial.start_step, held=start.current_iteration() if start else 0)
    lightgbm.train(
        {"objective": "binary", "learning_rate": trial.config.eta, "num_threads": 1, "verbose": -1},
        data,
        num_boost_round=ROUNDS - trial.start_step,
        valid_sets=[lightgbm.Dataset(held, right, reference=data, free_raw_data=False)],
        valid_names=["valid"],
        init_model=start,
        callbacks=[ob.callbacks.lightgbm(trial, metric={"loss": "valid-binary_logloss"})],
    )


@pytest.mark.parametrize("train", [boost_xgboost, boost_lightgbm])
def test_boosters_are_paused_pruned_and_go_on(real: ob.Client, train: Callable[[ob.Trial], Any]) -> None:
    """Successive halving pauses everybody at rungs of 1 and 3 rounds, and the best go on from what they saved."""
    tuner = ob.SuccessiveHalving(max_steps=ROUNDS, trials=9, eta=3, seed=0)
    sweep = ob.Sweep(train, {"eta": ob.loguniform(0.01, 0.5)}, metric="loss", mode="min", tuner=tuner, concurrency=2)
    result = sweep.run(client=real, display=False, timeout=150)
    assert sorted(t.step for t in result.trials) == [1, 1, 1, 1, 1, 1, 3, 3, 9]
    assert result.best.step == ROUNDS and 0 < (result.best.metric or 0) < 0.5
    went_on = [t for t in result.trials if t.step > 1]
    # The last at a rung may go on at once, in the process where it is: it notes only that it began with nothing.
    assert all(t.attributes["started"] == t.attributes["held"] for t in went_on), "they go on from their boosters"
    assert any(t.attributes["held"] > 0 for t in went_on), "one at least goes on from its booster"
    steps = [r.step for r in result.reports() if r.trial == result.best.number]
    assert steps == list(range(1, ROUNDS + 1))
    assert "valid-logloss" in result.best.metrics or "valid-binary_logloss" in result.best.metrics
