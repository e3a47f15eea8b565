"""Bayesian optimisation in sweeps of a real server."""

from __future__ import annotations

import math

import outbid as ob

SPACE = {
    "x": ob.uniform(-5, 5),
    "y": ob.loguniform(1e-3, 1e3),
    "kind": ob.choice(["ball", "bowl"]),
    "tilt": ob.when(ob.uniform(0, 1), "kind", in_=["bowl"]),
}


def train(trial: ob.Trial) -> None:
    config = trial.config
    if config["x"] > 4:
        raise ValueError("too steep")
    trial.report(loss=(config["x"] - 2) ** 2 + math.log10(config["y"]) ** 2 + config.get("tilt", 0.5))


def test_it_finds_the_best_beside_failures(real: ob.Client) -> None:
    tuner = ob.Bayes(seed=3)
    sweep = ob.Sweep(
        train,
        SPACE,
        metric="loss",
        mode="min",
        tuner=tuner,
        trials=40,
        concurrency=2,
        constraints=["x < 1 or y > 0.5"],
        points=[{"x": 4.5, "kind": "ball"}],
        max_restarts=0,
    )
    result = sweep.run(display=False, timeout=500, client=real)
    assert result.sweep.state == "done" and len(result.trials) == 40
    assert result.trials[0].state == "failed" and result.trials[0].config.x == 4.5
    assert all(t.config["x"] < 1 or t.config["y"] > 0.5 for t in result.trials)
    assert all(("tilt" in t.config) == (t.config["kind"] == "bowl") for t in result.trials)
    # The best of 40 random configurations has an average loss of 1.3.
    assert result.best.config["kind"] == "bowl" and result.best.metric is not None and result.best.metric < 0.3


def test_a_sweep_learns_from_an_earlier_one(real: ob.Client) -> None:
    def run(seed: int, warm_start: bool) -> ob.Result:
        tuner = ob.Bayes(seed=seed)
        sweep = ob.Sweep(
            train, SPACE, metric="loss", mode="min", tuner=tuner, trials=8, name="learner", warm_start=warm_start
        )
        return sweep.run(display=False, timeout=500, client=real)

    first, second = run(1, warm_start=False), run(2, warm_start=True)
    assert first.sweep.memory == ()
    assert first.sweep.id in [sweep for sweep, _ in second.sweep.memory]
    assert second.trials[0].config != first.trials[0].config, "it does not begin in the middle of the space"
