"""Three sweeps of different sizes bid for four devices of different speeds; then each is run alone.

Run it at the top of the repository after `make build`, with the Python that `make demo` made: .cache/venv/bin/python
examples/contest/contest.py
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "digits"))
import outbid as ob

import network

SPACE = {
    "units": ob.integer(16, 64, log=True),
    "lr": ob.loguniform(1e-3, 1.0),
    "momentum": ob.uniform(0.0, 0.95),
    "batch": ob.choice([32, 64, 128]),
}

# name, trials of the first rung, steps of the first rung and of the last
SWEEPS = [("large", 27, 1, 27), ("medium", 9, 3, 27), ("small", 3, 9, 27)]

DEVICES = ["fast:1", "fast:1@0.8", "slow:1@0.5", "old:1@0.3"]


def train(trial):
    """Train one configuration of the digits example."""
    (x, y), (x_val, y_val), _ = network.load_images()
    x, y = x[: trial.config["images"]], y[: trial.config["images"]]
    net = network.Network(network.DEFAULT | trial.config, trial.seed)
    if checkpoint := trial.checkpoint():
        net.state = checkpoint
    for step in trial.steps():
        for again in range(trial.config["repeats"]):
            loss = net.train_step(x, y, step * trial.config["repeats"] + again)
        trial.save(net.state)
        trial.report(step=step, loss=loss, accuracy=net.accuracy(x_val, y_val))


def sweep(name: str, trials: int, first: int, steps: int, repeats: int, images: int) -> ob.Sweep:
    """Return a sweep by successive halving, whose promotions depend on nothing except its seed."""
    return ob.Sweep(
        train,
        name=name,
        space=SPACE | {"repeats": ob.constant(repeats), "images": ob.constant(images)},
        metric="accuracy",
        mode="max",
        tuner=ob.SuccessiveHalving(max_steps=steps, min_steps=first, trials=trials, eta=3, seed=7),
        env={"OMP_NUM_THREADS": "1"},
    )


@contextlib.contextmanager
def cluster(data: Path, lease: str) -> Iterator[ob.Client]:
    """Run a server under Themis with a worker for each device."""
    binary = os.environ.get("OUTBID_BIN") or shutil.which("outbid") or "bin/outbid"
    data.mkdir(parents=True, exist_ok=True)
    ready, log = data / "server.json", data / "server.log"
    ready.unlink(missing_ok=True)
    command = [binary, "up", "--data", str(data), "--api", "127.0.0.1:0", "--ready-file", str(ready)]
    command += ["--policy", "themis", "--policy-option", f"lease={lease}", "--workers", str(len(DEVICES))]
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
            # Each worker starts Python once and keeps it; the first sweep should not pay for that.
            sweep("warm-up", 2 * len(DEVICES), 1, 1, 1, 100).submit(client).wait()
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def outcome(handle: ob.SweepHandle) -> list[tuple[int, int, float | None]]:
    """Return the outcome of each trial: its number, its steps, and its best accuracy."""
    return [(trial.number, trial.step, trial.metric) for trial in handle.trials()]


def rounds(client: ob.Client) -> dict[str, int]:
    """Count the leases that the policy granted, renewed and revoked."""
    binary = os.environ.get("OUTBID_BIN") or shutil.which("outbid") or "bin/outbid"
    listing = subprocess.run(
        [binary, "--server", client.url, "auction", "--list", "--limit", "1000", "-o", "json"],
        check=True, capture_output=True,
    )  # fmt: skip
    kinds = [decision["kind"] for entry in json.loads(listing.stdout) for decision in entry["decisions"]]
    return {kind: kinds.count(kind) for kind in ("grant", "renew", "revoke")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(".outbid/contest"), help="where everything is kept")
    parser.add_argument("--lease", default="3s", help="how long devices are granted for")
    parser.add_argument("--repeats", type=int, default=12, help="how long a step is, in rounds of training")
    parser.add_argument("--images", type=int, default=1077, help="how many images are trained on, of 1077")
    parser.add_argument("--alone", action=argparse.BooleanOptionalAction, default=True, help="run each alone, too")
    options = parser.parse_args()

    failed = False
    alone: list[tuple[ob.SweepInfo, list[tuple[int, int, float | None]]]] = []
    with cluster(options.data, options.lease) as client:
        together = [sweep(*settings, options.repeats, options.images).submit(client) for settings in SWEEPS]
        for handle in together:
            handle.wait()
        infos = [handle.info() for handle in together]
        outcomes = [outcome(handle) for handle in together]
        counts = rounds(client)
        for settings in SWEEPS if options.alone else []:
            handle = sweep(*settings, options.repeats, options.images).submit(client)
            handle.wait()
            alone.append((handle.info(), outcome(handle)))

    print(f"the arbiter granted {counts['grant']}, renewed {counts['renew']} and took back {counts['revoke']} leases\n")
    header = f"{'sweep':<10}{'trials':>7}{'took':>9}{'share':>9}{'rho':>7}{'alone':>9}"
    print(f"{header}  same trials, steps and accuracies alone")
    for i, info in enumerate(infos):
        took = (info.ended - info.submitted).total_seconds()
        fair = info.fairness
        line = f"{info.name:<10}{info.counts['total']:>7}{took:>8.1f}s{fair.alone_seconds:>8.1f}s{fair.rho:>7.2f}"
        if alone:
            other, result = alone[i]
            same = result == outcomes[i]
            failed |= not same
            line += f"{(other.ended - other.submitted).total_seconds():>8.1f}s  {'yes' if same else 'NO'}"
        print(line)
        failed |= info.state != "done"
    print("\n`share` is how long a sweep would take alone on its share of the cluster; rho is what it took over that")
    if failed:
        sys.exit("a sweep failed, or came to another result than alone")


if __name__ == "__main__":
    main()
