"""SearchCV with scikit-learn's checks of estimators, compared with RandomizedSearchCV."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import outbid as ob

pytest.importorskip("sklearn")

from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import RandomizedSearchCV
from sklearn.utils.estimator_checks import estimator_checks_generator

if not os.environ.get("OUTBID_BIN"):
    pytest.skip("OUTBID_BIN is not set", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ob.Client]:
    with ob.connect(data=tmp_path_factory.mktemp("outbid") / "data") as client:
        yield client


def searches(kind: Any) -> list[Any]:
    """Return searches like those in scikit-learn's tests: over a classifier and a regressor."""
    options = {"n_iter": 2, "cv": 3, "random_state": 0, "error_score": "raise"}
    return [kind(LogisticRegression(), {"C": [0.1, 1.0]}, **options), kind(Ridge(), {"alpha": [0.1, 1.0]}, **options)]


def checks(kind: Any) -> list[tuple[str, Any, Any]]:
    found = []
    for search in searches(kind):
        for estimator, check in estimator_checks_generator(search):
            name = f"{type(search.estimator).__name__}-{getattr(check, 'func', check).__name__}"
            found.append((name, estimator, check))
    return found


# RandomizedSearchCV fails this too. The reason is that of scikit-learn's tests: the warning is the inner estimator's.
EXPECTED = {
    "Ridge-check_supervised_y_2d": pytest.mark.xfail(reason="DataConversionWarning not caught", strict=True),
}
CHECKS = checks(ob.SearchCV)
# Each check runs real sweeps: CI runs every sixth, OUTBID_SKLEARN_CHECKS=all runs all, in eleven processor minutes.
RUN = CHECKS if os.environ.get("OUTBID_SKLEARN_CHECKS") == "all" else CHECKS[::6]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("estimator", "check"),
    [pytest.param(*c, id=n, marks=EXPECTED.get(n, ())) for n, *c in RUN],
)
def test_a_check_of_scikit_learns(estimator: Any, check: Any) -> None:
    check(estimator)


def test_they_are_the_checks_of_randomized_search() -> None:
    assert [name for name, *_ in CHECKS] == [name for name, *_ in checks(RandomizedSearchCV)] and len(CHECKS) > 60
