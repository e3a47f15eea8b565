"""Stoppers, which are called for the results of every trial, and the server's record of an experiment."""

from __future__ import annotations

import math
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outbid import tune
from outbid.tune.schedulers import ASHAScheduler, HyperBandScheduler
from outbid.tune.stopper import CombinedStopper, ExperimentPlateauStopper, MaximumIterationStopper, Stopper


def train(config: dict[str, Any]) -> None:
    """Report until the trial must end."""
    for step in range(1, 100):
        tune.report({"loss": config["x"], "step": step, "nest": {"word": f"w{step}"}})


class Shared(Stopper):
    """Ends each trial at its third result, and the experiment at the seventh result of all."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, str]] = []

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.seen.append((trial_id, result["step"], result["nest"]["word"]))
        return bool(result["step"] == 3)

    def stop_all(self) -> bool:
        return len(self.seen) >= 7


def fit(tmp_path: Path, stop: Any, xs: list[float], function: Any = train, **more: Any) -> Any:
    tuner = tune.Tuner(
        function,
        param_space={"x": tune.grid_search(xs)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=1, **more),
        run_config=tune.RunConfig(name="whole", storage_path=tmp_path, verbose=0, stop=stop),
    )
    return tuner.fit()


@pytest.mark.usefixtures("real")
def test_a_stopper_sees_all_trials(tmp_path: Path) -> None:
    stop = Shared()
    grid = fit(tmp_path, stop, [0, 1, 2, 3])
    assert [r.metrics["step"] for r in grid] == [3, 3, 1]
    assert [seen[1:] for seen in stop.seen] == [(n, f"w{n}") for n in (1, 2, 3, 1, 2, 3, 1)]
    assert len({seen[0] for seen in stop.seen}) == 3 and grid.num_terminated == 3


@pytest.mark.usefixtures("real")
def test_a_plateau_of_all_trials_ends_the_experiment(tmp_path: Path) -> None:
    stop = CombinedStopper(MaximumIterationStopper(2), ExperimentPlateauStopper("loss", top=4, std=0.1))
    assert len(fit(tmp_path, stop, [0, 0, 0, 0, 0, 0])) == 2


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    "stop", [lambda trial_id, result: result["step"] >= 4, {"step": 4}, MaximumIterationStopper(4)]
)
def test_trials_end_at_the_very_result(tmp_path: Path, stop: Any) -> None:
    grid = fit(tmp_path, stop, [0, 1])
    assert [len(r.metrics_dataframe) for r in grid] == [4, 4] and grid.num_terminated == 2
    assert [r.metrics["done"] for r in grid] == [True, True]


@pytest.mark.usefixtures("real")
def test_results_are_what_was_reported_whatever_files_say(tmp_path: Path) -> None:
    def writes(config: dict[str, Any]) -> None:
        for step in range(1, 4):
            tune.report({"loss": config["x"] / step, "word": f"{config['x']}w{step}"})
            Path(str(tune.get_context().get_trial_dir()), "result.json").write_text(
                '{"loss": -1, "training_iteration": 3}\n'
            )

    grid = fit(tmp_path, None, [2.0, 4.0], writes, trial_dirname_creator=lambda trial: "same")
    assert [r.metrics["loss"] for r in grid] == [2 / 3, 4 / 3]
    assert [list(r.metrics_dataframe["word"]) for r in grid] == [[f"{x}w{n}" for n in (1, 2, 3)] for x in (2.0, 4.0)]
    assert [Path(r.path).name for r in grid] == ["same", "same_1"]
    assert all(Path(r.path, "result.json").read_text().startswith('{"loss": -1') for r in grid)
    Path(grid[0].path, ".results.json").write_text('{"loss": 7.0, "trial_id": "x", "training_iteration": 3}\n')
    again: Any = tune.ResultGrid(tune.ExperimentAnalysis(str(tmp_path / "whole")))
    assert [r.metrics["loss"] for r in again] == [2 / 3, 4 / 3]


NUMBERS: dict[str, Any] = {
    "true and false": lambda x: x > 1,
    "text": str,
    "arrays": lambda x: np.array([x]),
    "scalars": np.float32,
}


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("form", NUMBERS)
@pytest.mark.parametrize("scheduler", [None, ASHAScheduler(max_t=3, grace_period=1, reduction_factor=2)])
def test_whatever_is_one_number_is_a_value_of_the_metric(tmp_path: Path, form: str, scheduler: Any) -> None:
    make = NUMBERS[form]

    def reports(config: dict[str, Any]) -> None:
        for _ in range(3):
            tune.report({"loss": make(float(config["x"]))})

    grid = fit(tmp_path, None, [3, 1, 2], reports, scheduler=scheduler)
    assert grid.num_errors == 0 and grid.get_best_result().config["x"] == 1
    assert grid.get_best_result(scope="avg").config["x"] == 1


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("stop", [{"nest": {"step": 2}}, {"nest/step": 2}, {"finished": True}])
def test_a_criterion_names_any_reported_value(tmp_path: Path, stop: dict[str, Any]) -> None:
    def reports(config: dict[str, Any]) -> None:
        for step in range(1, 5):
            tune.report({"loss": 0.5, "nest": {"step": step}, "finished": step == 2})

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [r.metrics["training_iteration"] for r in fit(tmp_path, stop, [0], reports)] == [2]


@pytest.mark.parametrize("stop", [{"loss": "2"}, {"loss": None}, {"loss": [2]}, {"a": {"b": "x"}}, 3, "loss", [1]])
def test_a_criterion_without_a_number_is_refused(tmp_path: Path, stop: Any) -> None:
    with pytest.raises(ValueError, match="stop"):
        fit(tmp_path, stop, [0])


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("kind", [ASHAScheduler, HyperBandScheduler])
def test_a_trial_of_nan_wins_nothing(tmp_path: Path, kind: Any) -> None:
    def learns(config: dict[str, Any]) -> None:
        for step in range(1, 28):
            value = math.nan if config["x"] == 0 else config["x"] + 1 / step
            with tempfile.TemporaryDirectory() as place:
                tune.report({"loss": value}, checkpoint=tune.Checkpoint.from_directory(place))

    options = {"grace_period": 1} if kind is ASHAScheduler else {}
    grid = fit(tmp_path, None, [0, 1, 2, 3, 4, 5], learns, scheduler=kind(max_t=27, reduction_factor=3, **options))
    best = grid.get_best_result()
    assert best.config["x"] == 1 and best.metrics["training_iteration"] == 27
    assert [r.metrics["training_iteration"] < 27 for r in grid][2:] == [True] * 4
    frame = grid.get_dataframe("loss", "min")
    assert list(frame["loss"].isna()) == [True] + [False] * 5
