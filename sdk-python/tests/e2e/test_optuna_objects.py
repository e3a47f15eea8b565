"""Objects as categories and attributes: they are returned like by Optuna's loop in one process."""

from __future__ import annotations

import datetime
import enum
import fractions
import math
from typing import Any

import numpy as np
import pytest

import outbid as ob

optuna = pytest.importorskip("optuna")

import outbid.optuna  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:Choices for a categorical distribution", "ignore::optuna.exceptions.ExperimentalWarning"
)


class Activation(enum.Enum):
    RELU = "relu"
    TANH = "tanh"


class Model:
    """A user's class; test objects are compared by their contents."""

    def __init__(self, depth: int) -> None:
        self.depth = depth


def squared(x: float) -> float:
    return x * x


CATEGORIES: dict[str, list[Any]] = {
    "tuples": [(50,), (100, 50)],
    "nested": [((1, 2.0), "a"), [1, 2], {"a": (1,)}],
    "classes": [Model, dict],
    "functions": [squared, math.sqrt, len],
    "none and numbers": [None, True, 2, 2.5, "x"],
    "scalars of numpy": [np.float32(0.5), np.int64(3), np.bool_(True)],
    "enums": [Activation.RELU, Activation.TANH],
    "sets and dates": [frozenset({"b", "a"}), {1}, datetime.date(2026, 1, 2)],
    "texts like those of objects": ["(50,)", (50,)],
}
ATTRIBUTES: dict[str, Any] = {
    "array": np.zeros(3),
    "large": np.arange(20_000.0),
    "model": Model(3),
    "class": Model,
    "date": datetime.datetime(2026, 1, 2),
    "set": {1, "a"},
    "tuple": (1, (2,)),
    "scalar": np.float32(0.25),
    "fraction": fractions.Fraction(1, 3),
    "keys": {1: "a"},
    "plain": [1, 2.0, {"a": None}, float("inf")],
    "prefix": "outbid:pickle:x",
    "bytes": b"\x00",
}


def objective(trial: Any) -> float:
    for name, choices in CATEGORIES.items():
        chosen = trial.suggest_categorical(name, choices)
        assert any(same(chosen, choice) for choice in choices), name
        assert type(trial) is optuna.Trial or any(chosen is choice for choice in choices), "Optuna may copy lists"
        assert same(trial.params[name], chosen)
        assert same(trial.suggest_categorical(name, choices), chosen), "it is suggested once"
    for name, value in ATTRIBUTES.items():
        trial.set_user_attr(name, value)
        assert trial.user_attrs[name] is value or type(trial.user_attrs[name]) is type(value)
    trial.study.set_user_attr("best", Model(4))
    assert trial.study.trials[trial.number].params["classes"] in (Model, dict)
    return float(trial.number)


def same(a: Any, b: Any) -> bool:
    """Return whether two values have the same type and value; classes and functions must be identical."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (type, type(squared))):
        return a is b
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and bool((a == b).all())
    return bool(vars(a) == vars(b) if isinstance(a, Model) else a == b)


def check(study: Any, trials: int) -> None:
    states = [t.state.name for t in study.trials]
    assert states == ["COMPLETE"] * trials, ob.load(study.trials[0].user_attrs["outbid"].split("/")[0]).trials
    for trial in study.trials:
        for name, choices in CATEGORIES.items():
            assert any(same(trial.params[name], choice) for choice in choices), (name, trial.params[name])
        for name, value in ATTRIBUTES.items():
            assert same(trial.user_attrs[name], value), name
    assert same(study.user_attrs["best"], Model(4))
    assert set(study.best_params) == set(CATEGORIES)
    assert len(study.trials_dataframe()) == trials


def samplers(*, liar: bool) -> list[Any]:
    return [
        optuna.samplers.RandomSampler(seed=1),
        optuna.samplers.TPESampler(seed=1, n_startup_trials=2, constant_liar=liar),
        optuna.samplers.TPESampler(seed=1, n_startup_trials=2, multivariate=True, constant_liar=liar),
        optuna.samplers.PartialFixedSampler({"tuples": (50,), "functions": len}, optuna.samplers.RandomSampler()),
    ]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("number", range(4))
def test_objects_come_back_as_in_optuna(number: int) -> None:
    ours = outbid.optuna.optimize(objective, 6, sampler=samplers(liar=True)[number], display=False)
    check(ours, 6)
    # Optuna's constant liar writes its values as JSON, which fails in Optuna's loop.
    theirs = optuna.create_study(sampler=samplers(liar=False)[number])
    theirs.optimize(objective, n_trials=6)
    check(theirs, 6)
    if number == 3:
        assert {t.params["functions"] for t in ours.trials} == {len}
    ours.sampler = theirs.sampler
    ours.optimize(objective, n_trials=1)  # continues the study with Optuna's loop
    check(ours, 7)


@pytest.mark.usefixtures("real")
def test_objects_are_kept_in_a_storage(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(study_name="objects", storage=url)
    study.enqueue_trial({"tuples": (100, 50), "scalars of numpy": 3, "nested": [1, 2]})
    outbid.optuna.optimize(study, objective, 3, n_jobs=1, display=False)
    check(study, 3)
    first = study.trials[0].params
    assert first["tuples"] == (100, 50) and first["scalars of numpy"] == 3 and first["nested"] == [1, 2]
    bare = optuna.load_study(study_name="objects", storage=url)
    assert bare.trials[0].params["tuples"] == "(100, 50)", "without Outbid it is readable text"
    check(outbid.optuna.optimize(objective, 1, study_name="objects", storage=url, display=False), 4)


@pytest.mark.usefixtures("real")
def test_objects_are_texts_in_the_sweep() -> None:
    study = outbid.optuna.optimize(objective, 1, display=False)
    result = ob.load(study.best_trial.user_attrs["outbid"].split("/")[0])
    assert result.best.config["classes"] in ("Model", "dict")
    assert result.best.attributes["array"] == [0.0, 0.0, 0.0]
    assert result.best.attributes["date"] == "datetime.datetime(2026, 1, 2, 0, 0)"
    assert result.best.attributes["large"].startswith("array([")


@pytest.mark.usefixtures("real")
def test_what_cannot_be_pickled_fails_its_trial_with_a_reason() -> None:
    def stubborn(trial: Any) -> float:
        import threading

        trial.set_user_attr("lock", threading.Lock())
        return 0.0

    with pytest.raises(ob.SweepFailedError, match="attribute 'lock' must be an object that can be pickled, got lock"):
        outbid.optuna.optimize(stubborn, 2, n_jobs=1, display=False)


@pytest.mark.usefixtures("real")
def test_attributes_have_any_name() -> None:
    names: list[Any] = ["", "a\nb", "x" * 400, "größe", "with.dot", "a b", "a_b"]

    def named(trial: Any) -> float:
        for name in (*names, 7):
            trial.set_user_attr(name, 3)
        return 0.0

    (trial,) = outbid.optuna.optimize(named, 1, display=False).trials
    assert trial.state.name == "COMPLETE"
    assert {str(name) for name in trial.user_attrs} == {*names, "7", "outbid"}


@pytest.mark.usefixtures("real")
def test_attributes_that_optuna_sets_itself_may_be_objects(tmp_path: Any) -> None:
    from optuna.terminator import CrossValidationErrorEvaluator, report_cross_validation_scores

    def scored(trial: Any) -> float:
        report_cross_validation_scores(trial, np.array([0.25, 0.75]) * trial.suggest_float("x", 0.5, 1))
        return 0.5

    for study in (optuna.create_study(), optuna.create_study(storage=f"sqlite:///{tmp_path}/study.db")):
        outbid.optuna.optimize(study, scored, 2, n_jobs=1, display=False)
        scores = [
            same(t.system_attrs["terminator:cv_scores"], np.array([0.25, 0.75]) * t.params["x"]) for t in study.trials
        ]
        assert scores == [True, True]
        assert CrossValidationErrorEvaluator().evaluate(study.trials, study.direction) > 0


class Floating:
    def __float__(self) -> float:
        return 0.5


@pytest.mark.usefixtures("real")
def test_reports_are_taken_as_optuna_takes_them() -> None:
    def reporting(trial: Any) -> float:
        values = [
            1,
            True,
            "0.5",
            np.float32(0.5),
            np.array(0.5),
            float("nan"),
            Floating(),
            b"1",
            None,
            "x",
            [1],
            {},
            1j,
        ]
        steps = [0, "3", 2.7, np.int64(4), True, -1, None, "x"]
        for n, (value, step) in enumerate([*((v, 10 + i) for i, v in enumerate(values)), *((1.0, s) for s in steps)]):
            try:
                trial.report(value, step)
            except Exception as error:
                trial.set_user_attr(str(n), f"{type(error).__name__}: {error}")
        return 0.0

    ours = outbid.optuna.optimize(reporting, 1, display=False)
    theirs = optuna.create_study()
    theirs.optimize(reporting, n_trials=1)
    said = dict(ours.trials[0].user_attrs)
    del said["outbid"]
    assert said == theirs.trials[0].user_attrs
    assert repr(ours.trials[0].intermediate_values) == repr(theirs.trials[0].intermediate_values)
