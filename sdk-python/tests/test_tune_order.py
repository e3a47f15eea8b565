"""The order of a metric's values in every part of outbid.tune that compares them: NaN is the worst."""

from __future__ import annotations

import math
import pickle
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbid import tune
from outbid.tune import _checkpoint_ranking as ranking
from outbid.tune import _order
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._results import Result, ResultGrid, result_of
from outbid.tune._trial import Trial
from outbid.tune.progress_reporter import CLIReporter
from outbid.tune.schedulers import (
    AsyncHyperBandScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)
from outbid.tune.schedulers._base import Exploit
from outbid.tune.search import Repeater, Searcher
from outbid.tune.stopper import ExperimentPlateauStopper, TrialPlateauStopper
from test_tune import Board

NAN, INF = math.nan, math.inf
MODES = ["min", "max"]
CHEAP = settings(deadline=None, max_examples=50)
VALUES = st.sampled_from([NAN, None, -INF, INF, "text", 10**400]) | st.floats(-9, 9)


@CHEAP
@given(st.lists(VALUES, min_size=1, max_size=8), st.sampled_from(MODES))
def test_values_order_as_missing_nan_then_numbers(values: list[Any], mode: str) -> None:
    ordered = sorted(values, key=lambda value: _order.rank(value, mode))
    kinds = [(_order.number(v) is not None) + _order.is_number(v) for v in ordered]
    assert kinds == sorted(kinds)
    numbers = [v for v in map(_order.number, ordered) if v is not None and not math.isnan(v)]
    assert numbers == sorted(numbers, reverse=mode == "min")
    best = _order.best(values, lambda value: value, mode)
    assert best is None if not any(kinds) else _order.rank(best, mode) == _order.rank(ordered[-1], mode)


ONE_NUMBER: dict[str, Any] = {
    "scalar of numpy": np.float32(2),
    "array of one element": np.array([2.0]),
    "the same in a file": [2.0],
    "array of arrays": np.array([[2]]),
    "text": "2.0",
    "true": True,
}


@pytest.mark.parametrize("value", ONE_NUMBER.values(), ids=ONE_NUMBER)
@pytest.mark.parametrize("scope", ["last", "all", "avg"])
def test_what_a_trial_may_report_as_a_number_is_compared_as_one(value: Any, scope: str) -> None:
    assert _order.number(value) == float(np.array(value, dtype=float).item())
    trials = [finished([x, x], n) for n, x in enumerate([0.5, value, 0.25])]
    analysis = tune.ExperimentAnalysis(trials=trials, default_metric="loss", default_mode="max")
    assert analysis.get_best_trial(scope=scope) is trials[1]
    if not isinstance(value, (bool, str)):
        assert trials[1].metric_analysis["loss"] == dict.fromkeys(trials[1].metric_analysis["loss"], 2.0)


@pytest.mark.parametrize("value", [None, "two", b"2", np.zeros(2), [1, 2], [], {}, object(), 1j])
def test_what_is_not_one_number_has_no_rank(value: Any) -> None:
    assert _order.number(value) is None


@CHEAP
@given(st.lists(st.sampled_from([NAN, -INF, INF]) | st.floats(-9, 9), max_size=8), st.floats(0, 100))
def test_a_percentile_is_no_nan_where_a_score_is_a_number(scores: list[float], percent: float) -> None:
    found = _order.percentile(scores, percent)
    assert math.isnan(found) is not any(map(_order.is_number, scores))


def finished(values: list[Any], number: int = 0) -> Trial:
    """Return a trial that reported values of "loss", each with a checkpoint."""
    trial = Trial(number, f"t_{number:05d}", "f", {})
    trial.history = [{"training_iteration": i, "loss": v} for i, v in enumerate(values, 1)]
    trial.last_result = trial.history[-1]
    trial.checkpoints = [(Checkpoint(f"/{number}/{i}"), r) for i, r in enumerate(trial.history, 1)]
    trial.status = Trial.TERMINATED
    return trial


@CHEAP
@given(st.lists(st.just(NAN) | st.floats(-9, 9), min_size=1, max_size=6), st.sampled_from(MODES))
def test_nan_is_never_the_best_of_a_trials_results(values: list[float], mode: str) -> None:
    numbers = [v for v in values if not math.isnan(v)]
    wanted = (max if mode == "max" else min)(numbers, default=NAN)

    def same(value: float) -> bool:
        return value == wanted or (math.isnan(value) and math.isnan(wanted))

    trial, other = finished(values), finished([NAN], 1)
    analysis = tune.ExperimentAnalysis(trials=[other, trial], default_metric="loss", default_mode=mode)
    grid = ResultGrid(analysis)
    found = analysis.get_best_checkpoint(trial)
    assert (found is None) is not bool(numbers)
    if numbers:
        for checkpoint in (found, result_of(trial).get_best_checkpoint("loss", mode)):
            assert checkpoint is not None and same(trial.history[int(Path(checkpoint.path).name) - 1]["loss"])
        assert analysis.get_best_trial(scope="all") is trial
        assert grid.get_best_result(scope="all").metrics is trial.last_result
        assert analysis.get_best_trial(scope="all", filter_nan_and_inf=False) is trial
    assert same(analysis.dataframe("loss", mode)["loss"][1])
    assert same(grid.get_dataframe("loss", mode)["loss"][1])
    assert same(trial.metric_analysis["loss"][mode])
    rules = tune.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="loss", checkpoint_score_order=mode)
    assert same(ranking.best(rules, [(r, ranking.score(rules, r, r)) for r in trial.history])[0]["loss"])


def test_a_value_is_the_last_number_that_was_reported() -> None:
    one, other = finished([1.0, 2.0]), finished([5.0, 4.0], 1)
    other.last_result = {"training_iteration": 3, "loss": None}
    grid = ResultGrid(tune.ExperimentAnalysis(trials=[one, other]))
    assert grid.get_best_result("loss", "max").metrics is other.last_result
    with pytest.raises(ValueError, match="mode must be 'min' or 'max', got 'most'"):
        Result(best_checkpoints=[*one.checkpoints]).get_best_checkpoint("loss", "most")


def test_one_trial_is_the_best_whatever_it_reported() -> None:
    grid = ResultGrid(tune.ExperimentAnalysis(trials=[finished([NAN])], default_metric="loss", default_mode="min"))
    assert grid.get_best_result() is grid[0]


@pytest.mark.parametrize("mode", MODES)
@CHEAP
@given(at=st.integers(0, 5), scores=st.permutations([1.0, 2.0, 3.0, 4.0, 5.0]))
def test_nan_passes_no_rung_that_a_number_has_reached(mode: str, at: int, scores: list[float]) -> None:
    values = [*scores[:at], NAN, *scores[at:]]
    asha = AsyncHyperBandScheduler(max_t=9, grace_period=1, reduction_factor=3, metric="score", mode=mode)
    board = Board(asha, 6)
    decisions = [board.report(i, 1, value) for i, value in enumerate(values)]
    assert decisions[at] == ("STOP" if at else "CONTINUE")
    # Earlier NaN values do not change the decisions for numbers.
    plain = Board(AsyncHyperBandScheduler(max_t=9, reduction_factor=3, metric="score", mode=mode), 5)
    assert decisions[:at] + decisions[at + 1 :] == [plain.report(i, 1, v) for i, v in enumerate(scores)]

    board = Board(HyperBandScheduler(max_t=9, metric="score", mode=mode), 9)
    values = [*values, NAN, NAN, NAN]
    for i, value in enumerate(values):
        board.report(i, 1, value)
    alive = {values[t.number] for t in board.trials if t.status != Trial.TERMINATED}
    assert alive == ({1.0, 2.0, 3.0} if mode == "min" else {3.0, 4.0, 5.0})


def test_where_all_is_nan_hyperband_halves_all_the_same() -> None:
    board = Board(HyperBandScheduler(max_t=9, metric="score", mode="min"), 9)
    for i in range(9):
        board.report(i, 1, NAN)
    assert sum(t.status != Trial.TERMINATED for t in board.trials) == 3


@pytest.mark.parametrize("mode", MODES)
def test_the_median_stops_what_is_nan_and_leaves_it_out(mode: str) -> None:
    rule = MedianStoppingRule("training_iteration", "score", mode, grace_period=1, min_samples_required=2)
    board = Board(rule, 4)
    assert [board.report(i, 1, s) for i, s in enumerate([1.0, NAN, 1.0])] == ["CONTINUE"] * 3
    assert board.report(3, 1, NAN) == "STOP"
    assert [board.report(i, 2, s) for i, s in ((0, NAN), (2, 1.0))] == ["CONTINUE"] * 2


REPORTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.sampled_from([NAN, INF, 1.0, 2.0, 3.0])), max_size=30
)


@CHEAP
@given(REPORTS, st.integers(0, 30))
def test_the_median_is_of_means_until_the_time_of_a_result(reports: list[tuple[int, int, float]], copied: int) -> None:
    """Also where times are repeated, as after a restart from a checkpoint, and in a copy of the rule."""
    board = Board(MedianStoppingRule("training_iteration", "score", "max", grace_period=2, min_samples_required=2), 4)
    seen: dict[int, list[tuple[int, float]]] = {}
    stopped = set[int]()
    for number, (i, time, score) in enumerate(reports):
        if number == copied:
            board.scheduler = pickle.loads(pickle.dumps(board.scheduler))
        if i in stopped:
            continue
        seen.setdefault(i, []).append((time, score))
        others = [[s for t, s in own if 2 <= t <= time] for j, own in seen.items() if j != i and own[-1][0] >= time]
        means = [mean(scores) for scores in others if scores and math.isfinite(sum(scores))]
        best = max((s for _, s in seen[i] if not math.isnan(s)), default=-INF)
        stops = time >= 2 and len(means) >= 2 and best < median(means)
        assert board.report(i, time, score) == ("STOP" if stops else "CONTINUE")
        stopped.update([i] if stops else [])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("synch", [False, True])
def test_a_population_goes_on_from_numbers_alone(mode: str, synch: bool) -> None:
    pbt = PopulationBasedTraining(
        "training_iteration", "score", mode, 1, hyperparam_mutations={"lr": [1, 2]}, log_config=False, synch=synch
    )
    board = Board(pbt, 4, {"lr": 1})
    scores = [1.0, 1.0, 1.0, NAN]
    decisions = [board.report(i, 1, score) for i, score in enumerate(scores)]
    assert isinstance(decisions[3], Exploit) and decisions[3].source.number in (0, 1, 2)
    board = Board(
        PopulationBasedTraining("training_iteration", "score", mode, 1, hyperparam_mutations={"lr": [1, 2]}), 3
    )
    assert [board.report(i, 1, NAN) for i in range(3)] == ["CONTINUE"] * 3


@pytest.mark.parametrize("mode", MODES)
def test_plateaus_are_of_numbers(mode: str) -> None:
    stopper = ExperimentPlateauStopper("loss", top=2, mode=mode)
    assert [stopper("t", {"loss": v}) for v in (NAN, 1.0, NAN, 1.0)] == [False, False, False, True]
    trial = TrialPlateauStopper("loss", num_results=2, grace_period=2)
    assert [trial("t", {"loss": v}) for v in (INF, INF, NAN, 1.0, 1.0)] == [False] * 4 + [True]


@pytest.mark.parametrize("mode", MODES)
def test_reporters_and_means_leave_nan_out(mode: str) -> None:
    trials = [finished([v], i) for i, v in enumerate([NAN, 1.0, NAN, 2.0])]
    reporter = CLIReporter(metric="loss", mode=mode, sort_by_metric=True)
    wanted = [3, 1, 0, 2] if mode == "max" else [1, 3, 0, 2]
    assert [t.number for t in reporter._sorted(trials)] == wanted
    best = reporter._best(trials)
    assert best is not None and best.number == wanted[0]
    assert reporter._best(trials[:1]) is None

    class Heard(Searcher):
        values: ClassVar[list[float]] = []

        def suggest(self, trial_id: str) -> Any:
            return {}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            self.values.append(result["loss"])

    repeater = Repeater(Heard("loss", mode), repeat=3)
    for i, value in enumerate([NAN, 1.0, 3.0]):
        repeater.suggest(f"t{i}")
        repeater.on_trial_complete(f"t{i}", {"loss": value})
    assert Heard.values == [2.0]


def test_kept_checkpoints_are_ordered_by_what_they_are_worth() -> None:
    rules = tune.CheckpointConfig(checkpoint_score_attribute="loss", checkpoint_score_order="min")
    results = [{"loss": v} for v in (1.0, NAN, -INF, INF, None)]
    kept = ranking.best(rules, [(r["loss"], ranking.score(rules, r, r)) for r in results])
    assert [str(v) for v in kept] == ["None", "nan", "inf", "1.0", "-inf"]
    assert all(_order.rank(a, "min") < _order.rank(b, "min") for a, b in pairwise(kept))
