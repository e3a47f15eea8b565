"""Training functions that use XGBoost and LightGBM like their users do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import outbid as ob


def boost_xgboost(trial: ob.Trial) -> float:
    """Train an XGBoost classifier on a part of the digits; returns its error on the rest."""
    import xgboost
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, held, y, right = train_test_split(*load_digits(return_X_y=True), random_state=0)
    model = xgboost.XGBClassifier(n_estimators=10, max_depth=trial.config.depth, n_jobs=1)
    model.fit(x, y)
    return float((model.predict(held) != right).mean())


def boost_lightgbm(trial: ob.Trial) -> float:
    """Train a LightGBM classifier on a part of the digits; returns its error on the rest."""
    import lightgbm
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, held, y, right = train_test_split(*load_digits(return_X_y=True), random_state=0)
    model = lightgbm.LGBMClassifier(n_estimators=10, max_depth=trial.config.depth, n_jobs=1, verbose=-1)
    model.fit(x, y)
    return float((model.predict(held) != right).mean())


@pytest.mark.parametrize("train", [boost_xgboost, boost_lightgbm])
def test_a_boosted_model_is_tuned(real: ob.Client, train: Callable[[ob.Trial], float]) -> None:
    sweep = ob.Sweep(train, {"depth": ob.randint(1, 6)}, metric="result", mode="min", tuner=ob.Random(seed=0), trials=3)
    result = sweep.run(client=real, display=False, timeout=500)
    assert [trial.state for trial in result.trials] == ["completed"] * 3
    assert result.best.metric is not None and 0 < result.best.metric < 0.5
