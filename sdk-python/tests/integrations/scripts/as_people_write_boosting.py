"""XGBoost and LightGBM with their callbacks, on scikit-learn's data."""

import lightgbm
import sklearn.datasets
import xgboost
from sklearn.model_selection import train_test_split

from outbid import tune
from outbid.tune.integration.lightgbm import TuneReportCheckpointCallback as LightGBMCallback
from outbid.tune.integration.xgboost import TuneReportCheckpointCallback
from outbid.tune.schedulers import ASHAScheduler


def train_xgboost(config):
    """Train a booster."""
    x, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.25, random_state=0)
    xgboost.train(
        config,
        xgboost.DMatrix(train_x, label=train_y),
        evals=[(xgboost.DMatrix(test_x, label=test_y), "eval")],
        verbose_eval=False,
        num_boost_round=4,
        callbacks=[TuneReportCheckpointCallback(frequency=1)],
    )


grid = tune.Tuner(
    train_xgboost,
    param_space={
        "objective": "binary:logistic",
        "eval_metric": ["logloss", "error"],
        "max_depth": tune.grid_search([1, 4]),
    },
    tune_config=tune.TuneConfig(metric="eval-logloss", mode="min", scheduler=ASHAScheduler(max_t=10)),
    run_config=tune.RunConfig(name="xgboost", verbose=0),
).fit()
best = grid.get_best_result()
assert grid.num_errors == 0, grid.errors
assert best.metrics["training_iteration"] == 4 and 0 < best.metrics["eval-logloss"] < 0.6
assert TuneReportCheckpointCallback.get_model(best.checkpoint).num_boosted_rounds() == 4


def train_lightgbm(config):
    """Train a booster."""
    x, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.25, random_state=0)
    lightgbm.train(
        config,
        lightgbm.Dataset(train_x, label=train_y),
        num_boost_round=4,
        valid_sets=[lightgbm.Dataset(test_x, label=test_y)],
        valid_names=["eval"],
        callbacks=[LightGBMCallback({"error": "eval-binary_error"})],
    )


grid = tune.Tuner(
    train_lightgbm,
    param_space={
        "objective": "binary",
        "metric": ["binary_error"],
        "verbose": -1,
        "num_leaves": tune.grid_search([4, 8]),
    },
    tune_config=tune.TuneConfig(metric="error", mode="min"),
    run_config=tune.RunConfig(name="lightgbm", verbose=0),
).fit()
best = grid.get_best_result()
assert grid.num_errors == 0, grid.errors
assert LightGBMCallback.get_model(best.checkpoint).num_trees() == 4
assert len(best.metrics_dataframe) == 4, "the last round is reported once, with the model"
print("passed")
