"""Files and the best checkpoints in the directory of a Ray Tune trial, and restored configurations."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest

from outbid import tune
from outbid.tune import _session
from outbid.tune._encoding import decode, encode
from outbid.tune._plan import Plan
from outbid.tune._result_files import read_results
from outbid.tune._results import result_of
from outbid.tune._session import Session
from outbid.tune.logger import pretty_print


class Own:
    """The parts of Outbid's trial that a session uses."""

    def __init__(self, start_step: int = 0, config: Any = None) -> None:
        self.number, self.start_step = 0, start_step
        self.metadata: dict[str, Any] = {}
        self._a = types.SimpleNamespace(config_json=json.dumps(config or {}))

    def checkpoint(self) -> None:
        """Return None, for a trial without a checkpoint."""

    def save(self, path: str, metadata: Any) -> None:
        """Do nothing."""

    def report(self, numbers: Any, step: Any) -> None:
        """Do nothing."""


def plan_of(folder: Path, **rules: Any) -> Plan:
    """Return an experiment in a directory, with these options for checkpoints."""
    return Plan(
        None, "f", str(folder), "p", {}, "acc", "max", tune.PlacementGroupFactory([{"CPU": 1}]),
        tune.CheckpointConfig(**rules),
    )  # fmt: skip


def session_of(plan: Plan, start_step: int = 0) -> Session:
    """Return the session of a trial that starts or continues at a step."""
    own: Any = Own(start_step)
    return Session(plan, own)


def say(session: Session, values: list[float | None]) -> None:
    """Report values, each with a checkpoint that contains it. None is a report without the metric."""
    for value in values:
        with session.checkpoint_dir() as place:
            Path(place, "acc").write_text(str(value))
        session.report({} if value is None else {"acc": value})


def kept(session: Session) -> list[str]:
    """Return the contents of the checkpoints in the trial's directory, in order."""
    assert session.folder is not None
    return [(path / "acc").read_text() for path in sorted(session.folder.glob("checkpoint_*"))]


def test_the_best_checkpoints_stay_beside_the_newest(tmp_path: Path) -> None:
    score: dict[str, Any] = {"checkpoint_score_attribute": "acc"}
    for i, (rules, values, stay) in enumerate(
        [
            ({"num_to_keep": 1, **score}, [1, 9, 3, 2], ["9", "2"]),
            ({"num_to_keep": 1, **score}, [1, 9, 3, 9], ["9"]),
            ({"num_to_keep": 2, **score, "checkpoint_score_order": "min"}, [5, 1, 2, 9], ["1", "2", "9"]),
            ({"num_to_keep": 2, **score}, [float("nan"), 3, None, 2, 1], ["3", "2", "1"]),
            ({"num_to_keep": 2}, [4, 3, 2, 1], ["2", "1"]),
            ({}, [2, 1], ["2", "1"]),
        ]
    ):
        session = session_of(plan_of(tmp_path / str(i), **rules))
        say(session, values)  # type: ignore[arg-type]
        session.close()
        assert kept(session) == stay, (rules, values)


def test_a_trial_that_goes_on_knows_which_checkpoints_were_the_best(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path, num_to_keep=2, checkpoint_score_attribute="eval/acc", checkpoint_score_order="min"
    )  # fmt: skip
    for start, values in ((0, [1.0, 7.0, 2.0]), (3, [5.0, 9.0])):
        session = session_of(plan, start)
        for value in values:
            with session.checkpoint_dir() as place:
                Path(place, "acc").write_text(str(value))
            session.report({"eval": {"acc": value}})
        session.close()
    assert kept(session) == ["1.0", "2.0", "9.0"]


def test_a_results_best_checkpoints_go_by_their_score(tmp_path: Path) -> None:
    session = session_of(plan_of(tmp_path, num_to_keep=2, checkpoint_score_attribute="acc"))
    say(session, [5, 9, 7, 1])
    session.close()
    trial = session.trial
    trial.history = read_results(Path(trial.local_path))
    for result in trial.history:
        path = Path(trial.local_path, result["checkpoint_dir_name"])
        if path.is_dir():
            trial.checkpoints.append((tune.Checkpoint(path), result))
    found = result_of(trial)
    assert [m["acc"] for _, m in found.best_checkpoints] == [7, 9]
    newest, best = found.checkpoint, found.get_best_checkpoint("acc", "max")
    assert newest is not None and Path(newest.path, "acc").read_text() == "1"
    assert best is not None and Path(best.path, "acc").read_text() == "9"


def test_names_in_chosen_dicts_keep_their_order() -> None:
    space = {
        "net": tune.grid_search([{"z": 1, "a": 2}, {"kind": "svm", "C": tune.uniform(0, 1)}]),
        "layers": [{"type": "conv", "size": 3}, {"type": "fc", "n": tune.randint(1, 9)}],
        "stack": tune.choice([[{"q": 1, "b": 2}], 5]),
    }
    for net in ({"z": 1, "a": 2}, {"kind": "svm", "C": 0.5}):
        config = {
            "net": net, "layers": [{"type": "conv", "size": 3}, {"type": "fc", "n": 4}], "stack": [{"q": 1, "b": 2}],
        }  # fmt: skip
        sent = json.loads(json.dumps(encode(config), sort_keys=True))  # as the server writes it
        assert json.dumps(decode(sent, space)) == json.dumps(config)


def test_several_objectives_have_no_best_trial_by_themselves() -> None:
    from outbid.tune._driver import _goal
    from outbid.tune.schedulers import FIFOScheduler
    from outbid.tune.search.optuna import OptunaSearch

    alone = tune.TuneConfig()
    several = OptunaSearch(metric=["loss", "cost"], mode=["min", "max"])
    assert _goal(alone, several, FIFOScheduler()) == ("loss", "min", True)
    assert _goal(alone, OptunaSearch(metric="loss", mode="min"), FIFOScheduler()) == ("loss", "min", False)
    from outbid.tune._tuner import _grid

    made: Any = types.SimpleNamespace(trials=[session_trial(), session_trial()], plan=plan_of(Path("/none")))
    made.plan.several = True
    with pytest.raises(ValueError, match="name a metric"):
        _grid(made, alone).get_best_result()
    assert _grid(made, alone).get_best_result("acc", "max").metrics == {"acc": 1}


def session_trial() -> Any:
    """Return a trial that has reported once."""
    trial = plan_of(Path("/none")).trial(0, {})
    trial.history = [{"acc": 1}]
    trial.last_result = {"acc": 1}
    return trial


def test_what_is_no_metric_is_said() -> None:
    for wrong in ([1], "0.5", {1}):
        with pytest.raises(TypeError, match="takes a dict of metrics, or a number"):
            _session.report(wrong)
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_sample'"):
        tune.run(print, num_sample=3)
    with pytest.raises(tune.UnsupportedError, match=r"upload_dir of tune\.run"):
        tune.run(print, upload_dir="s3://somewhere")
    with pytest.raises(ValueError, match="param_space must be a dict, got 5"):
        tune.Tuner(print, param_space=5).fit()  # type: ignore[arg-type]


def test_a_mode_alone_asks_for_no_metric_where_nobody_compares_trials() -> None:
    from outbid.tune._driver import _goal
    from outbid.tune.schedulers import ASHAScheduler, FIFOScheduler
    from outbid.tune.search import BasicVariantGenerator
    from outbid.tune.search.optuna import OptunaSearch

    by_mode = tune.TuneConfig(mode="min")
    assert _goal(by_mode, BasicVariantGenerator(), FIFOScheduler()) == (None, "min", False)
    assert _goal(by_mode, BasicVariantGenerator(), ASHAScheduler()) == ("_metric", "min", False)
    assert _goal(by_mode, OptunaSearch(), FIFOScheduler()) == ("_metric", "min", False)


def test_numbers_of_samples_are_whole() -> None:
    assert tune.TuneConfig(num_samples=1e3).num_samples == 1000  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"num_samples must be a whole number, got 2\.5"):
        tune.TuneConfig(num_samples=2.5)  # type: ignore[arg-type]


def test_a_checkpoint_that_is_not_there_is_said_by_its_name(tmp_path: Path) -> None:
    session = session_of(plan_of(tmp_path))
    with pytest.raises(FileNotFoundError, match="the checkpoint's directory /no/such does not exist"):
        session.report({"acc": 1}, tune.Checkpoint("/no/such"))
    session.close()


def test_what_save_checkpoint_returns_may_be_of_no_consequence() -> None:
    class Saves(tune.Trainable):
        def save_checkpoint(self, checkpoint_dir: str) -> Any:
            Path(checkpoint_dir, "acc").write_text("1")
            return True

    assert Path(Saves({}).save().path, "acc").read_text() == "1"


def test_who_said_no_metric_has_no_best_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = types.SimpleNamespace(trials=[session_trial(), session_trial()], plan=plan_of(tmp_path))
    monkeypatch.setattr("outbid.tune._run.run_new", lambda *args, **more: made)
    made.plan.metric = "training_iteration"
    with pytest.raises(ValueError, match="metric"):
        _ = tune.run(print).best_config
    assert tune.run(print).get_best_config("acc", "max") == {}
    made.plan.metric = "acc"  # given to the scheduler
    assert tune.run(print).best_config == {}


def test_a_result_as_text_has_what_is_nested_below_its_name() -> None:
    result = {"b": {"z": 1, "a": {"q": None}}, "a": "x y", "config": {"lr": 1}, "none": None, "t": True, "l": [1, 2]}
    assert pretty_print(result) == "a: x y\nb:\n  a:\n    q: null\n  z: 1\nl: [1, 2]\nt: true\n"
    assert pretty_print(result, {"b", "l", "t"}) == "a: x y\n"
