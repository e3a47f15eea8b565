"""A timeout counts from the start of the first trial, because starting its process may take longer than that."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

optuna = pytest.importorskip("optuna")

import outbid.optuna  # noqa: E402
from outbid.integrations.optuna.timeout import stopped_after  # noqa: E402


def test_a_timeout_counts_from_the_start_of_the_first_trial() -> None:
    study: Any = optuna.create_study()
    study.tell(study.ask(), 1.0)  # of an earlier run
    study.enqueue_trial({"x": 1.0})
    stopped = threading.Event()
    sweep: Any = SimpleNamespace(submitted=True, handle=SimpleNamespace(stop=stopped.set))
    with stopped_after(0.01, sweep, study):
        assert not stopped.wait(0.3), "no trial has begun"
        study.ask()
        assert stopped.wait(30)


def test_a_sweep_that_ends_before_is_not_stopped() -> None:
    study: Any = optuna.create_study()
    stopped = threading.Event()
    sweep: Any = SimpleNamespace(submitted=True, handle=SimpleNamespace(stop=stopped.set))
    for seconds in (None, 0.2):
        with stopped_after(seconds, sweep, study):
            pass
        study.ask()
        assert not stopped.wait(0.5)


@pytest.mark.parametrize("given", [{"timeout": 0}, {"timeout": 0.0}, {"timeout": 0, "n_trials": 3}, {"n_trials": 0}])
def test_no_time_and_no_trials_return_the_study_as_it_is(given: dict[str, Any]) -> None:
    def never(trial: Any) -> float:
        raise AssertionError

    study = optuna.create_study()
    assert outbid.optuna.optimize(study, never, **given) is study
    assert not study.trials
    study.optimize(never, **given)  # Optuna's own does the same
    assert not study.trials
