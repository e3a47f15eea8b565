"""The callbacks for other libraries' training loops: they report, are pruned, and continue from checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import outbid as ob

ROUNDS = 9


def boost_xgboost(trial: ob.Trial) -> None:
    """Train like XGBoost's users, from a checkpoint if there is one."""
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
    """Train like LightGBM's users, from a checkpoint if there is one."""
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
    """Successive halving pauses all trials at rungs of 1 and 3 rounds; the best continue from their checkpoints."""
    tuner = ob.SuccessiveHalving(max_steps=ROUNDS, trials=9, eta=3, seed=0)
    sweep = ob.Sweep(train, {"eta": ob.loguniform(0.01, 0.5)}, metric="loss", mode="min", tuner=tuner, concurrency=2)
    result = sweep.run(client=real, display=False, timeout=500)
    assert sorted(t.step for t in result.trials) == [1, 1, 1, 1, 1, 1, 3, 3, 9]
    assert result.best.step == ROUNDS and 0 < (result.best.metric or 0) < 0.5
    went_on = [t for t in result.trials if t.step > 1]
    # The last trial at a rung may continue at once in its process; it only recorded that it began without a checkpoint.
    assert all(t.attributes["started"] == t.attributes["held"] for t in went_on), "they go on from their boosters"
    assert any(t.attributes["held"] > 0 for t in went_on), "one at least goes on from its booster"
    steps = [r.step for r in result.reports() if r.trial == result.best.number]
    assert steps == list(range(1, ROUNDS + 1))
    assert "valid-logloss" in result.best.metrics or "valid-binary_logloss" in result.best.metrics


def stopped_early(trial: ob.Trial) -> None:
    """Train until the error no longer decreases, without a limit on the rounds."""
    import lightgbm
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    data = lightgbm.Dataset(x[::2], y[::2], free_raw_data=False)
    lightgbm.train(
        {"objective": "binary", "learning_rate": trial.config.eta, "num_threads": 1, "verbose": -1},
        data,
        num_boost_round=500,
        valid_sets=[lightgbm.Dataset(x[1::2], y[1::2], reference=data, free_raw_data=False)],
        callbacks=[lightgbm.early_stopping(2, verbose=False), ob.callbacks.lightgbm(trial)],
    )


def test_a_booster_that_stops_early_is_kept(real: ob.Client) -> None:
    """The tuner does not request a checkpoint: the model is saved when the trial ends."""
    sweep = ob.Sweep(
        stopped_early, {"eta": ob.uniform(0.4, 0.5)}, metric="binary_logloss", mode="min", tuner=ob.Random(), trials=1
    )
    best = sweep.run(client=real, display=False, timeout=500).best
    assert 2 < best.step < 500
    assert best.checkpoint().current_iteration() == best.best_step, "LightGBM keeps the rounds until the best one"


def cross_validate_xgboost(trial: ob.Trial) -> float:
    """Cross-validate like XGBoost's users."""
    import xgboost
    from sklearn.datasets import load_breast_cancer

    params = {"objective": "binary:logistic", "eta": trial.config.eta, "nthread": 1}
    data = xgboost.DMatrix(*load_breast_cancer(return_X_y=True))
    table = xgboost.cv(params, data, ROUNDS, nfold=3, callbacks=[ob.callbacks.xgboost(trial)])
    return float(table["test-logloss-mean"].iloc[-1])


def cross_validate_lightgbm(trial: ob.Trial) -> float:
    """Cross-validate like LightGBM's users."""
    import lightgbm
    from sklearn.datasets import load_breast_cancer

    params = {"objective": "binary", "learning_rate": trial.config.eta, "num_threads": 1, "verbose": -1}
    data = lightgbm.Dataset(*load_breast_cancer(return_X_y=True))
    found = lightgbm.cv(params, data, ROUNDS, nfold=3, callbacks=[ob.callbacks.lightgbm(trial)])
    return float(found["valid binary_logloss-mean"][-1])


@pytest.mark.parametrize(
    ("train", "measured"),
    [(cross_validate_xgboost, "test-logloss"), (cross_validate_lightgbm, "valid-binary_logloss")],
)
def test_cross_validation_is_reported(real: ob.Client, train: Callable[[ob.Trial], Any], measured: str) -> None:
    """The models of cross-validation cannot be saved or continued, but the last round is completed."""
    space = {"eta": ob.loguniform(0.01, 0.5)}
    tuner = ob.Random(max_steps=ROUNDS, seed=0)
    sweep = ob.Sweep(train, space, metric=measured, mode="min", tuner=tuner, trials=2)
    result = sweep.run(client=real, display=False, timeout=500)
    assert [(t.state, t.step) for t in result.trials] == [("completed", ROUNDS)] * 2
