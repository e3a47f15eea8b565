"""The default tuner in sweeps of a real server."""

from __future__ import annotations

import pytest

import outbid as ob

SPACE = {"x": ob.uniform(-1, 1)}


def train(trial: ob.Trial) -> None:
    """Report steps; the code decides when it ends."""
    for step in range(1, 31):
        trial.report(step=step, loss=(trial.config.x - 0.4) ** 2 + 1 / step)


def once(trial: ob.Trial) -> None:
    trial.report(loss=(trial.config.x - 0.4) ** 2)


def test_trials_that_report_steps_are_stopped_early(real: ob.Client) -> None:
    sweep = ob.Sweep(train, SPACE, metric="loss", mode="min", trials=30, concurrency=1)
    result = sweep.run(display=False, timeout=500, client=real)
    pruned = [t for t in result.trials if t.state == "pruned"]
    completed = [t for t in result.trials if t.state == "completed"]
    assert result.sweep.state == "done" and len(pruned) + len(completed) == 30
    assert len(completed) >= 3 and all(t.step == 30 for t in completed)
    assert pruned and all(t.step < 30 and "its chance to become the best" in t.reason for t in pruned)
    assert result.best.state == "completed" and abs(result.best.config.x - 0.4) < 0.3


def test_trials_that_report_once_train_to_the_end(real: ob.Client, capsys: pytest.CaptureFixture[str]) -> None:
    result = ob.Sweep(once, SPACE, metric="loss", mode="min", trials=20).run(timeout=500, client=real)
    assert [t.state for t in result.trials] == ["completed"] * 20
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("tuner: auto, because the sweep sets none") and others


def test_bayes_stops_no_trial(real: ob.Client) -> None:
    sweep = ob.Sweep(train, SPACE, metric="loss", mode="min", trials=12, concurrency=1, tuner=ob.Bayes())
    result = sweep.run(display=False, timeout=500, client=real)
    assert [t.step for t in result.trials] == [30] * 12
