"""Trials of a Ray Tune script get devices that other trials have freed, and continue from their checkpoints."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

SRC = str(Path(__file__).resolve().parents[2] / "src")
DEADLINE = 500.0

SCRIPT = """
import pathlib, tempfile
from ray import tune
from ray.tune.schedulers import ASHAScheduler, ResourceChangingScheduler

def train(config):
    step, checkpoint = 0, tune.get_checkpoint()
    if checkpoint:
        step = int(pathlib.Path(checkpoint.path, "step").read_text())
    start, cores = step, int(tune.get_context().get_trial_resources().head_cpus)
    while step < config["steps"] and not (start and step > start + 2):
        step += 1
        with tempfile.TemporaryDirectory() as place:
            pathlib.Path(place, "step").write_text(str(step))
            checkpoint = tune.Checkpoint.from_directory(place)
            result = {"loss": 1 / config["steps"], "step": step, "cores": cores, "start": start}
            tune.report(result, checkpoint=checkpoint)

scheduler = ResourceChangingScheduler(ASHAScheduler(max_t=10**6, grace_period=10**6))
config = tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler)
results = tune.Tuner(train, param_space={"steps": tune.grid_search([3, 10**6])}, tune_config=config).fit()
short, long = (result.metrics_dataframe for result in results)
assert list(short["cores"]) == [1, 1, 1], short
assert list(long["step"]) == list(range(1, len(long) + 1)), "steps were lost or done twice"
cores = list(long["cores"])
assert cores == sorted(cores) and cores[0] == 1 and cores[-3:] == [2, 2, 2], cores
assert long["start"].iloc[-1] == cores.index(2), "it did not go on from its last checkpoint"
print("grew")
"""


def test_a_survivor_has_what_others_left(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": SRC, "TUNE_RESULT_DIR": str(tmp_path / "results")}
    up = subprocess.Popen(
        [os.environ["OUTBID_BIN"], "up", "--devices", "cpu:2", "--policy-option", "grow=0.2", "--api", "127.0.0.1:0"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert up.stdout is not None
        ready = re.search(r"is up at (\S+)", up.stdout.readline())
        assert ready is not None
        done = subprocess.run(
            [sys.executable, "-m", "outbid.tune", "script.py"],
            cwd=tmp_path,
            env={**env, "OUTBID_URL": ready[1]},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert done.returncode == 0 and "grew" in done.stdout, (done.stdout + done.stderr)[-4000:]
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=DEADLINE)
