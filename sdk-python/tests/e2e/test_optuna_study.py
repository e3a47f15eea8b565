"""An existing study: its trials are known, results are added to it, and it ends like in Optuna's loop."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest

import outbid as ob

optuna = pytest.importorskip("optuna")

import outbid.optuna  # noqa: E402
from outbid.integrations.optuna import trial_process as optuna_work  # noqa: E402
from outbid.integrations.optuna.sweep_study import ATTRIBUTE  # noqa: E402
from outbid.integrations.optuna.trial_process import Work, call_for  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.usefixtures("real"),
]


def optimize(*given: Any, **settings: Any) -> Any:
    return outbid.optuna.optimize(*given, **{"display": False, "n_jobs": 1, **settings})


def line(trial: Any) -> float:
    trial.report(0.5, 0)
    trial.set_user_attr("size", (trial.number,))
    return float(trial.suggest_float("x", 0, 1))


def states(study: Any) -> list[str]:
    return [trial.state.name for trial in study.trials]


def study_of(kind: str, tmp_path: Path) -> Any:
    storage: Any = {
        "memory": None,
        "sqlite": f"sqlite:///{tmp_path}/study.db",
        "sqlite in memory": "sqlite:///:memory:",
        "journal": optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
        ),
    }[kind]
    return optuna.create_study(direction="maximize", storage=storage)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "sqlite in memory", "journal"])
def test_a_study_is_continued_where_it_is(kind: str, tmp_path: Path) -> None:
    study = study_of(kind, tmp_path)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    study.set_user_attr("data", "mnist")
    study.enqueue_trial({"x": 0.125}, user_attrs={"why": "a guess"})
    before, seen = study.trials[:2], []

    def objective(trial: Any) -> float:
        trial.study.set_user_attr("known", [len(trial.study.trials), trial.study.user_attrs["data"]])
        return line(trial)

    def told(of: Any, trial: Any) -> None:
        assert of is study and of.trials == [*of.trials[: trial.number], trial], "the study is current while it runs"
        assert trial.state.name == "COMPLETE", ob.attach(trial.user_attrs["outbid"].split("/")[0]).traceback(1)
        seen.append((trial.number, trial.params["x"], len(of.trials)))
        if trial.number == 3:
            of.enqueue_trial({"x": 0.875})
        if trial.params["x"] == 0.875:
            of.stop()

    returned = optimize(study, objective, n_trials=200, callbacks=[told])
    assert returned is study and study.trials[:2] == before
    assert study.trials[2].params == {"x": 0.125} and study.trials[2].user_attrs["why"] == "a guess"
    assert [trial.params["x"] for trial in study.trials[4:]] == [0.875], "callbacks are called before the next trial"
    assert study.best_value == max(t.value for t in study.trials if t.value is not None)
    done = [t for t in study.trials[2:] if t.state.name == "COMPLETE"]
    assert [t.user_attrs["size"] for t in done] == [(t.number,) for t in done]
    assert done[0].intermediate_values == {0: 0.5} and done[0].datetime_start < done[0].datetime_complete
    assert study.user_attrs["known"][0] > 2 and study.user_attrs["known"][1] == "mnist"
    assert sorted(number for number, _, _ in seen) == [t.number for t in done][: len(seen)]
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)  # continues the study with Optuna's loop
    assert study.trials[-1].state.name == "COMPLETE"


def test_trials_of_several_jobs_do_not_run_far_ahead_of_callbacks() -> None:
    ahead: list[int] = []

    def told(of: Any, trial: Any) -> None:
        ahead.append(len(of.trials) - len(ahead))
        if len(ahead) == 20:
            of.stop()

    assert len(optimize(line, n_trials=1000, n_jobs=2, callbacks=[told]).trials) < 30
    assert max(ahead) < 10, ahead


def test_nobody_waits_long_for_callbacks_of_a_process_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optuna_work, "_CALLBACK_SECONDS", 0.05)
    study = optuna.create_study()
    name, sampler, pruner = study.study_name, study.sampler, study.pruner
    work = Work(
        line, "", name, sampler, pruner, seeds={}, before=0, caught=(), collect=False, folder=None, callbacks=True
    )
    rested: list[float] = []

    class Waiting:
        """A trial that records waits without waiting."""

        _verdict = 0

        def _rest(self, seconds: float) -> None:
            rested.append(seconds)

    def wait() -> int:
        before = len(rested)
        work._await_callbacks(study, Waiting(), "s")  # type: ignore[arg-type]
        return len(rested) - before

    assert wait() == 0, "no trial has ended"
    for number in range(2):
        asked = study.ask()
        asked.set_user_attr(ATTRIBUTE, f"s/{number}")
        study.tell(asked, 0.0)
    assert wait() > 0 and wait() == 0, "it gives up once"
    call_for(study, "s", 1)
    assert wait() > 0, "somebody calls callbacks again"
    call_for(study, "s", 2)
    assert wait() == 0


@pytest.mark.filterwarnings("ignore:.*re-evaluat")
def test_without_a_number_of_trials_the_sampler_or_the_study_ends_it() -> None:
    def grid(trial: Any) -> float:
        return float(trial.suggest_int("x", 1, 3) * trial.suggest_int("y", 4, 5))

    ours, theirs = (optuna.create_study(sampler=optuna.samplers.BruteForceSampler(seed=1)) for _ in range(2))
    optimize(ours, grid)
    theirs.optimize(grid)
    assert sorted(t.values for t in ours.trials) == sorted(t.values for t in theirs.trials)

    def stopping(trial: Any) -> float:
        if trial.number == 2:
            trial.study.stop()
        return line(trial)

    assert states(optimize(stopping)) == ["COMPLETE"] * 3
    assert states(optimize(stopping, None)) == ["COMPLETE"] * 3
    most = optuna.study.MaxTrialsCallback(2)
    assert len(optimize(line, callbacks=[most]).trials) >= 2


class Raising(optuna.samplers.RandomSampler):  # type: ignore[misc,name-defined]
    """Raises in one of the methods that a study calls."""

    def __init__(self, where: str) -> None:
        super().__init__(seed=1)
        self.where = where

    def _in(self, where: str) -> None:
        if where == self.where:
            raise LookupError(f"of {where}")

    def before_trial(self, *given: Any) -> None:
        self._in("before_trial")

    def infer_relative_search_space(self, *given: Any) -> Any:
        self._in("infer_relative_search_space")
        return super().infer_relative_search_space(*given)

    def sample_relative(self, *given: Any) -> Any:
        self._in("sample_relative")
        return super().sample_relative(*given)

    def sample_independent(self, *given: Any) -> Any:
        self._in("sample_independent")
        return super().sample_independent(*given)

    def after_trial(self, *given: Any) -> None:
        self._in("after_trial")


@pytest.mark.parametrize("catch", [(), (LookupError,)])
@pytest.mark.parametrize(
    "where", ["before_trial", "infer_relative_search_space", "sample_relative", "sample_independent", "after_trial"]
)
def test_a_samplers_error_is_raised_where_optuna_raises_it(where: str, catch: Any) -> None:
    def run(of: Any) -> tuple[str, list[str]]:
        study = optuna.create_study(sampler=Raising(where))
        try:
            of(study)
        except LookupError as error:
            return str(error), states(study)[:1]
        except ob.SweepFailedError:  # all of its trials failed
            return "caught", states(study)[:1]
        return "caught", states(study)[:1]

    ours = run(lambda study: optimize(study, line, n_trials=3, catch=catch))
    theirs = run(lambda study: study.optimize(line, n_trials=3, catch=catch))
    assert ours == theirs


def test_a_trial_whose_process_is_gone_is_retried(tmp_path: Path) -> None:
    new = hasattr(optuna.storages, "RetryHeartbeatStaleTrialCallback")  # since Optuna 4.9
    retry = getattr(optuna.storages, "RetryHeartbeatStaleTrialCallback" if new else "RetryFailedTrialCallback")
    named = "heartbeat_stale_trial_callback" if new else "failed_trial_callback"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{tmp_path}/study.db", heartbeat_interval=60, grace_period=120, **{named: retry(max_retry=2)}
        )
    study = optuna.create_study(storage=storage)

    def dying(trial: Any) -> float:
        x = trial.suggest_float("x", 0, 1)
        if not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return float(x)

    optimize(study, dying, n_trials=3)
    assert states(study)[0] == "FAIL"
    (again,) = [t for t in study.trials if retry.retry_history(t)]
    assert again.params == study.trials[0].params and again.state.name in ("COMPLETE", "WAITING")
    assert states(study).count("COMPLETE") == 2


best_model: Any = None
losses: list[float] = []
loaded: Any = None


def careless(trial: Any) -> float:
    global best_model
    loss = line(trial)
    if best_model is None or loss < min(losses):
        best_model = object()
    losses.append(loss)
    return loss


def careful(trial: Any) -> float:
    global loaded
    if loaded is None:
        loaded = [1, 2, 3]
    trial.set_user_attr("model", loaded)
    return line(trial)


def test_changes_outside_the_objective_are_warned_of_once() -> None:
    with pytest.warns(UserWarning, match="the objective changes 'best_model', 'losses' outside of itself") as warned:
        optimize(careless, 6, n_jobs=-1)
    assert len([w for w in warned if w.category is UserWarning]) == 1
    assert best_model is None and not losses
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        study = optimize(careful, 6)
    assert study.best_trial.user_attrs["model"] == [1, 2, 3]
