"""Ray Train's trainers in trials: their reports are the trial's at once, so that a tuner can stop and pause them."""

from __future__ import annotations

from pathlib import Path

import pytest

import outbid as ob
from integrations.on_ray.cluster import PATIENCE, RayCluster, eventually

pytestmark = pytest.mark.filterwarnings("ignore")  # from Ray itself
STEPS = 8


def train(trial: ob.Trial) -> None:
    """Train with two Ray Train workers. The first trial waits in its second step for the file `go`."""
    import os
    import tempfile
    import time
    from pathlib import Path

    from ray import train
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer  # the base class of TorchTrainer and others

    import outbid.ray

    def loop(config: dict[str, object]) -> None:
        place, start, patience = Path(str(config["place"])), config["start"], float(str(config["patience"]))
        context = train.get_context()
        step = int(Path(str(start), "step").read_text()) if start else 0
        with (place / "starts").open("a") as starts:
            starts.write(f"{config['trial']} {context.get_world_rank()} {step}\n")
        while step < int(str(config["steps"])):
            step += 1
            end = time.monotonic() + patience
            while step == 2 and not (place / "go").exists() and time.monotonic() < end:
                time.sleep(0.05)
            metrics = {"loss": config["x"], "rank": context.get_world_rank(), "of": "no number"}
            with tempfile.TemporaryDirectory() as saved:
                Path(saved, "step").write_text(str(step))
                (place / f"did-{config['trial']}-{step}").touch()
                held = train.Checkpoint.from_directory(saved) if context.get_world_rank() == 0 else None
                train.report(metrics, checkpoint=held)

    os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = "0.1"  # the interval between Ray Train's polls of its workers
    given = {**trial.config, "trial": trial.number, "start": trial.checkpoint()}
    trainer = DataParallelTrainer(
        loop,
        train_loop_config=given,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=str(trial.scratch)),
    )
    outbid.ray.fit(trainer, trial)


def in_steps(trial: ob.Trial) -> None:
    import outbid.ray

    for _ in trial.steps():
        outbid.ray.fit(None, trial)


def test_reports_are_the_trials_as_they_come(nodes: RayCluster, tmp_path: Path) -> None:
    import outbid.ray

    fixed = {"place": str(tmp_path), "steps": STEPS, "patience": PATIENCE}
    space = {"x": ob.choice([0.1, 0.5, 0.9]), **{name: ob.constant(value) for name, value in fixed.items()}}
    tuner = ob.ASHA(max_steps=STEPS, min_steps=1, eta=2, form="stop")
    points = [{"x": 0.1}, {"x": 0.5}, {"x": 0.9}]
    sweep = ob.Sweep(train, space, metric="loss", mode="min", tuner=tuner, trials=3, points=points)
    once = ob.Random(max_steps=1)
    wrong = ob.Sweep(in_steps, space, metric="loss", mode="min", tuner=once, trials=1, fail_fast=True)
    with outbid.ray.up(workers=1, resources={"CPU": 2}, devices="slot:1", data=tmp_path / "data") as cluster:
        handle = sweep.submit(client=cluster.client)
        # The first report arrives while the workers train, and they end when the trial should pause.
        eventually("the first report", lambda: [t for t in handle.trials() if t.step == 1])
        handle.pause()
        (tmp_path / "go").touch()
        eventually("the trial has saved and left", lambda: not handle.info().counts.get("running"))
        # It was paused at the rung of its first step, or in its second step if it had already continued.
        saved = max(checkpoint.step for checkpoint in handle.trials()[0].checkpoints)
        assert saved in (1, 2)
        result = handle.resume().wait(4 * PATIENCE)
        reports = [[(r.step, r.metrics) for r in trial.reports()] for trial in result.trials]
        with pytest.raises(ob.SweepFailedError, match=r"call it outside of trial.steps\(\)"):
            wrong.run(client=cluster.client, display=False, timeout=PATIENCE)
    assert [trial.state for trial in result.trials] == ["completed", "pruned", "pruned"], [
        trial.reason for trial in result.trials
    ]
    assert reports[0] == [(step, {"loss": 0.1, "rank": 0.0}) for step in range(1, STEPS + 1)]
    # Both workers continued from rank 0's checkpoint.
    starts = sorted((tmp_path / "starts").read_text().split("\n")[:-1])
    assert [line for line in starts if line.startswith("0 ")] == ["0 0 0", f"0 0 {saved}", "0 1 0", f"0 1 {saved}"]
    for trial in result.trials[1:]:
        assert [step for step, _ in reports[trial.number]] == [1]
        assert not (tmp_path / f"did-{trial.number}-{STEPS}").exists(), "a stopped trial's workers trained to the end"
