"""Sweeps in TensorBoard, in MLflow on a tracking server, and in Weights & Biases offline."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import outbid as ob

pytestmark = pytest.mark.filterwarnings("default")  # warnings of other packages


def train(trial: ob.Trial) -> None:
    trial.note(data="v3")
    for step in trial.steps():
        trial.report({"loss": trial.config.x**2 + 1 / step, "rate": trial.config.opt.rate, "top@1": 0.5}, step=step)


@pytest.fixture(scope="module")
def ended(real: ob.Client) -> ob.SweepHandle:
    """Return a sweep that was not logged."""
    space = {"x": ob.uniform(-1, 1), "opt": {"rate": ob.choice([1, 2]), "name": "sgd"}}
    sweep = ob.Sweep(
        train, space, metric="loss", mode="min", tuner=ob.Random(max_steps=3, seed=0), trials=2, name="logged"
    )
    handle = sweep.submit(real)
    handle.wait(100)
    return handle


def scalars(place: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the scalars that TensorBoard shows for a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(place)).Reload()
    return {
        tag: [(e.step, float(e.tensor_proto.float_val[0])) for e in read.Tensors(tag)]
        for tag in read.Tags()["tensors"]
        if not tag.startswith("_hparams_")
    } | {tag: [(e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def hparams(place: Path) -> dict[str, Any]:
    """Return the hparams of a folder, like TensorBoard's plugin."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    read = EventAccumulator(str(place)).Reload()
    content = read.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    info = metadata.parse_session_start_info_plugin_data(content)
    assert read.SummaryMetadata("_hparams_/session_end_info")
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in info.hparams.items()}


def test_tensorboard_has_metrics_and_hparams_once(ended: ob.SweepHandle, tmp_path: Path) -> None:
    for _ in range(2):  # the second time replaces the first
        result = ended.wait(100, loggers=[ob.loggers.TensorBoard(tmp_path)])
    for trial in result.trials:
        place = tmp_path / "logged-1" / str(trial.number)
        found = scalars(place)
        losses = [(r.step, r.metrics["loss"]) for r in trial.reports()]
        assert [step for step, _ in found["loss"]] == [1, 2, 3]
        assert [value for _, value in found["loss"]] == pytest.approx([value for _, value in losses])
        assert len(found["best"]) == 1
        assert hparams(place) == {"x": trial.config["x"], "opt.rate": trial.config.opt.rate, "opt.name": "sgd"}


@pytest.fixture
def tracking(tmp_path: Path) -> Iterator[str]:
    """Run a tracking server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db", "--artifacts-destination", str(tmp_path)]
    own = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # eight more processes that no test needs
    with open(tmp_path / "mlflow.log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, env=own, start_new_session=True)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 120
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline, (tmp_path / "mlflow.log").read_text()
                time.sleep(0.2)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_mlflow_has_nested_runs_once(ended: ob.SweepHandle, tracking: str) -> None:
    from mlflow import MlflowClient

    for _ in range(2):
        result = ended.wait(100, loggers=[ob.loggers.MLflow(tracking, experiment="tuning")])
    client = MlflowClient(tracking_uri=tracking)
    experiment = client.get_experiment_by_name("tuning")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    parents = [run for run in runs if "outbid.trial" not in run.data.tags]
    assert len(runs) == 3 and len(parents) == 1 and parents[0].info.status == "FINISHED"
    assert parents[0].data.tags["outbid.best"] == result.best.id
    for trial in result.trials:
        run = next(run for run in runs if run.data.tags.get("outbid.trial") == trial.id)
        assert run.data.tags["mlflow.parentRunId"] == parents[0].info.run_id
        assert run.data.params == {
            "x": str(trial.config["x"]),
            "opt.rate": str(trial.config.opt.rate),
            "opt.name": "sgd",
        }
        assert run.data.tags["data"] == "v3" and run.info.status == "FINISHED"
        losses = client.get_metric_history(run.info.run_id, "loss")
        assert sorted(m.step for m in losses) == [1, 2, 3]
        assert run.data.metrics["best_loss"] == pytest.approx(trial.metric)
        assert run.data.metrics["top_1"] == 0.5, "as MLflow takes the name"


def test_wandb_keeps_runs_offline(ended: ob.SweepHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    result = ended.wait(100, loggers=[ob.loggers.WandB(mode="offline", dir=str(tmp_path))])
    kept = sorted(file.name for file in tmp_path.rglob("*.wandb"))
    assert kept == [f"run-logged-1-{trial.number}.wandb" for trial in result.trials]
    text = b"".join(file.read_bytes() for file in tmp_path.rglob("*.wandb"))
    assert b"loss" in text and b"opt.rate" in text


def test_a_logger_that_fails_warns_and_the_sweep_goes_on(ended: ob.SweepHandle) -> None:
    class Broken(ob.loggers.Logger):
        logged = 0

        def log(self, trial: ob.TrialResult, report: ob.Report) -> None:
            self.logged += 1
            raise OSError("the disk is full")

    broken = Broken()
    with pytest.warns(UserWarning, match="Broken failed and stopped logging .*the disk is full"):
        result = ended.wait(100, loggers=[broken])
    assert result.sweep.state == "done" and broken.logged == 1
