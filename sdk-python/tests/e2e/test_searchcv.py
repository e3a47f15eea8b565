"""SearchCV on a real server, compared with scikit-learn's search.

Searches that need no concurrency have one job, because every process imports scikit-learn, which takes seconds.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import outbid as ob

pytest.importorskip("sklearn")
stats = pytest.importorskip("scipy.stats")

from sklearn.datasets import load_iris  # noqa: E402
from sklearn.ensemble import RandomForestClassifier  # noqa: E402
from sklearn.model_selection import RandomizedSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.svm import SVC  # noqa: E402

X, y = load_iris(return_X_y=True)
SCORES = ("_test_", "_train_")


def test_the_same_candidates_scores_and_winner_as_scikit_learn(real: ob.Client) -> None:
    given: dict[str, Any] = {
        "estimator": make_pipeline(StandardScaler(), SVC()),
        "param_distributions": [
            {"svc__C": stats.loguniform(1e-3, 1e3), "svc__kernel": ["linear", "rbf"]},
            {"svc__C": [1, 1.0], "standardscaler": ["passthrough"]},
        ],
        "n_iter": 8,
        "cv": 3,
        "scoring": ["accuracy", "f1_macro"],
        "refit": "f1_macro",
        "return_train_score": True,
        "random_state": 7,
    }
    theirs = RandomizedSearchCV(**given).fit(X, y)
    ours = ob.SearchCV(**given).fit(X, y)
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    assert set(theirs.cv_results_) == set(ours.cv_results_) - {"n_resources"}
    for name in theirs.cv_results_:
        if any(kind in name for kind in SCORES):
            np.testing.assert_array_equal(ours.cv_results_[name], theirs.cv_results_[name], err_msg=name)
    assert (ours.best_index_, ours.best_score_) == (theirs.best_index_, theirs.best_score_)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.score(X, y) == theirs.score(X, y) and ours.n_splits_ == 3
    sweep = real.attach(ours.sweep_)
    assert sweep.result().best.metric == pytest.approx(theirs.best_score_)
    assert [note.text for note in sweep.info().notes if note.level != "info"] == [], "nothing is amiss"
    assert [trial.step for trial in sweep.result().trials] == [3] * 8, "every fold is a step"
    assert not hasattr(ours, "predict_proba"), "as the estimator has none"


def test_a_sampler_draws_from_a_conditional_space(real: ob.Client) -> None:
    space = {
        "kernel": ["linear", "rbf"],
        "C": ob.loguniform(1e-3, 1e3),
        "gamma": ob.when(ob.loguniform(1e-4, 1), "kernel", in_=["rbf"]),
    }
    search = ob.SearchCV(SVC(), space, n_iter=14, n_jobs=1, cv=3, tuner=ob.TPE(startup=4), random_state=1).fit(X, y)
    params = search.cv_results_["params"]
    assert len(params) == 14 and all(("gamma" in p) == (p["kernel"] == "rbf") for p in params)
    assert search.best_score_ > 0.9 and search.best_params_ == params[search.best_index_]


@pytest.mark.parametrize(
    ("resource", "tuner"),
    [
        ("folds", ob.ASHA(max_steps=4, eta=2)),
        ("n_estimators", ob.ASHA(max_steps=8, min_steps=2, eta=2)),
        ("n_samples", ob.ASHA(max_steps=96, min_steps=24, eta=2, form="stop")),
    ],
)
def test_candidates_are_stopped_early(real: ob.Client, resource: str, tuner: Any) -> None:
    space = {"max_depth": [1, 2, 3, 4, 5], "max_features": stats.uniform(0.1, 0.8), "min_samples_leaf": [1, 60]}
    forest = RandomForestClassifier(n_estimators=4, random_state=0)
    search = ob.SearchCV(forest, space, n_iter=10, n_jobs=1, cv=4, tuner=tuner, resource=resource, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.fit(X, y)
    found = search.cv_results_
    reached = found["n_resources"]
    assert reached.max() == tuner.max_steps and reached.min() < tuner.max_steps
    assert reached[search.best_index_] == tuner.max_steps and search.best_score_ > 0.8
    whole = found["rank_test_score"][reached == tuner.max_steps]
    assert whole.max() < found["rank_test_score"][reached < tuner.max_steps].min()
    scores = np.array([found[f"split{fold}_test_score"] for fold in range(4)])
    if resource == "folds":
        assert (np.isfinite(scores).sum(axis=0) == reached).all()
    else:
        assert np.isfinite(scores).all()
    np.testing.assert_allclose(found["mean_test_score"], np.nanmean(scores, axis=0))
    if resource == "n_estimators":
        assert search.best_estimator_.n_estimators == 4, "the resource is no parameter of the winner"


def test_fits_that_fail(real: ob.Client) -> None:
    space = {"C": [1.0, -1.0]}
    failing = ob.SearchCV(SVC(), space, n_iter=2, n_jobs=1, cv=2, error_score=0.0)
    with pytest.warns(Warning, match="2 fits failed out of a total of 4") as seen:
        failing.fit(X, y)
    assert "'C' parameter of SVC" in str(seen[0].message)
    assert sorted(failing.cv_results_["mean_test_score"])[0] == 0 and failing.best_params_ == {"C": 1.0}
    with pytest.raises(ValueError, match="All the 2 fits failed"):
        ob.SearchCV(SVC(), {"C": [-1.0]}, n_iter=1, cv=2).fit(X, y)
    with pytest.raises(ValueError, match="The 'C' parameter of SVC") as raised:
        ob.SearchCV(SVC(), {"C": [-1.0]}, n_iter=1, cv=2, error_score="raise").fit(X, y)
    assert type(raised.value).__name__ == "InvalidParameterError"


def test_what_cannot_be_is_said_before_anything_runs(real: ob.Client) -> None:
    def fit(**options: Any) -> None:
        ob.SearchCV(SVC(), **{"param_distributions": {"C": [1, 2]}, "n_iter": 2, "cv": 3, **options}).fit(X, y)

    with pytest.raises(ValueError, match="max_steps must be the number of folds, 3, got 9"):
        fit(tuner=ob.ASHA(max_steps=9))
    with pytest.raises(ValueError, match="resource: 'n_samples' needs a tuner with max_steps"):
        fit(resource="n_samples")
    with pytest.raises(ValueError, match="Invalid parameter 'D' for estimator SVC"):
        fit(param_distributions={"D": [1, 2]})
    with pytest.raises(ValueError, match="'folds', 'n_samples' or a parameter of SVC, got 'n_trees'"):
        fit(resource="n_trees", tuner=ob.ASHA(max_steps=9))
    with pytest.raises(ValueError, match="max_steps must be at most the samples of a training fold, 100"):
        fit(resource="n_samples", tuner=ob.ASHA(max_steps=900))
    with pytest.raises(ValueError, match="The 'tuner' parameter of SearchCV must be"):
        fit(tuner="tpe")
