"""Syne Tune's schedulers, if installed: it needs a CUDA library of 300 MB, so other tests do not have it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import outbid as ob

pytest.importorskip("syne_tune")
if not os.environ.get("OUTBID_BIN"):
    pytest.skip("OUTBID_BIN is not set", allow_module_level=True)

import outbid.synetune  # noqa: I001
from syne_tune.config_space import choice, lograndint, loguniform, uniform
from syne_tune.optimizer.baselines import ASHA, TPE, RandomSearch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ob.Client]:
    with ob.connect(data=tmp_path_factory.mktemp("outbid") / "data") as client:
        yield client


def train(trial: ob.Trial) -> None:
    for step in trial.steps():
        trial.report(step=step, loss=(trial.config.x - 1) ** 2 + 1 / step)


def once(trial: ob.Trial) -> float:
    assert trial.config.epochs == 3 and 1 <= trial.config.n <= 8 and trial.config.kind in "ab"
    return -float((trial.config.x - 1) ** 2)


def test_asha_stops_trials(server: ob.Client) -> None:
    scheduler = ASHA({"x": uniform(-5, 5)}, metric="loss", time_attr="step", max_t=9, grace_period=1, random_seed=1)
    result = outbid.synetune.sweep(train, scheduler, trials=16).run(display=False, client=server, timeout=500)
    steps = sorted(trial.step for trial in result.trials)
    assert len(steps) == 16 and steps[-1] == 9 and steps[0] < 9
    assert {trial.state for trial in result.trials} == {"completed", "pruned"}


@pytest.mark.parametrize("kind", [RandomSearch, TPE])
def test_searchers_draw(server: ob.Client, kind: Any) -> None:
    space = {"x": uniform(-5, 5), "n": lograndint(1, 8), "kind": choice(["a", "b"]), "epochs": 3}
    named: Any = {"metrics": ["gain"]} if kind is RandomSearch else {"metric": "gain"}
    scheduler = kind({**space, "lr": loguniform(1e-3, 1)}, do_minimize=False, random_seed=3, **named)
    result = outbid.synetune.sweep(once, scheduler, trials=12).run(display=False, client=server, timeout=500)
    assert len(result.trials) == 12 and result.sweep.mode == "max"
    assert len({trial.config["x"] for trial in result.trials}) == 12
