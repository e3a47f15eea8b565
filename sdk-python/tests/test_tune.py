"""Ray Tune's API without a server: spaces, encoded configurations, schedulers, search algorithms, stoppers."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outbid import air, train, tune
from outbid.tune._controller import merge
from outbid.tune._encoding import decode, encode, keep_large
from outbid.tune._missing_metric import MissingMetric
from outbid.tune._object_store import Kept, by_name, put
from outbid.tune._plan import met, name_of
from outbid.tune._sample import Categorical, Rng
from outbid.tune._searcher_state import Learned, learn, learned
from outbid.tune._trial import Trial
from outbid.tune._variants import preset, variants
from outbid.tune.schedulers import (
    PB2,
    AsyncHyperBandScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
)
from outbid.tune.schedulers._base import Exploit
from outbid.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from outbid.tune.search.optuna import OptunaSearch


class Thing:
    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing) and other.name == self.name

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "config",
    [
        {"lr": 0.1, "layers": 3, "name": "sgd", "on": True, "none": None, "list": [1, 2.5], "nest": {"a": {"b": 0.5}}},
        {"whole": 1.0, "nest": {"x": [2.0, {"y": -3.0}]}, "int": 1},
        {"tuple": (1, 2.0), "object": Thing("a"), "set": {1, 2}, 3: "key", "inf": float("inf"), "nz": -0.0},
        {"numpy": np.float64(1.5), "array": [np.int64(3)], "big": 1 << 70},
    ],
)
def test_a_configuration_arrives_as_it_was(config: dict[str, Any]) -> None:
    sent = json.loads(json.dumps(encode(config)))
    # The server writes whole numbers without a decimal point.
    text = json.dumps(sent).replace(".0,", ",").replace(".0}", "}").replace(".0]", "]")
    for back in (decode(sent), decode(json.loads(text))):
        assert back == config
        assert [type(v) for v in back.values()] == [type(v) for v in config.values()]


def test_grids_are_a_product_whose_first_changes_fastest() -> None:
    space = {"b": tune.grid_search([1, 2]), "a": {"x": tune.grid_search(["p", "q"])}, "c": 7}
    found = [config for _, config in variants(space, Rng(0))]
    assert [(c["a"]["x"], c["b"]) for c in found] == [("p", 1), ("q", 1), ("p", 2), ("q", 2)]
    assert all(c["c"] == 7 for c in found)


def test_parameters_that_depend_on_later_ones_are_drawn_after_them() -> None:
    space = {
        "double": tune.sample_from(lambda spec: 2 * spec.config.nest.base),
        "twice": tune.sample_from(lambda config: config["double"] + 1),
        "nest": {"base": tune.randint(3, 4)},
    }
    ((_, config),) = variants(space, Rng(0))
    assert config == {"double": 6, "twice": 7, "nest": {"base": 3}}
    with pytest.raises(RuntimeError, match="not drawn yet"):
        list(
            variants({"a": tune.sample_from(lambda s: s.config.b), "b": tune.sample_from(lambda s: s.config.a)}, Rng(0))
        )
    with pytest.raises(ValueError, match="parameter a could not be drawn: ZeroDivisionError"):
        list(variants({"a": tune.sample_from(lambda s: 1 / 0)}, Rng(0)))


def test_points_replace_the_first_samples() -> None:
    space = {"a": tune.grid_search([1, 2]), "b": tune.randint(0, 3)}
    drawn = [c for _, c in BasicVariantGenerator([{"a": 2, "b": 2}, {"b": 2}], random_state=0).draw(space, 3)]
    assert [(c["a"], c["b"]) for c in drawn[:3]] == [(2, 2), (1, 2), (2, 2)]
    assert len(drawn) == 5
    with pytest.raises(ValueError, match="the space has no 'c'"):
        list(preset(space, {"c": 1}, Rng(0)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tune.loguniform(-4, -1), "above 0"),
        (lambda: tune.quniform(0, 1, 0.3), "not a multiple"),
        (lambda: tune.randn(0, 0), "sd must be above 0"),
        (lambda: tune.lograndint(0, 5), "above 0"),
        (lambda: tune.sample_from(lambda a, b: 1), "must take no argument"),
        (lambda: tune.TuneConfig(mode="up"), "'min' or 'max'"),
        (lambda: tune.TuneConfig(num_samples=0), "at least 1"),
        (lambda: tune.CheckpointConfig(num_to_keep=0), "above 0"),
        (lambda: tune.FailureConfig(max_failures=1, fail_fast=True), "fail_fast"),
        (lambda: AsyncHyperBandScheduler(max_t=1, grace_period=2), "below grace_period"),
        (lambda: PopulationBasedTraining(), "hyperparam_mutations or custom_explore_fn"),
        (lambda: PB2(), "hyperparam_bounds"),
        (lambda: ConcurrencyLimiter(OptunaSearch(), 0), "above 0"),
        (lambda: PopulationBasedTrainingReplay("/no/such/policy"), "no file /no/such/policy"),
        (lambda: tune.Tuner("nobody").fit(), "no trainable 'nobody'"),
        (lambda: tune.Tuner(lambda: None).fit(), "must take the configuration"),
        (lambda: tune.Tuner(lambda config, data: None).fit(), "'data'.*with_parameters"),
        (lambda: tune.ResumeConfig(errored="again"), "again"),
        (lambda: tune.run(print, name="x", resume="NEVER"), "AUTO\\+ERRORED"),
        (lambda: tune.ExperimentAnalysis(trials=[]).dataframe(mode="max"), "needs a metric"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_what_is_not_here_says_what_to_use() -> None:
    from outbid.tune.search.hyperopt import HyperOptSearch  # type: ignore[import-not-found]
    from outbid.tune.suggest.ax import AxSearch  # type: ignore[import-not-found]

    for make, use in [
        (HyperOptSearch, "OptunaSearch"),
        (AxSearch, "GPSampler"),
        (lambda: tune.create_searcher("bohb"), "HyperBandForBOHB"),
        (lambda: train.get_dataset_shard(), "with_parameters"),
        (lambda: tune.RunConfig(storage_filesystem=1), "storage_path"),
        (lambda: tune.Tuner(print, run_config=tune.RunConfig(storage_path="s3://b/x")).fit(), "storage_path"),
    ]:
        with pytest.raises(tune.UnsupportedError, match=use):
            make()


def test_old_places_have_the_same_things() -> None:
    from outbid.tune.schedulers.pb2 import PB2 as deep  # type: ignore[import-not-found]
    from outbid.tune.suggest.optuna import OptunaSearch as old  # type: ignore[import-not-found]

    from outbid.air import session

    assert deep is PB2 and old is OptunaSearch
    assert session.report is train.report is tune.report
    assert air.RunConfig is train.RunConfig is tune.RunConfig
    assert tune.PlacementGroupFactory([{"CPU": 1}, {"GPU": 2, "CPU": 1}]).required_resources == {"CPU": 2, "GPU": 2}


class Board:
    """The controller interface that schedulers use."""

    def __init__(self, scheduler: Any, n: int, config: dict[str, Any] | None = None) -> None:
        self.scheduler, self.stopped, self.exploited = scheduler, list[Trial](), list[Trial]()
        assert scheduler.set_search_properties("score", scheduler._mode or "max")
        self.trials = [Trial(i, f"t_{i:05d}", "f", dict(config or {})) for i in range(n)]
        for trial in self.trials:
            scheduler.on_trial_add(self, trial)
            trial.status = Trial.RUNNING

    def get_trials(self) -> list[Trial]:
        return self.trials

    def no_more_trials(self) -> bool:
        return True

    def stop_trial(self, trial: Trial) -> None:
        trial.status = Trial.TERMINATED
        self.stopped.append(trial)

    def exploit_trial(self, trial: Trial, decision: Exploit) -> None:
        self.exploited.append(trial)

    def report(self, i: int, step: int, score: float) -> Any:
        decision = self.scheduler.on_trial_result(
            self, self.trials[i], {"training_iteration": step, "score": score, "time_total_s": step}
        )
        if decision == "PAUSE":
            self.trials[i].status = Trial.PAUSED
        elif decision == "STOP":
            self.trials[i].status = Trial.TERMINATED
        return decision


def test_asha_stops_those_below_the_best_third() -> None:
    board = Board(AsyncHyperBandScheduler(max_t=9, grace_period=1, reduction_factor=3), 4)
    assert [board.scheduler.target(board.trials[0], s) for s in (0, 1, 3)] == [1, 3, 9]
    assert [board.report(i, 1, score) for i, score in enumerate((3, 1, 4, 2))] == [
        "CONTINUE", "STOP", "CONTINUE", "STOP",
    ]  # fmt: skip
    assert board.report(0, 9, 3) == "STOP"


def test_hyperband_halves_when_all_are_there() -> None:
    board = Board(HyperBandScheduler(max_t=9), 9)
    assert [board.report(i, 1, i) for i in range(8)] == ["PAUSE"] * 8
    assert board.scheduler.choose_trial_to_run(board) is None
    assert board.report(8, 1, 8) == "CONTINUE"
    assert [t.number for t in board.stopped] == [5, 4, 3, 2, 1, 0]
    assert {t.number for t in board.trials if t.status == Trial.PAUSED} == {6, 7}
    assert board.scheduler.choose_trial_to_run(board) is board.trials[6]


def test_median_stops_what_is_below_the_others_means() -> None:
    board = Board(MedianStoppingRule(time_attr="training_iteration", grace_period=2, min_samples_required=2), 3)
    assert [board.report(i, s, 1.0) for s in (1, 2) for i in (0, 1)] == ["CONTINUE"] * 4
    assert board.report(2, 1, 0.0) == "CONTINUE"
    assert board.report(2, 2, 0.0) == "STOP"


@pytest.mark.parametrize("synch", [False, True])
def test_pbt_lets_the_worst_go_on_from_the_best(synch: bool) -> None:
    pbt = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"lr": [0.1, 1.0, 10.0], "drawn": lambda: 5},
        log_config=False,
        synch=synch,
    )
    board = Board(pbt, 4, {"lr": 1.0})
    assert [t.config["drawn"] for t in board.trials] == [5] * 4
    if synch:
        assert [board.report(i, 2, i) for i in (3, 1, 2)] == ["PAUSE"] * 3
        decision = board.report(0, 2, 0)
    else:
        assert [board.report(i, 1, i) for i in range(4)] == ["CONTINUE"] * 4
        # As no trial waits, the others continue. The first has no other trial to compare with.
        assert board.report(3, 2, 3) == "CONTINUE"
        assert board.report(2, 2, 2).source is board.trials[3]
        assert board.report(1, 2, 1).source is board.trials[3]
        decision = board.report(0, 2, 0)
    assert isinstance(decision, Exploit) and decision.source is board.trials[3]
    assert decision.config["lr"] in (0.1, 1.0, 10.0)


def test_pb2_stays_within_its_bounds() -> None:
    pb2 = PB2(
        time_attr="training_iteration", perturbation_interval=1, hyperparam_bounds={"lr": [0.1, 0.5]}, log_config=False
    )
    board = Board(pb2, 4)
    assert all(0.1 <= t.config["lr"] <= 0.5 for t in board.trials)
    for step in range(1, 8):
        for i, trial in enumerate(board.trials):
            decision = board.report(i, step, step * trial.config["lr"])
            if isinstance(decision, Exploit):
                assert 0.1 <= decision.config["lr"] <= 0.5
                trial.config = decision.config
    assert pb2._num_perturbations > 0


def test_searchers_around_others() -> None:
    class Count(Searcher):
        def __init__(self) -> None:
            super().__init__("score", "max")
            self.n, self.heard = 0, list[Any]()

        def suggest(self, trial_id: str) -> dict[str, Any]:
            self.n += 1
            return {"n": self.n}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            self.heard.append((trial_id, result and result["score"]))

    inner = Count()
    limited = ConcurrencyLimiter(inner, 2)
    assert [limited.suggest(str(i)) for i in range(3)] == [{"n": 1}, {"n": 2}, None]
    limited.on_trial_complete("0", {"score": 3})
    assert limited.suggest("2") == {"n": 3} and inner.heard == [("0", 3)]

    inner = Count()
    repeated = Repeater(inner, 2)
    assert [repeated.suggest(str(i))["n"] for i in range(3)] == [1, 1, 2]
    repeated.on_trial_complete("0", {"score": 1})
    repeated.on_trial_complete("1", {"score": 2})
    assert inner.heard == [("0", 1.5)]


def test_optuna_draws_what_the_space_says() -> None:
    space = {"a": tune.uniform(0, 1), "n": {"b": tune.randint(0, 2), "l": [tune.choice(["x"]), 1]}, "c": 5}
    search = OptunaSearch(seed=1, points_to_evaluate=[{"a": 0.25, "n": {"b": 1}}])
    assert search.set_search_properties("score", "max", space)
    first = merge(space, search.suggest("0"))
    assert first == {"a": 0.25, "n": {"b": 1, "l": ["x", 1]}, "c": 5}
    search.on_trial_complete("0", {"score": 1.0})
    assert 0 <= search.suggest("1")["a"] <= 1
    with pytest.raises(ValueError, match="cannot draw g"):
        OptunaSearch().set_search_properties("score", "max", {"g": tune.grid_search([1])})


def test_stoppers() -> None:
    from outbid.tune.stopper import ExperimentPlateauStopper, MaximumIterationStopper, TrialPlateauStopper

    most = MaximumIterationStopper(2)
    assert [most("a", {"training_iteration": i}) for i in (1, 2)] == [False, True]
    flat = TrialPlateauStopper("x", num_results=3, grace_period=3)
    assert [flat("a", {"x": v}) for v in (5, 1, 1, 1)] == [False, False, False, True]
    whole = ExperimentPlateauStopper("x", top=2)
    assert [whole(t, {"x": 1.0}) for t in "ab"] == [False, True] and whole.stop_all()


class Counts(tune.Trainable):
    def setup(self, config: dict[str, Any], start: int = 0) -> None:
        self.n = start

    def step(self) -> dict[str, Any]:
        self.n += 1
        return {"n": self.n}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"n": self.n}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.n = checkpoint["n"]


def test_a_trainable_by_itself() -> None:
    one = tune.with_parameters(Counts, start=5)({"lr": 1})
    assert one.train()["n"] == 6 and one.iteration == 1
    two = Counts({})
    two.restore(one.save())
    assert two.train()["n"] == 7 and two.iteration == 2
    from outbid.tune.utils import validate_save_restore

    assert validate_save_restore(Counts)


def test_checkpoints_are_directories(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model").write_text("m")
    checkpoint = tune.Checkpoint.from_directory(tmp_path / "a")
    checkpoint.update_metadata({"x": 1})
    assert checkpoint.get_metadata() == {"x": 1}
    copied = checkpoint.to_directory(tmp_path / "b")
    assert Path(copied, "model").read_text() == "m"
    with checkpoint.as_directory() as there:
        assert Path(there, "model").read_text() == "m"
    made = air.Checkpoint.from_dict({"n": 1})
    assert made.to_dict() == {"n": 1} and Path(made.path).is_dir()
    path = made.path
    del made
    assert not Path(path).exists(), "no other object uses it"
    travels = air.Checkpoint.from_dict({"n": 2})
    there = pickle.loads(pickle.dumps(travels))
    del travels
    assert there.to_dict() == {"n": 2}, "another process may use it"
    shutil.rmtree(there.path)


def test_outside_of_a_trial_reports_warn() -> None:
    with pytest.warns(UserWarning, match="outside of a trial"):
        tune.report({"a": 1})
    assert tune.get_checkpoint() is None and tune.get_context().get_trial_id() is None


def test_large_objects_travel_once_and_configurations_name_them() -> None:

    import cloudpickle

    large, text = np.zeros(100_000), "x" * 100_000
    space = keep_large({"data": large, "of": tune.grid_search([text, "short"]), "n": {"small": np.zeros(3), "k": [1]}})
    assert isinstance(space["data"], Kept) and isinstance(space["of"], Categorical)
    assert type(space["n"]["small"]) is np.ndarray
    drawn = [config for _, config in variants(space, Rng(0))]
    sent = [encode(config) for config in drawn]
    assert max(len(str(config)) for config in sent) < 2000
    back = [decode(config) for config in sent]
    assert all(config["data"] is large for config in back) and [c["of"] for c in back] == [text, "short"]
    # A function of `sample_from` sees the object, and the space contains it.
    seen = keep_large({"data": large, "size": tune.sample_from(lambda spec: spec.config.data.size)})
    assert next(iter(variants(seen, Rng(0))))[1]["size"] == 100_000
    assert len(cloudpickle.dumps(space)) > 800_000
    with by_name():
        assert len(pickle.dumps(space["data"])) < 500
    ref = put(large)
    assert decode(encode({"ref": ref}))["ref"].value is large


def test_a_policy_of_pbt_is_replayed(tmp_path: Path) -> None:
    policy = tmp_path / "pbt_policy_a.txt"
    # The first line belongs to a trial that is not an ancestor of this one.
    lines = [["9_x=1", "8", 1, 1, {"x": 9}, {"x": 9}], ["1", "2", 2, 3, {"x": 1}, {"x": 2}]]
    lines.append(["0", "1", 4, 6, {"x": 2}, {"x": 4}])
    policy.write_text("".join(json.dumps(line) + "\n" for line in lines))
    replay = PopulationBasedTrainingReplay(str(policy))
    assert replay.config == {"x": 1}
    board = Board(replay, 1, {"x": 0})
    (trial,) = board.trials
    assert trial.config == {"x": 1}
    assert [replay.target(trial, step) for step in (0, 3, 6)] == [3, 6, 0]
    assert board.report(0, 2, 0.5) == "CONTINUE"
    decision = board.report(0, 3, 0.5)
    assert decision.source is trial and decision.config == {"x": 2}
    assert board.report(0, 4, 0.5) == "CONTINUE" and board.report(0, 6, 0.5).config == {"x": 4}
    with pytest.raises(ValueError, match="one trial"):
        Board(PopulationBasedTrainingReplay(str(policy)), 2)


def test_scripts_learn_what_was_learned_beside_the_server(tmp_path: Path) -> None:
    import threading
    import types

    def program(search: Any, scheduler: Any) -> Any:
        plan = types.SimpleNamespace(folder=tmp_path, stop=None)
        of = types.SimpleNamespace(searcher=search, scheduler=scheduler, plan=plan, known={})
        return types.SimpleNamespace(experiment=of, trials=[Trial(0, "a", "f", {})])

    there = ConcurrencyLimiter(OptunaSearch(seed=1), 2)
    there.set_search_properties("loss", "min", {"x": tune.uniform(0, 1)})
    there.suggest("a")
    there.on_trial_complete("a", {"loss": 1.0})
    kept = Learned(threading.RLock())
    kept.keep(program(there, AsyncHyperBandScheduler()), last=False)
    found = learned(str(tmp_path))
    assert found is not None and found[2].keys() == {"a"}
    there.suggest("b")
    kept._not_before = float("inf")  # a delayed write is done before the process ends
    kept._due = threading.Timer(3600, print)
    kept.keep(program(there, AsyncHyperBandScheduler()), last=False)
    assert len(learned(str(tmp_path))[0].searcher._study.trials) == 1  # type: ignore[index]
    kept.flush(program(there, AsyncHyperBandScheduler()))
    assert kept._due is None
    inner = OptunaSearch(seed=1)
    here = ConcurrencyLimiter(inner, 2)
    learn(str(tmp_path), here, None)
    assert here.searcher is inner and [t.value for t in inner._study.trials] == [1.0, None]
    inner.save(str(tmp_path / "saved"))
    again = OptunaSearch()
    again.restore(str(tmp_path / "saved"))
    assert again.set_search_properties("loss", "min", {"x": tune.uniform(0, 1)}) and len(again._study.trials) == 2
    with pytest.raises(ValueError, match="not both"):
        again.set_search_properties("loss", "min", {"x": tune.uniform(0, 2)})


def test_a_stopping_criterion_that_never_came_is_warned_of_once(recwarn: pytest.WarningsRecorder) -> None:
    assert not met({"late": 1}, {"loss": 2}, {"loss": 2})
    assert met({"late": 1, "n/loss": 2}, {"n": {"loss": 2}}, {"n/loss": 2})
    trials = [Trial(i, f"t_{i:05d}", "f", {}) for i in range(2)]
    for trial in trials:
        trial.history = [{"loss": 2, "n": {"deep": 1}}, {"loss": 1, "late": 1}]
    for stop, warned in (({"late": 5, "n/deep": 3}, 0), ({"lat": 5, "loss": 3}, 1)):
        MissingMetric(stop).end(trials)
        assert len(recwarn) == warned
    assert "'lat' was never reported. Reported are late, loss, n, n/deep" in str(recwarn[0].message)


def test_a_trial_has_what_loggers_ask_it_for(tmp_path: Path) -> None:
    trial = Trial(0, "t_00000", "train", {})
    trial.local_experiment_path, trial.relative_logdir = str(tmp_path / "experiment"), "trial"
    trial.init_local_path()
    assert trial.experiment_dir_name == "experiment" and not trial.has_checkpoint()
    assert trial.error_file is None and trial.pickled_error_file is None and trial.get_error() is None
    path = tmp_path / "experiment" / "trial" / "error.txt"
    path.write_text("wrong")
    assert trial.error_file == str(path)


def test_what_is_registered_is_called_by_its_name() -> None:
    tune.register_trainable("by_name", lambda config: None)
    assert name_of("by_name") == tune.Experiment("e", "by_name").run_identifier == "by_name"


def test_modules_are_attributes_as_ray_has_them() -> None:
    assert tune.registry.register_trainable is tune.register_trainable
    assert tune.result.SHOULD_CHECKPOINT == "should_checkpoint"
    assert tune.utils.unflatten_dict({"a/b": 1, "a/c": 2, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        tune.nothing  # noqa: B018


def test_optunas_study_has_the_name_that_scripts_know() -> None:
    search = OptunaSearch({"x": tune.uniform(0, 1)}, metric="y", mode="min", seed=1)
    search.suggest("a")
    search.on_trial_complete("a", {"y": 0.5})
    assert search._ot_study.best_value == 0.5
