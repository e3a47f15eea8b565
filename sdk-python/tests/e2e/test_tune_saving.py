"""Functions that save checkpoints late or never, and the warnings about that."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import outbid as ob
from outbid import tune
from outbid.tune._record import Run
from outbid.tune.schedulers import HyperBandScheduler, PopulationBasedTraining

PBT: dict[str, Any] = {
    "perturbation_interval": 1,
    "hyperparam_mutations": {"lr": [1, 2, 3, 4]},
    "quantile_fraction": 0.5,
}


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    "scheduler",
    [
        PopulationBasedTraining("training_iteration", **PBT),
        type("Subclass", (PopulationBasedTraining,), {})("training_iteration", **PBT),  # is asked in this process
        HyperBandScheduler("training_iteration", max_t=4, reduction_factor=2),
    ],
    ids=["population", "subclass", "hyperband"],
)
def test_trials_that_never_save_and_start_again_are_warned_of_once(tmp_path: Path, scheduler: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        for _ in range(4):
            tune.report({"score": config["lr"]})

    tuner = tune.Tuner(
        train,
        param_space={"lr": tune.grid_search([1, 2, 3, 4])},
        tune_config=tune.TuneConfig(metric="score", mode="max", scheduler=scheduler),
        run_config=tune.RunConfig(name="unsaved", storage_path=tmp_path, verbose=0, stop={"training_iteration": 4}),
    )
    with pytest.warns(UserWarning, match=rf"{type(scheduler).__name__}: trial \d .* started again at step 0") as told:
        tuner.fit()
    assert len([w for w in told if "started again" in str(w.message)]) == 1


@pytest.mark.usefixtures("real")
def test_a_function_that_reports_nothing_is_not_warned_of(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        pass

    config = tune.RunConfig(name="nothing", storage_path=tmp_path, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grid: Any = tune.Tuner(train, run_config=config, tune_config=tune.TuneConfig(metric="loss", mode="min")).fit()
    assert grid.num_errors == 0
    run = Run.load(tmp_path / "nothing")
    assert not [note.text for note in ob.attach(run.sweep).info().notes if note.level != "info"]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("late", [1, 3])
def test_the_last_checkpoint_after_the_last_report_is_kept(tmp_path: Path, late: int) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report(test=1)
        for number in range(1, late + 1):
            with tune.checkpoint_dir(step=number) as folder:
                Path(folder, "weights").write_text(str(number))

    config = tune.RunConfig(name="late", storage_path=tmp_path, verbose=0)
    grid: Any = tune.Tuner(train, run_config=config).fit()
    assert Path(grid[0].checkpoint.path, "weights").read_text() == str(late) and grid[0].metrics["test"] == 1
    assert Path(grid[0].path) in Path(grid[0].checkpoint.path).parents
