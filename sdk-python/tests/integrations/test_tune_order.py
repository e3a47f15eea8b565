"""Outbid's schedulers and results compared with Ray's classes, with NaN at random places."""

from __future__ import annotations

import math
import types
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outbid import tune as ours
from outbid.tune import _checkpoint_ranking
from outbid.tune import schedulers as mine
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._trial import Trial

pytest.importorskip("ray.tune")

from ray.train._internal.checkpoint_manager import _CheckpointManager
from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint as RayCheckpoint
from ray.tune import CheckpointConfig as RayCheckpointConfig
from ray.tune import ExperimentAnalysis
from ray.tune import schedulers as theirs
from ray.tune.experiment import Trial as RayTrial

NAN = math.nan
CHEAP = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
SCORES = st.just(NAN) | st.sampled_from([-math.inf, math.inf]) | st.floats(-9, 9)
FINITE = st.just(NAN) | st.floats(-9, 9)
MODES = st.sampled_from(["min", "max"])


class Board:
    """The interface of an experiment for both schedulers."""

    def __init__(self, scheduler: Any, n: int) -> None:
        self.scheduler = scheduler
        self.trials = [Trial(i, f"t_{i:05d}", "f", {}) for i in range(n)]
        for trial in self.trials:
            trial.is_saving = False  # type: ignore[attr-defined]
            scheduler.on_trial_add(self, trial)
            trial.status = Trial.RUNNING

    def get_trials(self) -> list[Trial]:
        return self.trials

    get_live_trials = get_trials

    def no_more_trials(self) -> bool:
        return True

    def stop_trial(self, trial: Trial) -> None:
        trial.status = Trial.TERMINATED

    def report(self, i: int, step: int, score: float) -> str:
        decision = self.scheduler.on_trial_result(
            self, self.trials[i], {"training_iteration": step, "score": score, "time_total_s": step}
        )
        self.trials[i].status = {"PAUSE": Trial.PAUSED, "STOP": Trial.TERMINATED}.get(decision, Trial.RUNNING)
        return str(decision)

    def alive(self) -> set[int]:
        return {t.number for t in self.trials if t.status != Trial.TERMINATED}


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")  # from Ray
@CHEAP
@given(st.lists(st.lists(FINITE, min_size=3, max_size=3), min_size=2, max_size=8), MODES)
def test_asha_decides_as_ray_and_stops_what_is_nan(rows: list[list[float]], mode: str) -> None:
    options: dict[str, Any] = {"metric": "score", "mode": mode, "max_t": 27, "grace_period": 1, "reduction_factor": 3}
    one, other = (Board(kind.AsyncHyperBandScheduler(**options), len(rows)) for kind in (mine, theirs))
    for k, step in enumerate((1, 3, 9)):
        seen: list[float] = []
        for i, row in enumerate(rows):
            if i not in one.alive():
                continue
            decision, rays = one.report(i, step, row[k]), other.report(i, step, row[k])
            worst = math.isnan(row[k]) and not all(map(math.isnan, seen))
            assert decision == ("STOP" if worst else rays)
            seen.append(row[k])


@CHEAP
@given(st.lists(SCORES, min_size=9, max_size=9), MODES)
def test_hyperband_keeps_whom_ray_keeps_if_nan_is_the_worst(scores: list[float], mode: str) -> None:
    options: dict[str, Any] = {"metric": "score", "mode": mode, "max_t": 9, "reduction_factor": 3}
    one, other = mine.HyperBandScheduler(**options), theirs.HyperBandScheduler(**options)
    # Ray's bracket of nine trials follows two smaller ones.
    board, rays = Board(one, 9), Board(other, 17)
    first = [i for i, t in enumerate(rays.trials) if other._trial_info[t][0]._n0 == 9]
    worst = math.inf if mode == "min" else -math.inf
    numbers = [s for s in scores if not math.isnan(s)]
    if len({*numbers}) < len(numbers) or worst in numbers:
        return  # with equal scores they may keep different trials
    for i, score in enumerate(scores):
        board.report(i, 1, score)
        rays.report(first[i], 1, worst if math.isnan(score) else score)
    kept = {i for i in range(9) if first[i] in rays.alive()}
    wanted = {i for i in kept if not math.isnan(scores[i])} if numbers else None
    assert board.alive() == wanted if wanted is not None else len(board.alive()) == 3


@CHEAP
@given(st.lists(st.lists(FINITE, min_size=4, max_size=4), min_size=4, max_size=6), MODES)
def test_the_median_rule_decides_as_ray(rows: list[list[float]], mode: str) -> None:
    options: dict[str, Any] = {"time_attr": "training_iteration", "metric": "score", "mode": mode, "grace_period": 2}
    one, other = (Board(kind.MedianStoppingRule(**options), len(rows)) for kind in (mine, theirs))
    for step in range(1, 5):
        for i, row in enumerate(rows):
            if i not in one.alive() or i not in other.alive():
                continue
            decision, rays = one.report(i, step, row[step - 1]), other.report(i, step, row[step - 1])
            if not any(map(math.isnan, row[:step])):  # Ray's best value of a list with NaN depends on its order
                assert decision == rays


@CHEAP
@given(st.lists(st.lists(SCORES, min_size=1, max_size=5), min_size=2, max_size=5), MODES)
def test_the_best_trial_is_rays(rows: list[list[float]], mode: str) -> None:
    here, there = [], []
    for i, row in enumerate(rows):
        trial = Trial(i, f"t{i}", "f", {})
        trial.history = [{"training_iteration": k, "score": v} for k, v in enumerate(row, 1)]
        trial.last_result = trial.history[-1]
        here.append(trial)
        rays = RayTrial("f", stub=True, trial_id=f"t{i}")
        for result in trial.history:
            rays.update_last_result({**result})
        there.append(rays)
    analysis = ours.ExperimentAnalysis(trials=here, default_metric="score", default_mode=mode)
    other: Any = types.SimpleNamespace(
        trials=there, _validate_metric=lambda metric: "score", _validate_mode=lambda given: mode
    )
    for scope in ("last", "avg", "last-5-avg"):
        found = analysis.get_best_trial(scope=scope)
        wanted = ExperimentAnalysis.get_best_trial(other, scope=scope)
        assert (found and found.trial_id) == (wanted and wanted.trial_id)
    if not any(math.isnan(v) for row in rows for v in row):
        found, wanted = analysis.get_best_trial(scope="all"), ExperimentAnalysis.get_best_trial(other, scope="all")
        assert (found and found.trial_id) == (wanted and wanted.trial_id)


@CHEAP
@given(st.lists(SCORES, min_size=1, max_size=7), MODES)
def test_checkpoints_are_ordered_as_rays(scores: list[float], mode: str) -> None:
    options: dict[str, Any] = {"checkpoint_score_attribute": "score", "checkpoint_score_order": mode}
    rules = ours.CheckpointConfig(**options)
    manager = _CheckpointManager(RayCheckpointConfig(**options))
    trial = Trial(0, "t", "f", {})
    for i, score in enumerate(scores):
        result = {"score": score}
        trial.checkpoints.append((Checkpoint(f"/{i}"), result))
        manager.register_checkpoint(_TrainingResult(RayCheckpoint(f"/{i}"), result))
    scored = [(checkpoint.path, _checkpoint_ranking.score(rules, r, r)) for checkpoint, r in trial.checkpoints]
    assert _checkpoint_ranking.best(rules, scored) == [
        found.checkpoint.path for found in manager.best_checkpoint_results
    ]

    found = ours.ExperimentAnalysis(trials=[trial]).get_best_checkpoint(trial, "score", mode)
    in_order = [(RayCheckpoint(f"/{i}"), score) for i, score in enumerate(scores)]
    other: Any = types.SimpleNamespace(
        _validate_mode=lambda given: mode, _get_trial_checkpoints_with_metric=lambda trial, metric: in_order
    )
    wanted = ExperimentAnalysis.get_best_checkpoint(other, trial, "score", mode)
    assert (found and found.path) == (wanted and wanted.path)
