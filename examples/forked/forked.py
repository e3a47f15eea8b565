"""Three different workers train one trial at the same time; then one of them trains the same trial alone.

Run it at the top of the repository after `make build`, with the Python that `make demo` made: .cache/venv/bin/python
examples/forked/forked.py
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import models
import outbid as ob

DEVICES = ["fast:1", "middle:1@0.5", "slow:1@0.25"]


def train(trial):
    """Train a classifier of digits. The function need not consider that it may be one of several forks."""
    net = models.make("images", Path(trial.config["data"]), trial.fork.trial_seed)
    if checkpoint := trial.checkpoint():
        net.state = {key: models.np.array(value) for key, value in checkpoint.items()}
    draw = models.np.random.default_rng(trial.fork.seed)  # each fork draws different samples
    for _ in trial.steps():
        models.train_step(net, draw, models.np.arange(net.samples))
        trial.save(net.state)
        trial.report(error=net.quality())


@contextlib.contextmanager
def cluster(data: Path, slot: str) -> Iterator[ob.Client]:
    """Run a server under HadarE with a worker for each device."""
    binary = os.environ.get("OUTBID_BIN") or shutil.which("outbid") or "bin/outbid"
    data.mkdir(parents=True, exist_ok=True)
    ready, log = data / "server.json", data / "server.log"
    ready.unlink(missing_ok=True)
    command = [binary, "up", "--data", str(data), "--api", "127.0.0.1:0", "--ready-file", str(ready)]
    command += [
        "--nats-port",
        "0",
        "--policy",
        "hadare",
        "--policy-option",
        f"round={slot}",
        "--policy-option",
        "restart=1s",
    ]
    command += ["--python", sys.executable, "--workers", str(len(DEVICES))]
    for device in DEVICES:
        command += ["--devices", device]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    try:
        while not ready.exists():
            if process.poll() is not None:
                sys.exit(f"`outbid up` ended at once:\n{log.read_text()}")
            time.sleep(0.02)
        with ob.connect(data=data) as client:
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def submit(client: ob.Client, name: str, data: Path, steps: int, forks: str | None) -> ob.SweepHandle:
    """Submit a sweep of one trial, with or without forks."""
    return ob.Sweep(
        train,
        name=name,
        space={"data": ob.constant(str(data))},
        metric="error",
        mode="min",
        tuner=ob.Random(max_steps=steps, seed=7),
        trials=1,
        resources=ob.Resources(devices=1, forks=forks),
        env={"OMP_NUM_THREADS": "1"},
    ).submit(client)


def seconds(handle: ob.SweepHandle) -> float:
    """Return how long a sweep trained, from its first report to its end."""
    info, reports = handle.info(), list(handle.reports())
    return (info.ended - min(report.time for report in reports)).total_seconds()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(".outbid/forked"), help="where everything is kept")
    parser.add_argument("--slot", default="6s", help="how long a fork slot lasts at most")
    parser.add_argument("--steps", type=int, default=2000, help="steps that the trial is trained")
    options = parser.parse_args()
    models.prepare(options.data.resolve())
    with cluster(options.data, options.slot) as client:
        took = {}
        for name, forks in [("warm-up", "auto"), ("alone", None), ("forked", "auto")]:
            steps = options.steps // 10 if name == "warm-up" else options.steps
            handle = submit(client, name, options.data.resolve(), steps, forks)
            result = handle.wait()
            took[name] = seconds(handle)
            if name != "warm-up":
                trial = result.trials[0]
                error = trial.metrics["error"]
                print(f"{name:<8}{trial.step:>6} steps in {took[name]:5.1f} s, error {error:.3f} on what was held out")
    for merge in trial.merges:
        did = ", ".join(f"{fork.counted} on {fork.places[0].type}" for fork in merge.forks)
        how = "averaged" if merge.averaged_on else merge.reason
        print(f"  fork slot {merge.round}: step {merge.from_step} to {merge.step}: {did}; {how}")
    print(f"forks took {took['forked'] / took['alone']:.2f} times as long")
    if not any(merge.averaged_on for merge in trial.merges):
        sys.exit("no fork slot was averaged")


if __name__ == "__main__":
    main()
