"""Time budgets of experiments count only the time in which they run, across interruptions and restores."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path

import pytest

from outbid import tune
from outbid.tune import _driver, _running_time, stopper
from outbid.tune._running_time import RunningTime, budget, longer, spend
from outbid.tune.stopper import CombinedStopper, NoopStopper, TimeoutStopper


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time that the modules see, which tests set."""
    now = [1000.0]
    for module in (_running_time, stopper):
        monkeypatch.setattr(module.time, "time", lambda: now[0])
    return now


@pytest.mark.parametrize(("paused", "ran_on", "spent"), [(20.0, False, 12.0), (20.0, True, 32.0)])
def test_time_is_counted_while_an_experiment_runs(
    clock: list[float], tmp_path: Path, paused: float, ran_on: bool, spent: float
) -> None:
    first = RunningTime(str(tmp_path), new=True)
    for _ in range(9):
        first.tick(running=True)
        clock[0] += 1
    first.tick(running=ran_on)  # the server pauses it, or continues it without the program
    clock[0] += paused
    again = RunningTime(str(tmp_path))
    assert again.seconds == 9
    again.resume(ran_on=ran_on)
    clock[0] += 3
    again.tick(running=False)
    assert again.seconds == RunningTime(str(tmp_path)).seconds == spent
    assert RunningTime(str(tmp_path), new=True).seconds == 0 == RunningTime(str(tmp_path)).seconds


def test_what_a_killed_program_last_wrote_counts(clock: list[float], tmp_path: Path) -> None:
    first = RunningTime(str(tmp_path), new=True)
    for _ in range(20):
        first.tick(running=True)
        clock[0] += 0.25
    assert RunningTime(str(tmp_path)).seconds == pytest.approx(4.75, abs=1)


def test_a_stopper_of_time_counts_from_where_it_was(clock: list[float]) -> None:
    timeout = TimeoutStopper(datetime.timedelta(seconds=20))
    assert not timeout.stop_all()
    clock[0] += 9
    assert not timeout.stop_all()
    again: TimeoutStopper = pickle.loads(pickle.dumps(timeout))
    clock[0] += 100
    assert not again.stop_all()  # the time in between does not count
    clock[0] += 10
    assert not again.stop_all()
    clock[0] += 1
    assert again.stop_all()
    spend(CombinedStopper(NoopStopper(), again), 15)
    assert not again.stop_all()
    clock[0] += 5
    assert again.stop_all()


def test_a_budget_is_the_least_that_was_said(clock: list[float]) -> None:
    stops = CombinedStopper(TimeoutStopper(20), CombinedStopper(TimeoutStopper(30)))
    assert budget(tune.TuneConfig(), {"loss": 1}) is None
    assert budget(tune.TuneConfig(time_budget_s=25), None) == 25
    assert budget(tune.TuneConfig(time_budget_s=25), stops) == 20
    submitted = datetime.datetime.fromtimestamp(400, datetime.timezone.utc)
    assert longer(submitted, 5) == 605 and longer(None, 5) == 5


@pytest.mark.parametrize(
    ("config", "restarts"),
    [(None, 0), (tune.FailureConfig(), 0), (tune.FailureConfig(max_failures=3), 3)]
    + [(tune.FailureConfig(max_failures=many), 1000) for many in (-1, 10**6)],
)
def test_restarts_are_within_what_a_server_accepts(config: tune.FailureConfig | None, restarts: int) -> None:
    assert _driver._restarts(tune.RunConfig(failure_config=config)) == restarts
