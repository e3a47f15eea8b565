"""Experiments of Ray Tune scripts that are read from their directories only, and stopping criteria."""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

import outbid as ob
from outbid import tune
from outbid.tune._record import Run
from outbid.tune.schedulers import FIFOScheduler


def test_an_experiment_whose_sweep_is_gone_is_read_from_its_directory(real: ob.Client, tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        for step in range(3):
            if config["x"] == 3 and step == 1:
                raise ValueError("three")
            tune.report({"loss": config["x"] / (step + 1), "nest": {"step": step}})

    space = {"x": tune.grid_search([2, 1, 3]), "object": {1, 2}}
    config = tune.RunConfig(name="read", storage_path=tmp_path, verbose=0)
    before: Any = tune.Tuner(train, param_space=space, run_config=config).fit()
    real.attach(Run.load(tmp_path / "read").sweep).delete(force=True)
    moved = shutil.move(tmp_path / "read", tmp_path / "elsewhere")
    grid: Any = tune.ResultGrid(tune.ExperimentAnalysis(moved))
    assert (len(grid), grid.num_errors, grid.num_terminated) == (3, 1, 2)
    assert [r.config for r in grid] == [r.config for r in before] and grid[0].config["object"] == {1, 2}
    assert [r.metrics_dataframe["loss"].tolist() for r in grid] == [
        r.metrics_dataframe["loss"].tolist() for r in before
    ]
    assert repr(grid.errors) == repr(before.errors) == "[ValueError('three')]"
    assert grid.get_best_result("loss", "min").config["x"] == 1


@pytest.mark.usefixtures("real")
def test_a_metric_that_is_to_end_trials_and_is_not_reported_is_warned_of() -> None:
    def train(trial: ob.Trial) -> None:
        for step in range(1, 4):
            trial.report(step=step, loss=1 / step, **({"late": 1.0} if step > 1 else {}))

    sweep = ob.Sweep(train, {"x": 1}, metric="loss", mode="min", trials=1, stop={"acuracy": 0.9, "step": 50})
    with pytest.warns(
        UserWarning, match=r"stop: 'acuracy' is not among what trial 0 reports: .*loss.* until it is"
    ) as told:
        sweep.run(display=False)
    assert told[0].filename == __file__


@pytest.mark.usefixtures("real")
def test_trials_leave_no_checkpoints_in_temporary_places(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()

    def train(config: dict[str, Any]) -> None:
        import tempfile

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(place))
            for step in range(3):
                if config["old"]:
                    with tune.checkpoint_dir(step=step) as folder:
                        Path(folder, "weights").write_text(str(step))
                    if step == 1:
                        raise ValueError("fails with a checkpoint at hand")
                    tune.report(loss=step)
                else:
                    tune.report({"loss": step}, checkpoint=tune.Checkpoint.from_dict({"step": step}))

    config = tune.RunConfig(name="temporary", storage_path=tmp_path, verbose=0)
    grid: Any = tune.Tuner(train, param_space={"old": tune.grid_search([True, False])}, run_config=config).fit()
    assert grid[1].checkpoint.to_dict() == {"step": 2} and repr(grid.errors[0]).startswith("ValueError('fails")
    assert Path(grid[0].checkpoint.path, "weights").read_text() == "0"
    assert not list(place.iterdir())


@pytest.mark.usefixtures("real")
def test_results_of_a_failed_attempt_are_replaced_by_those_of_the_next(tmp_path: Path) -> None:
    def train(config: dict[str, Any]) -> None:
        failed = tmp_path / "failed"
        if not failed.exists():
            failed.touch()
            tune.report({"loss": math.nan, "object": {1}})
            raise ValueError("once")
        tune.report({"loss": 2.0, "object": "text"})

    config = tune.RunConfig(
        name="again", storage_path=tmp_path, verbose=0, failure_config=tune.FailureConfig(max_failures=1)
    )
    (result,) = tune.Tuner(train, run_config=config).fit()
    assert result.error is None and result.metrics is not None
    assert (result.metrics["loss"], result.metrics["object"], len(result.metrics_dataframe)) == (2.0, "text", 1)


@pytest.mark.usefixtures("real")
def test_a_scheduler_that_is_asked_about_each_report_answers_at_once(tmp_path: Path) -> None:
    """Return an answer at once. A wait for the worker's next message takes a second: over a minute for 60 reports."""

    class Asked(FIFOScheduler):
        def on_trial_result(self, *_: Any, **__: Any) -> str:
            return self.CONTINUE

    def train(config: dict[str, Any]) -> None:
        for _ in range(60):
            tune.report({"loss": config["x"]})

    began = time.monotonic()
    (result,) = tune.Tuner(
        train,
        param_space={"x": 1.0},
        tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=Asked()),
        run_config=tune.RunConfig(storage_path=str(tmp_path)),
    ).fit()
    assert result.metrics is not None and result.metrics["training_iteration"] == 60
    assert time.monotonic() - began < 45


@pytest.mark.parametrize("content", [b"", b"\x80", b"no pickle"])
def test_a_damaged_file_of_an_experiment_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tuner.pkl").write_bytes(content)
    with pytest.raises(tune.TuneError, match=r"tuner\.pkl is damaged"):
        tune.Tuner.restore(str(tmp_path))


@pytest.mark.usefixtures("real")
def test_a_write_that_is_interrupted_leaves_an_experiment_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"loss": 1.0})

    config = tune.RunConfig(name="kept", storage_path=tmp_path, verbose=0)
    tune.Tuner(train, run_config=config).fit()
    write = Path.write_bytes

    def interrupted(path: Path, data: bytes) -> int:
        write(path, data[: len(data) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Run.load(tmp_path / "kept").save()
    assert tune.Tuner.restore(str(tmp_path / "kept"), train).get_results().num_terminated == 1
