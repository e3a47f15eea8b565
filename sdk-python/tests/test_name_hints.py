"""Hints for callers who use names of Ray, Optuna or W&B."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import outbid as ob
from outbid._core import name_hints
from outbid._training.trial import Trial
from outbid.v1 import session_pb2

loose: Any = ob  # with names and arguments that mypy does not know


def sweep(**given: Any) -> Any:
    return ob.Sweep(space={"x": ob.uniform(0, 1)}, **{"metric": "loss", "mode": "min", **given})


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: sweep(n_trials=50), "Sweep has no argument 'n_trials': write trials=50"),
        (lambda: sweep(num_samples=50), "Sweep has no argument 'num_samples': write trials=50"),
        (lambda: sweep(n_jobs=4), "write concurrency=4"),
        (lambda: sweep(time_budget_s=60), "write wall_time=60, in seconds or such as '2h'"),
        (lambda: sweep(direction="minimize"), "write mode='min' or mode='max'"),
        (lambda: sweep(scheduler=None), "write tuner=, such as tuner=ob.ASHA"),
        (lambda: sweep(param_space={}), "write space={...}"),
        (lambda: sweep(resources_per_trial={"gpu": 1}), "write resources=ob.Resources(devices=1)"),
        (lambda: sweep(max_steps=81), "it is max_steps=81 of the tuner, such as ob.ASHA(max_steps=81)"),
        (lambda: sweep(trails=5), "did you mean trials=?"),
        (lambda: sweep(frobnicate=5), "Sweep has no argument 'frobnicate'"),
        (lambda: loose.ASHA(max_t=81), "ASHA has no argument 'max_t': write max_steps=81"),
        (lambda: loose.ASHA(max_steps=81, grace_period=3), "write min_steps=3"),
        (lambda: loose.Hyperband(max_steps=81, reduction_factor=3), "write eta=3"),
        (lambda: loose.Random(num_samples=5), "it is trials=5 of ob.Sweep"),
        (lambda: loose.TPE(random_state=1), "write seed=1"),
        (lambda: loose.Limits(n_trials=5), "Limits has no argument 'n_trials': write trials=5"),
        (lambda: loose.Resources(gpu=1), "Resources has no argument 'gpu': write devices="),
        (lambda: sweep(mode="minimize"), 'mode: "minimize" is unknown; use min'),
        (lambda: sweep(mode="MAX"), "is unknown; use max"),
        (lambda: sweep(metric=["a", "b"], mode=["min", "maximise"]), "is unknown; use max"),
        (lambda: loose.report, "has no attribute 'report'; write trial.report(loss=...)"),
        (lambda: loose.suggest_float, "write ob.uniform"),
        (lambda: loose.ASHAScheduler, "write ob.ASHA"),
        (lambda: loose.unifrom, "did you mean 'uniform'?"),
    ],
)
def test_hints(call: Callable[[], Any], hint: str) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)) as raised:
        call()
    assert hint in str(raised.value)


@pytest.mark.parametrize("name", [n for n in name_hints._ARGUMENTS if n != "metrics"])
def test_every_habit_is_answered_by_a_sweep(name: str) -> None:
    with pytest.raises(TypeError, match=r"write |did you mean |it is "):
        sweep(**{name: 3})


@pytest.fixture
def trial() -> Trial:
    class Link:
        pass

    return Trial(session_pb2.TrialAssignment(config_json='{"lr":0.5,"opt":{"name":"adam"}}'), Link())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("use", "hint"),
    [
        (lambda config: config["lr"], "write trial.config['lr']"),
        (lambda config: "lr" in config, "write trial.config['lr']"),
        (lambda config: config.lr, "write trial.config.lr"),
        (lambda config: config.get("lr", 0.1), "write trial.config.get"),
        (lambda config: config.items(), "write trial.config.items"),
        (lambda trial: trial.params["lr"], "write trial.config"),
        (lambda trial: trial.suggest_float("lr", 0, 1), "outbid.optuna.optimize"),
        (lambda trial: trial.should_prune(), "outbid.optuna.optimize"),
        (lambda wandb: wandb.log({"loss": 1}), "write trial.report(loss=...)"),
        (lambda trial: trial.nothing, "'Trial' object has no attribute 'nothing'"),
    ],
)
def test_a_trial_is_not_a_configuration(trial: Trial, use: Callable[[Any], Any], hint: str) -> None:
    with pytest.raises((TypeError, AttributeError)) as raised:
        use(trial)
    assert hint in str(raised.value)


def test_every_name_of_another_tool_is_none_of_ours() -> None:
    assert [name for name in name_hints._NAMES if name != "tune" and hasattr(ob, name)] == []


def test_signatures_stay() -> None:
    assert "trials" in inspect.signature(ob.Sweep).parameters
    assert next(iter(inspect.signature(ob.ASHA).parameters)) == "max_steps"
    assert "display" in inspect.signature(ob.Sweep.run).parameters
    assert ob.ASHA(max_steps=81) == ob.ASHA(81) and hash(ob.ASHA(81)) == hash(ob.ASHA(max_steps=81))
