"""Initial points, warm start, computed parameters and notes on a real server."""

from __future__ import annotations

import random
from typing import Any

import pytest

import outbid as ob


def train(trial: ob.Trial) -> None:
    for step in trial.steps():
        trial.report(step=step, loss=(trial.config["x"] - 2) ** 2 + 1 / step)


SPACE = {"x": ob.uniform(-5, 5), "deep": {"kind": ob.choice(["a", "b"])}, "n": ob.integer(1, 9)}


def run(client: ob.Client, function: Any = train, space: Any = SPACE, **fields: Any) -> ob.Result:
    fields = {"metric": "loss", "mode": "min", "tuner": ob.Random(max_steps=2, seed=1), "trials": 4, **fields}
    return ob.Sweep(function, space, **fields).run(display=False, timeout=500, client=client)


TUNERS = [
    ob.Random(max_steps=2, seed=1),
    ob.Hyperband(max_steps=3, seed=1),
    ob.PBT(max_steps=2, interval=1, population=4, seed=1),
    ob.Grid(max_steps=1, points=2),
    ob.TPE(max_steps=2, startup=2, seed=1),
    ob.ASHA(max_steps=3, sampler=ob.TPE(startup=2), seed=1),
]


@pytest.mark.parametrize("tuner", TUNERS, ids=lambda t: type(t).__name__)
def test_points_are_tried_first(real: ob.Client, tuner: ob.Tuner) -> None:
    points = [{"x": 2, "n": 3, "deep": {"kind": "b"}}, {"x": -1.5}]
    first, second, *_ = run(real, tuner=tuner, points=points).trials
    assert first.config == {"x": 2.0, "n": 3, "deep": {"kind": "b"}} and isinstance(first.config["x"], float)
    assert second.config["x"] == -1.5 and 1 <= second.config["n"] <= 9


@pytest.mark.parametrize(
    ("point", "problem"),
    [
        ({"x": 7}, r"tuner\.points\[0\]\.x: 7 is outside -5 to 5"),
        ({"y": 1}, "is not a parameter"),
        ({"deep": {"kind": "c"}}, r"points\[0\]\.deep\.kind"),
        ({"x": 4, "n": 8}, "breaks the constraint"),
    ],
)
def test_points_that_cannot_be_are_named(real: ob.Client, point: dict[str, Any], problem: str) -> None:
    with pytest.raises(ob.InvalidError, match=problem):
        run(real, points=[point], constraints=["x * n < 20"])


def test_a_sampler_knows_the_points(real: ob.Client) -> None:
    """Both startup trials are given points, so TPE draws the third near the better one."""
    found = run(
        real, tuner=ob.TPE(max_steps=1, startup=1, seed=5), trials=12, points=[{"x": 2.0}, {"x": -4.9}], concurrency=1
    )
    assert min(abs(t.config["x"] - 2) for t in found.trials[2:]) < 1


def test_warm_start_from_a_sweep(real: ob.Client) -> None:
    earlier = run(real, trials=6)
    ranked = sorted(earlier.trials, key=lambda t: t.metric or 0)
    warm = run(real, warm_start=earlier.sweep.id, points=[{"x": 0}])
    assert warm.trials[0].config["x"] == 0
    assert [t.config for t in warm.trials[1:]] == [t.config for t in ranked[:3]]
    narrow = run(real, space={"x": ob.uniform(-5, ranked[0].config["x"])}, warm_start=earlier, trials=1)
    assert narrow.best.config == {"x": ranked[0].config["x"]}
    tpe = ob.Sweep(train, SPACE, metric="loss", mode="min", tuner=ob.TPE(max_steps=1), trials=2, warm_start=earlier)
    settings = real.spec(tpe.submit(real).id).tuner.plugin.settings
    assert len(settings.fields["prior"].list_value.values) == 6
    tpe.handle.wait(100)
    with pytest.raises(ValueError, match=r"optimises min loss, but this sweep max loss"):
        run(real, warm_start=earlier, mode="max")


def draws(trial: ob.Trial) -> None:
    trial.note(host="here", sizes=[trial.config.width])
    trial.report(step=1, loss=trial.config.width)
    trial.note(late=True)


def test_values_of_functions_and_notes_are_in_the_result(real: ob.Client) -> None:
    space = {
        "base": ob.integer(1, 4),
        "width": ob.sample_from(lambda config: 2 * config.base),
        "opt": {"jitter": ob.sample_from(lambda config: random.random() + config.width)},
        "noise": ob.normal(10, 2),
    }
    result = run(real, draws, space, tuner=ob.Random(seed=3))
    for trial in result.trials:
        assert trial.config["width"] == 2 * trial.config["base"] == trial.metric
        assert 0 <= trial.config["opt"]["jitter"] - trial.config["width"] < 1
        assert -7 < trial.config["noise"] < 27
        assert trial.attributes == {"host": "here", "sizes": [trial.config["width"]], "late": True}
    assert len({t.config["opt"]["jitter"] for t in result.trials}) == len(result.trials)
    frame = result.frame()
    assert list(frame["note.late"]) == [True] * 4 and "config.opt.jitter" in frame
    assert len(result.reports()) == 4
    again = run(real, draws, space, tuner=ob.Random(seed=3))
    assert [t.config for t in again.trials] == [t.config for t in result.trials]


def test_a_sweep_stops_trials_on_any_metric(real: ob.Client) -> None:
    result = run(real, tuner=ob.Random(max_steps=50), stop={"loss": "< 0", "step": 3}, trials=2)
    assert [t.step for t in result.trials] == [3, 3]
    with pytest.raises(ValueError, match="stop: loss must be a number, or a condition"):
        run(real, stop={"loss": "low"})


def two(trial: ob.Trial) -> None:
    x = trial.config.x
    trial.report(step=1, loss=x * x, latency=(x - 2) ** 2)


@pytest.mark.parametrize(
    "tuner", [ob.Bayes(seed=0), ob.NSGA2(startup=6, seed=0), ob.TPE(startup=4, seed=0), ob.Random(seed=0)]
)
def test_several_objectives(real: ob.Client, tuner: ob.Tuner) -> None:
    pytest.importorskip("optuna")
    objectives: dict[str, Any] = {"metric": ["loss", "latency"], "mode": ["min", "min"]}
    result = run(real, two, {"x": ob.uniform(-10, 10)}, trials=30, tuner=tuner, concurrency=1, **objectives)
    front = result.front()
    losses = [t.metrics["loss"] for t in front]
    latencies = [t.metrics["latency"] for t in front]
    assert front and losses == sorted(losses) and latencies == sorted(latencies, reverse=True)
    assert result.best.number == front[0].number == min(result.trials, key=lambda t: t.metrics["loss"]).number
    if not isinstance(tuner, ob.Random):
        inside = sum(-1 <= t.config["x"] <= 3 for t in result.trials)
        assert inside >= 9, "a sampler that learns draws about the front, a fifth of the space"


def test_a_sampler_of_one_objective_says_so(real: ob.Client) -> None:
    pytest.importorskip("optuna")
    with pytest.raises(ob.InvalidError, match="cmaes supports one objective only"):
        run(real, two, SPACE, metric=["loss", "latency"], mode=["min", "min"], tuner=ob.CMAES())
