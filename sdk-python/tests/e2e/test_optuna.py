"""Optuna's objectives on a real server, compared with Optuna's loop."""

from __future__ import annotations

import gc
import itertools
import pickle
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import outbid as ob

optuna = pytest.importorskip("optuna")

import outbid.integrations.optuna.optimize  # noqa: E402
import outbid.optuna  # noqa: E402
from outbid.integrations.optuna import trial_process  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


def optimize(objective: Any, n_trials: int | None = None, **given: Any) -> Any:
    return outbid.optuna.optimize(objective, n_trials, **{"display": False, "n_jobs": 1, **given})


def line(trial: Any) -> float:
    return float(trial.suggest_float("x", 0, 1)) + float(trial.suggest_int("n", 0, 5))


def states(study: Any) -> list[str]:
    return [trial.state.name for trial in study.trials]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("sampler", ["RandomSampler", "TPESampler"])
def test_a_seed_draws_the_same_trials_again(sampler: str) -> None:
    drawn = [
        [trial.params for trial in optimize(line, 12, sampler=getattr(optuna.samplers, sampler)(seed=3)).trials]
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]
    assert len({trial["x"] for trial in drawn[0]}) == 12, "each draws its own"


def test_trials_without_a_value_are_as_in_optuna(real: ob.Client) -> None:
    def objective(trial: Any) -> Any:
        trial.suggest_float("x", 0, 1)
        if trial.number == 0:
            raise optuna.TrialPruned
        return {1: None, 2: float("nan"), 3: (1.0,), 4: [1.0, 2.0], 5: float("inf")}.get(trial.number, 0.5)

    ours = optimize(objective, 7)
    theirs = optuna.create_study()
    theirs.optimize(objective, n_trials=7)
    assert states(ours) == states(theirs)
    assert [t.values for t in ours.trials] == [t.values for t in theirs.trials]
    sweep = real.attach(ours.trials[0].user_attrs["outbid"].split("/")[0]).result()
    assert [t.state for t in sweep.trials][:3] == ["pruned", "failed", "completed"], "pruned by hand is no failure"
    assert (sweep.trials[0].metric, dict(sweep.trials[0].metrics)) == (None, {}), "and has no value"
    assert sweep.trials[0].reason == "its code pruned it at step 0"
    assert not [note.text for note in sweep.sweep.notes if note.trial == 0]
    assert "returned None; it must return a number" in sweep.trials[1].reason


@pytest.mark.usefixtures("real")
def test_what_is_not_caught_is_raised(tmp_path: Path) -> None:
    def objective(trial: Any) -> Any:
        trial.suggest_float("x", 0, 1)
        if trial.number == 3:
            raise KeyError("gone")
        if trial.number == 1:
            raise ValueError("caught")
        return None if trial.number == 2 else 1.0

    storage = outbid.integrations.optuna.sweep_study.kept(f"{tmp_path}/study.log")
    study = optuna.create_study(study_name="raises", storage=storage)
    with pytest.raises(KeyError, match="gone"):
        optimize(objective, 50, catch=(ValueError,), storage=storage, study_name="raises")
    assert states(study) == ["COMPLETE", "FAIL", "FAIL", "FAIL"], "the others are not run"


@pytest.mark.usefixtures("real")
def test_what_is_suggested_stands_in_the_sweep() -> None:
    def objective(trial: Any) -> float:
        trial.set_user_attr("size", [1, 2])
        return (
            float(trial.suggest_float("x", 0, 1))
            + float(trial.suggest_int("deep.n", 1, 1))
            + float(trial.suggest_int("x.n", 2, 2))
        )

    study = optimize(objective, 2)
    result = ob.load(study.best_trial.user_attrs["outbid"].split("/")[0])
    assert result.best.config == {"study": study.study_name, "x": study.best_params["x"], "x.n": 2, "deep": {"n": 1}}
    assert result.best.attributes == {"size": [1, 2]}


@pytest.mark.usefixtures("real")
def test_names_of_any_length_are_in_the_study_and_shortened_in_the_sweep() -> None:
    def objective(trial: Any) -> float:
        trial.set_user_attr("n" * 400, 1)
        return float(sum(trial.suggest_int(name, n, n) for n, name in enumerate(("x" * 249, "y" * 250, "z\n" * 300))))

    (trial,) = optimize(objective, 1).trials
    assert trial.state.name == "COMPLETE" and trial.value == 3
    assert list(trial.params.values()) == [0, 1, 2] and trial.user_attrs["n" * 400] == 1
    (there,) = ob.load(trial.user_attrs["outbid"].split("/")[0]).trials
    assert sorted(map(len, there.config)) == [5, 99, 99, 249] and list(there.attributes.values()) == [1]


@pytest.mark.usefixtures("real")
def test_a_value_beyond_all_floats_fails_its_trial_with_a_reason() -> None:
    with pytest.raises(ob.SweepFailedError, match="a whole number that is too large for a float"):
        optimize(lambda trial: 10**400, 1)


def test_what_optunas_loop_takes_is_taken(tmp_path: Path) -> None:
    """Garbage is collected in the process that ran the trial, before the next trial."""

    def objective(trial: Any) -> float:
        import gc
        import weakref

        class Cycle:
            itself: Any

        gc.disable()
        cycle = Cycle()
        cycle.itself = cycle
        weakref.finalize(cycle, (tmp_path / f"gone-{trial.number}").touch).atexit = False
        return float((tmp_path / "gone-0").exists())

    study = optimize(objective, 2, gc_after_trial=True, show_progress_bar=False, callbacks=None)
    assert [trial.value for trial in study.trials] == [0.0, 1.0]


def test_text_is_one_value() -> None:
    def objective(trial: Any) -> Any:
        return "0.25"

    assert optimize(objective, 1).best_value == 0.25


@pytest.mark.usefixtures("real")
def test_an_objective_stops_its_study() -> None:
    def objective(trial: Any) -> float:
        if trial.number == 2:
            trial.study.stop()
        return line(trial)

    assert states(optimize(objective, 500)) == ["COMPLETE"] * 3


@pytest.mark.usefixtures("real")
@pytest.mark.filterwarnings("ignore:.*re-evaluat")
@pytest.mark.parametrize("kind", ["GridSampler", "BruteForceSampler"])
def test_a_sampler_that_has_drawn_everything_ends_the_study(kind: str) -> None:
    def objective(trial: Any) -> float:
        return float(trial.suggest_int("x", 1, 3) * trial.suggest_int("y", 4, 5))

    grid = [{"x": [1, 2, 3], "y": [4, 5]}] if kind == "GridSampler" else []
    ours = optimize(objective, 30, sampler=getattr(optuna.samplers, kind)(*grid))
    theirs = optuna.create_study(sampler=getattr(optuna.samplers, kind)(*grid))
    theirs.optimize(objective, n_trials=30)
    assert sorted(t.values for t in ours.trials) == sorted(t.values for t in theirs.trials)
    assert states(ours) == states(theirs) == ["COMPLETE"] * 6


@pytest.mark.usefixtures("real")
def test_callbacks_are_called_and_stop_the_study() -> None:
    seen = []

    def took(study: Any, trial: Any) -> None:
        seen.append((trial.number, trial.value))

    most = optuna.study.MaxTrialsCallback(3, states=(optuna.trial.TrialState.COMPLETE,))
    study = optimize(line, 2000, callbacks=[took, most])
    assert 3 <= len(study.trials) < 2000 and seen[0] == (0, study.trials[0].value)

    def raising(study: Any, trial: Any) -> None:
        raise ZeroDivisionError("of the callback")

    with pytest.raises(ZeroDivisionError, match="of the callback"):
        optimize(line, 3, callbacks=[raising])


@pytest.mark.usefixtures("real")
def test_a_timeout_ends_the_study() -> None:
    def objective(trial: Any) -> float:
        for step in itertools.count():
            trial.report(0.0, step)
        return 0.0

    study = optimize(objective, timeout=3)
    assert set(states(study)) == {"FAIL"}, "none is left running"


def test_a_study_is_kept_in_a_storage_of_optunas(real: ob.Client, tmp_path: Any) -> None:
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/study.db")
    optuna.create_study(study_name="mine", storage=storage).enqueue_trial({"x": 0.125})
    study = optimize(line, 3, storage=storage, study_name="mine", n_jobs=-1)
    assert len(study.trials) == 3 and study.trials[0].params["x"] == 0.125


_ready: Any = None  # in a process of the pool: the barrier


def _begin(ready: Any) -> None:
    global _ready
    _ready = ready


def _asked(url: str) -> list[int]:
    """Return the numbers of eight trials; three processes ask at the same time."""
    study = optuna.load_study(study_name="mine", storage=url)
    _ready.wait()
    return [trial_process._ask(study, url).number for _ in range(8)]


def test_trials_that_wait_in_a_file_of_sqlites_are_given_out_once(tmp_path: Path) -> None:
    url, context = f"sqlite:///{tmp_path}/study.db", get_context("spawn")
    study = optuna.create_study(study_name="mine", storage=url)
    for x in range(24):
        study.enqueue_trial({"x": x})
    with ProcessPoolExecutor(3, context, _begin, (context.Barrier(3, timeout=300),)) as processes:
        asked = [processes.submit(_asked, url) for _ in range(3)]
        assert sorted(number for one in asked for number in one.result()) == list(range(24))


def test_ctrl_c_says_where_the_study_is(real: ob.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(sweep: ob.Sweep, **_: Any) -> None:
        sweep.submit(real).wait(100)
        raise KeyboardInterrupt("paused")

    monkeypatch.setattr(ob.Sweep, "run", run)
    with pytest.raises(KeyboardInterrupt, match=r"^paused; its study: optuna\.load_study") as said:
        optimize(line, 2)
    study = eval(str(said.value).partition("its study: ")[2])
    assert states(study) == ["COMPLETE"] * 2


def test_ctrl_c_before_a_sweep_is_submitted_leaves_it_so(real: ob.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = []

    def submit(sweep: ob.Sweep, _: Any = None) -> Any:
        submitted.append(sweep)
        raise KeyboardInterrupt("early")

    monkeypatch.setattr(ob.Sweep, "submit", submit)
    with pytest.raises(KeyboardInterrupt, match="early"):
        optimize(line, 2)
    assert len(submitted) == 1


def test_no_trials_are_an_empty_study(tmp_path: Path) -> None:
    def started() -> Any:
        raise AssertionError("a server is needed for nothing")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbid.integrations.optuna.optimize, "default_client", started)
        ours = optimize(line, 0, direction="maximize")
        storage = f"sqlite:///{tmp_path}/study.db"
        optuna.create_study(study_name="mine", storage=storage).enqueue_trial({"x": 1})
        assert states(optimize(line, 0, storage=storage, study_name="mine")) == ["WAITING"]
    theirs = optuna.create_study(direction="maximize")
    theirs.optimize(line, n_trials=0)
    assert (ours.trials, ours.direction) == (theirs.trials, theirs.direction)


@pytest.mark.usefixtures("real")
def test_a_study_that_nobody_named_a_storage_for_is_in_memory_at_the_end(tmp_path: Path) -> None:
    held: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        sampler = optuna.samplers.TPESampler(seed=1)
        study = optimize(line, 3, sampler=sampler, callbacks=[lambda study, trial: held.append(study)])
    assert len(held[0].trials) == 3, "what a callback kept can be asked still"
    assert [t.values for t in held[0].trials] == [t.values for t in study.trials]
    assert [t.number for t in study.trials] == [0, 1, 2] and study.sampler is sampler
    held.clear()
    gc.collect()
    assert not list(tmp_path.iterdir())
    again = pickle.loads(pickle.dumps(study))
    again.optimize(line, n_trials=2)
    assert (again.best_value <= study.best_value) and len(again.trials) == 5


@pytest.mark.filterwarnings("ignore:`constraints_func` has been deprecated:FutureWarning")
@pytest.mark.parametrize("how", ["set_constraint", "constraints_func"])
def test_constraints_stand_in_the_sweep_and_the_best_of_the_study_keeps_them(real: ob.Client, how: str) -> None:
    def objective(trial: Any) -> float:
        if how == "set_constraint":
            trial.set_constraint("0", 0.5 - trial.number)
        trial.suggest_float("x", 0, 1)
        return float(trial.number)

    def kept(trial: Any) -> list[float]:
        return [0.5 - trial.number]

    if how == "set_constraint" and not hasattr(optuna.Trial, how):
        pytest.skip("Optuna has it since version 5")
    given: Any = {"constraints_func": kept} if how == "constraints_func" else {}
    ours = optimize(objective, 3, sampler=optuna.samplers.TPESampler(seed=1, **given))
    theirs = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1, **given))
    theirs.optimize(objective, n_trials=3)
    assert ours.best_trial.number == theirs.best_trial.number == 1
    trials = real.attach(ours.trials[0].user_attrs["outbid"].split("/")[0]).result().trials
    assert [list(t.attributes["constraints"].values()) for t in trials] == [[0.5], [-0.5], [-1.5]]


def test_an_objective_that_is_given_to_a_sweep_is_sent_here(real: ob.Client) -> None:
    sweep = ob.Sweep(line, {"x": ob.uniform(0, 1)}, metric="value", mode="min", trials=1, max_restarts=0)
    with pytest.raises(ob.SweepFailedError, match=r"no attribute 'suggest_float'; outbid\.optuna\.optimize\(objective"):
        sweep.run(client=real, display=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"direction": "minimize", "study": True}, "optimize: direction must be left out if the study exists already"),
        ({"n_trials": 1, "sampler": "tpe"}, "optimize: sampler must be one of optuna.samplers, got 'tpe'"),
        ({"n_trials": 1, "pruner": "median"}, "optimize: pruner must be one of optuna.pruners, got 'median'"),
        ({"n_trials": -1}, "optimize: n_trials must be at least 0, got -1"),
        ({"n_trials": "5"}, "optimize: n_trials must be a whole number, got '5'"),
        ({"n_trials": 1, "n_jobs": -2}, "optimize: n_jobs must be at least 1 or -1, got -2"),
        ({"n_trials": 1, "timeout": -1}, "optimize: timeout: a duration must be above 0 seconds, got -1"),
        ({"n_trials": 1, "catch": "all"}, "optimize: catch must be a list of exceptions, got 'all'"),
        ({"n_trials": 1, "catch": [3]}, r"optimize: catch must be exceptions such as \(ValueError,\), got 3"),
        ({"n_trials": 1, "callbacks": print}, "optimize: callbacks must be a list of functions of a study and a trial"),
        ({"n_trials": 1, "storage": 5}, "optimize: storage must be one of optuna.storages or its URL, got 5"),
        ({"n_trials": 1, "storage": optuna.storages.InMemoryStorage()}, "optimize: storage must be one that workers"),
    ],
)
@pytest.mark.usefixtures("real")
def test_what_cannot_be_is_said(given: dict[str, Any], message: str) -> None:
    first = [optuna.create_study()] if given.pop("study", False) else []
    with pytest.raises((TypeError, ValueError), match=message):
        outbid.optuna.optimize(*first, line, display=False, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "optimize: a function of a trial is missing"),
        ((5,), "optimize: objective must be a function of a trial, got 5"),
        ((line, 1, 2), r"optimize: expected \(objective, n_trials\) or \(study, objective, n_trials\)"),
    ],
)
def test_what_is_given_by_position_is_checked(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        outbid.optuna.optimize(*given)
