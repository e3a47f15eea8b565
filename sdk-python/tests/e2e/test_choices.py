"""Objects as choices on a real server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import outbid as ob


class Model:
    size = 3


def half(x: float) -> float:
    return x / 2


CHOICES: dict[str, list[Any]] = {
    "layers": [(50,), (100, 50)],
    "model": [Model, dict],
    "function": [half, abs],
    "scale": [np.float32(0.5), 1.0],
    "optional": [None, (1, None)],
}


def train(trial: ob.Trial) -> float:
    for name, choices in CHOICES.items():
        value = trial.config[name]
        assert any(value is choice or (type(value), value) == (type(choice), choice) for choice in choices), name
    assert ("depth" in trial.config) == (trial.config.model is Model)
    return float(trial.config.function(-1.0))


def test_objects_are_chosen_and_come_back(real: ob.Client) -> None:
    space: dict[str, Any] = {name: ob.choice(choices) for name, choices in CHOICES.items()}
    space["depth"] = ob.when(ob.integer(1, 3), "model", in_=[Model])
    first = {"layers": (100, 50), "model": Model, "function": abs, "scale": 1.0, "optional": None}
    sweep = ob.Sweep(train, space, metric="loss", mode="min", trials=12, points=[first], tuner=ob.TPE(startup=4))
    result = sweep.run(client=real, display=False)
    assert [t.state for t in result.trials] == ["completed"] * 12, result.trials[0].reason
    assert {name: result.trials[0].config[name] for name in first} == first
    assert result.trials[0].config["model"] is Model
    assert result.best.config.function is half
    assert all(type(t.config.layers) is tuple for t in result.trials)
    assert type(result.frame()["config.layers"][0]) is tuple
    again = ob.Sweep(train, space, metric="loss", mode="min", trials=3, warm_start=result)
    assert again.run(client=real, display=False).trials[0].config.function is half
    real.objects.clear()  # like in another program
    assert ob.attach(result.sweep.id).result().trials[0].config["model"] == "Model"


def test_objects_are_asked_for(real: ob.Client) -> None:
    sweep = ob.Sweep(space={"layers": ob.choice(CHOICES["layers"])}, metric="loss", mode="min", trials=1)
    sweep.submit(real)
    trial = sweep.ask(10)
    assert trial is not None and trial.config.layers in CHOICES["layers"]
    sweep.tell(trial, 1.0)


@pytest.mark.parametrize("plot", ["parallel", "importance"])
def test_results_with_objects_are_drawn(real: ob.Client, plot: str) -> None:
    pytest.importorskip("matplotlib")
    space = {"layers": ob.choice(CHOICES["layers"]), "x": ob.uniform(0, 1)}

    def train(trial: ob.Trial) -> float:
        return float(trial.config.x + len(trial.config.layers))

    sweep = ob.Sweep(train, space, metric="loss", mode="min", trials=12, tuner=ob.Random(seed=1))
    result = sweep.run(client=real, display=False)
    assert "layers" in result.importance()
    getattr(result.plot, plot)()
