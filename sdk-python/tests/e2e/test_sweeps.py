"""Extended and deleted sweeps, and values that are not numbers, with the real binary."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest

import outbid as ob

DEADLINE = 500.0


def saving(trial: ob.Trial) -> None:
    """Train from the checkpoint, or from the beginning."""
    saved = trial.checkpoint()
    done = 0 if saved is None else int(saved["done"])
    for step in trial.steps():
        assert step == done + 1
        done = step
        trial.save({"done": np.array(step)})
        # The newest report is the best one, so its checkpoint is kept.
        trial.report(step=step, loss=trial.config.x - step)


def submit(real: ob.Client) -> ob.SweepHandle:
    tuner = ob.Random(max_steps=3, seed=1)
    space = {"x": ob.uniform(0, 1)}
    return ob.Sweep(saving, space, metric="loss", mode="min", tuner=tuner, trials=4).submit(real)


def test_extend_says_what_is_trained_again(real: ob.Client) -> None:
    handle = submit(real)
    best = handle.wait(DEADLINE).best
    worse = [n for n in range(4) if n != best.number]
    again = handle.extend(max_steps=5, preview=True)
    assert again == tuple(ob.TrainedAgain(n, 0, 3) for n in worse)
    assert handle.info().state == "done"
    assert handle.extend(trials=5, preview=True) == ()
    with pytest.warns(UserWarning, match="3 trials of .* repeat 9 steps"):
        assert handle.extend(max_steps=5) == again
    assert {t.step for t in handle.wait(DEADLINE).trials} == {5}
    reports = handle.reports()
    assert sorted((r.trial, r.step) for r in reports if r.superseded) == [(n, s) for n in worse for s in (1, 2, 3)]
    assert sorted((r.trial, r.step) for r in reports if not r.superseded) == [
        (n, s) for n in range(4) for s in range(1, 6)
    ]


def test_device_hours_end_a_sweep_and_can_be_raised(real: ob.Client) -> None:
    def endless(trial: ob.Trial) -> None:
        import time

        for step in trial.steps():
            time.sleep(0.05)
            trial.report(step=step, loss=1 / step)

    seconds = 2.0
    limits = ob.Limits(trials=2, concurrency=1, device_hours=seconds / 3600)
    sweep = ob.Sweep(endless, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", tuner=ob.Random(), limits=limits)
    with pytest.warns(UserWarning, match="without an end"):
        handle = sweep.submit(real)
    result = handle.wait(DEADLINE)
    assert result.sweep.reason.startswith("limit reached: 0.000555")
    used = result.sweep.device_seconds
    assert used >= seconds and result.sweep.cost is None  # this server has no prices
    with pytest.raises(ob.OutbidError, match=r"device_hours: 0\.0001 is less than before"):
        handle.extend(limits=ob.Limits(device_hours=0.0001))
    handle.extend(limits=ob.Limits(device_hours=(used + seconds) / 3600))
    assert handle.wait(DEADLINE).sweep.device_seconds >= used + seconds


def test_a_limit_of_the_cost_needs_prices(real: ob.Client) -> None:
    with pytest.raises(ob.InvalidError, match=r"limits\.cost: needs prices of devices, and this server has none"):
        ob.Sweep(
            lambda trial: None,
            {"x": ob.uniform(0, 1)},
            metric="loss",
            mode="min",
            tuner=ob.Random(),
            limits=ob.Limits(trials=1, cost=2.5),
        ).submit(real)


def test_explain(real: ob.Client) -> None:
    handle = submit(real)
    handle.wait(DEADLINE)
    why, lost, otherwise = handle.explain().split("\n")
    assert why == f"{handle.id} is done: the tuner finished after 4 trials."
    assert "did not take devices" in lost
    assert "cluster to itself" in otherwise or "In simulations of the ledger" in otherwise
    assert handle.explain(2).startswith(f"{handle.id}/2 is completed at step 3")
    with pytest.raises(ob.OutbidError, match="there is no trial"):
        handle.explain(9)


def test_delete(real: ob.Client) -> None:
    def endless(trial: ob.Trial) -> None:
        for step in trial.steps():
            trial.report(step=step, loss=1 / step)

    handle, other = submit(real), submit(real)
    handle.wait(DEADLINE)
    other.wait(DEADLINE)
    for _ in range(2):  # deleting again is not an error
        handle.delete()
    with pytest.raises(ob.NotFoundError, match=f'no sweep "{handle.id}" any more: .* deleted it at'):
        handle.info()
    with pytest.raises(ob.NotFoundError):
        list(handle.logs())
    assert handle.id not in {sweep.id for sweep in real.sweeps()}
    best = other.result().best
    assert int(best.checkpoint()["done"]) == best.best_step, "another sweep keeps its checkpoints"
    tuner = ob.Random(max_steps=10**9)
    sweep = ob.Sweep(endless, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", tuner=tuner, trials=1)
    running = sweep.submit(real)
    for update in running.watch(timeout=DEADLINE):
        if update.sweep.steps:
            break
    with pytest.raises(ob.OutbidError, match="is running and cannot be deleted"):
        running.delete()
    running.delete(force=True)
    with pytest.raises(ob.NotFoundError, match="deleted it at"):
        running.info()


@pytest.mark.parametrize(("mode", "worse"), [("min", 0.75), ("max", 0.125)])
def test_what_is_no_number_is_never_best(real: ob.Client, mode: Literal["min", "max"], worse: float) -> None:
    bound = -math.inf if mode == "min" else math.inf

    def train(trial: ob.Trial) -> None:
        values = [[bound] * 3, [math.nan] * 3, [0.25, bound, 0.25], [worse] * 3][trial.number]
        for step in trial.steps():
            trial.report(step=step, loss=values[step - 1])

    tuner = ob.Random(max_steps=3, seed=1)
    sweep = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode=mode, tuner=tuner, trials=4)
    handle = sweep.submit(real)
    result = handle.wait(DEADLINE)
    assert (result.best.number, result.best.metric) == (2, 0.25)
    assert [t.metric for t in result.trials] == [None, None, 0.25, worse]
    assert [r.metrics["loss"] for r in handle.reports() if r.trial == 0] == [bound] * 3, "reports are as they were said"
    pytest.importorskip("matplotlib")
    (line,) = [drawn for drawn in result.plot.curves().figure.axes[0].lines if "best" in str(drawn.get_label())]
    assert np.asarray(line.get_ydata(), float).tolist() == pytest.approx([0.25, math.nan, 0.25], nan_ok=True)


def test_the_first_failure_is_explained_and_the_others_counted(
    real: ob.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(trial: ob.Trial) -> float:
        return float(trial.config["nope"])

    sweep = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", trials=3, name="wrong")
    with pytest.raises(ob.SweepFailedError):
        sweep.run(client=real)
    said = capsys.readouterr().out
    assert said.count("Traceback (most recent call last):") == 1
    assert 'return float(trial.config["nope"])' in said
    assert "wrong-1: 2 other trials alike: KeyError: 'nope'" in said
    assert "KeyError: 'nope'" in sweep.handle.traceback(0)


def test_a_failed_sweep_raises_with_the_traceback_of_its_trial(real: ob.Client) -> None:
    class Overheated(Exception):
        def __init__(self, degrees: int, *, where: str) -> None:
            super().__init__(f"{degrees} degrees in {where}")

    def train(trial: ob.Trial) -> float:
        raise Overheated(95, where="the attic")

    sweep = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", trials=2, max_restarts=0)
    with pytest.raises(ob.SweepFailedError, match="Overheated: 95 degrees in the attic") as caught:
        sweep.run(client=real, display=False)
    assert 'raise Overheated(95, where="the attic")' in str(caught.value.__cause__)


def test_fail_fast_stops_and_says_why(real: ob.Client) -> None:
    def train(trial: ob.Trial) -> float:
        if trial.number == 0:
            raise ValueError("no good")
        for step in trial.steps():
            trial.report(loss=1 / step)
        return 0.0

    tuner = ob.Random(max_steps=10**9)
    space = {"x": ob.uniform(0, 1)}
    sweep = ob.Sweep(train, space, metric="loss", mode="min", tuner=tuner, trials=2, max_restarts=0, fail_fast=True)
    with pytest.raises(ob.SweepFailedError, match=r"trial 0 failed and fail_fast is set(.|\n)*raise ValueError"):
        sweep.run(client=real, display=False, timeout=DEADLINE)
    assert sweep.handle.wait(DEADLINE).sweep.state == "stopped"


def test_returned_values_conditions_and_load(real: ob.Client) -> None:
    def train(trial: ob.Trial) -> dict[str, float]:
        return {"loss": trial.config.x**2, "other": 1}

    space = {"x": ob.uniform(1, 2)}
    result = ob.Sweep(train, space, metric="loss", mode="min", trials=3, name="returned").run(
        client=real, display=False, timeout=DEADLINE
    )
    assert result.best.metric == min(t.config["x"] ** 2 for t in result.trials)
    assert ob.load("returned").best == ob.load("returned-1").best == result.best

    def count(trial: ob.Trial) -> None:
        for step in trial.steps():
            trial.report(loss=1.0, score=step)

    tuner = ob.Random(max_steps=50)
    sweep = ob.Sweep(count, space, metric="loss", mode="min", tuner=tuner, trials=2, stop={"score": 5})
    result = sweep.run(client=real, display=False, timeout=DEADLINE)
    assert [(trial.state, trial.step) for trial in result.trials] == [("completed", 5)] * 2


def test_objects_and_directories_are_checkpoints(real: ob.Client) -> None:
    def train(trial: ob.Trial) -> None:
        for step in trial.steps():
            if trial.number == 0:
                trial.save({1, 2, step})
            else:
                (trial.scratch / "out").mkdir(exist_ok=True)
                (trial.scratch / "out" / "step.txt").write_text(str(step))
                trial.save(trial.scratch / "out")
            trial.report(loss=1 / step)

    space, keep = {"x": ob.uniform(0, 1)}, ob.Checkpoints(last=True)
    sweep = ob.Sweep(
        train, space, metric="loss", mode="min", tuner=ob.Random(max_steps=5), trials=2, name="whole", checkpoints=keep
    )
    trials = sweep.run(client=real, display=False, timeout=DEADLINE).trials
    assert trials[0].checkpoint() == {1, 2, 5}
    assert (trials[1].checkpoint() / "step.txt").read_text() == "5"
