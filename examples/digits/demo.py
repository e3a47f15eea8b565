"""Tunes the network of network.py on scikit-learn's digits with Hyperband, on two workers of different speeds.

`make demo` at the top of the repository sets everything up and runs this.
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
from pathlib import Path

import outbid as ob

import network

MAX_STEPS = 27
GOOD_ENOUGH = 0.97

SPACE = {
    "layers": ob.integer(1, 3),
    "units": ob.integer(16, 256, log=True),
    "lr": ob.loguniform(1e-3, 1.0),
    "momentum": ob.uniform(0.0, 0.95),
    "batch": ob.choice([16, 32, 64, 128]),
    "weight_decay": ob.loguniform(1e-6, 1e-2),
    "dropout": ob.uniform(0.0, 0.5),
    "shift": ob.uniform(0.0, 1.0),
}


def train(trial):
    """Train one configuration; the workers run this once for each trial."""
    (x, y), (x_val, y_val), _ = network.load_images()
    net = network.Network(trial.config, trial.seed)
    if checkpoint := trial.checkpoint():
        net.state = checkpoint
    for step in trial.steps():
        loss = net.train_step(x, y, step)
        trial.save(net.state)
        trial.report(step=step, loss=loss, accuracy=net.accuracy(x_val, y_val))


@contextlib.contextmanager
def cluster(data: Path, binary: str):
    """Run a server with two workers on this machine; one has a device of half the speed."""
    data.mkdir(parents=True, exist_ok=True)
    ready, log = data / "server.json", data / "server.log"
    ready.unlink(missing_ok=True)
    command = [binary, "up", "--data", str(data), "--api", "127.0.0.1:0", "--ready-file", str(ready)]
    command += ["--workers", "2", "--devices", "cpu:1", "--devices", "slow:1@0.5"]
    with log.open("wb") as out:
        # In a new session, so that Ctrl-C ends the sweep here before it ends the server.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(".outbid/demo"), help="where everything is kept")
    parser.add_argument("--max-steps", type=int, default=MAX_STEPS, help="the longest training, in steps")
    options = parser.parse_args()
    binary = os.environ.get("OUTBID_BIN") or shutil.which("outbid")
    if binary is None:
        sys.exit("the outbid binary was not found: put it into PATH or name it in OUTBID_BIN")

    sweep = ob.Sweep(
        train,
        name="digits",
        space=SPACE,
        metric="accuracy",
        mode="max",
        tuner=ob.Hyperband(max_steps=options.max_steps, eta=3, seed=7),
        resources=ob.Resources(devices=1),
        # The matrices are small: several threads would only wait for each other.
        env={"OMP_NUM_THREADS": "1"},
    )
    with cluster(options.data, binary) as client:
        began = time.monotonic()
        result = sweep.run()
        took = time.monotonic() - began
        best = result.best
        weights = best.checkpoint()
        results = options.data / result.sweep.id
        best.download(results / "best.safetensors")
        export = [binary, "--server", client.url, "export", result.sweep.id]
        export += ["--trials", str(results / "trials.csv"), "--reports", str(results / "reports.csv")]
        subprocess.run(export, check=True, capture_output=True)

    (x, y), _, (x_test, y_test) = network.load_images()
    tuned = network.Network(best.config)
    tuned.state = weights
    default = network.Network(network.DEFAULT)
    for step in range(1, options.max_steps + 1):
        default.train_step(x, y, step)
    accuracy = tuned.accuracy(x_test, y_test)
    print()
    print(f"{len(result.trials)} trials, {result.sweep.steps} steps in {took:.1f} s on two workers, one at half speed")
    print(f"best trial: {best.id}, {best.step} steps, validation accuracy {best.metric:.4f}")
    for name, value in best.config.items():
        print(f"    {name:<13} {value:.4g}" if isinstance(value, float) else f"    {name:<13} {value}")
    print(f"test accuracy of the best checkpoint:        {accuracy:.4f}")
    print(f"test accuracy of the default configuration:  {default.accuracy(x_test, y_test):.4f}")
    print(f"results: {results}/ holds best.safetensors, trials.csv and reports.csv")
    print(f"         `outbid up --data {options.data}` shows them again: outbid ls, show, best, logs")
    if accuracy < GOOD_ENOUGH:
        sys.exit(f"the test accuracy is below {GOOD_ENOUGH}")


if __name__ == "__main__":
    main()
