"""A sweep whose orchestrator is killed with `kill -9` several times, and its result.

Run it at the top of the repository after `make build`, with the Python that `make demo` made: .cache/venv/bin/python
examples/survive/survive.py
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "digits"))
import outbid as ob

import network


def train(trial):
    """Train one configuration of the digits example."""
    (x, y), (x_val, y_val), _ = network.load_images()
    net = network.Network(network.DEFAULT | trial.config, trial.seed)
    if checkpoint := trial.checkpoint():
        net.state = checkpoint
    for step in trial.steps():
        loss = net.train_step(x, y, step)
        trial.save(net.state)
        trial.report(step=step, loss=loss, accuracy=net.accuracy(x_val, y_val))


class Orchestrator:
    """`outbid up` with two devices, always on the same port so that clients find it again."""

    def __init__(self, data: Path) -> None:
        binary = os.environ.get("OUTBID_BIN") or shutil.which("outbid") or "bin/outbid"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.url = f"http://{address}"
        self._ready, self._log = data / "ready.json", data / "server.log"
        self._command = [binary, "up", "--data", str(data), "--api", address, "--devices", "cpu:2"]
        self._command += ["--ready-file", str(self._ready)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start the orchestrator; returns the seconds until it was ready."""
        began = time.monotonic()
        self._ready.unlink(missing_ok=True)
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        while not self._ready.exists():
            if self._process.poll() is not None:
                sys.exit(f"`outbid up` ended at once:\n{self._log.read_text()}")
            time.sleep(0.01)
        return time.monotonic() - began

    def end(self, how: signal.Signals) -> None:
        """Send a signal and wait for the end."""
        self._process.send_signal(how)
        self._process.wait()


def reported(handle: ob.SweepHandle) -> dict[tuple[int, int], float]:
    """Return all reports in the ledger, by trial and step."""
    return {(report.trial, report.step): report.metrics["accuracy"] for report in handle.reports()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(".outbid/survive"), help="where everything is kept")
    parser.add_argument("--kills", type=int, default=4, help="how often the orchestrator is killed")
    parser.add_argument("--reports", type=int, default=40, help="how many reports it takes in between two kills")
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)

    orchestrator = Orchestrator(options.data)
    orchestrator.start()
    sweep = ob.Sweep(
        train,
        name="survive",
        space={
            "lr": ob.loguniform(1e-3, 1.0),
            "units": ob.integer(16, 128, log=True),
            "shift": ob.uniform(0, 1),
        },
        metric="accuracy",
        mode="max",
        tuner=ob.Hyperband(max_steps=27, eta=3, seed=3),
        env={"OMP_NUM_THREADS": "1"},
    )
    with ob.connect(orchestrator.url):
        handle = sweep.submit()
        print(f"submitted {handle.id}")
        over = threading.Event()
        # The client that waits for the sweep must wait through every restart.
        waiter = threading.Thread(target=lambda: (handle.wait(), over.set()), daemon=True)
        waiter.start()
        acknowledged: dict[tuple[int, int], float] = {}
        for kill in range(1, options.kills + 1):
            enough = len(acknowledged) + options.reports
            while len(acknowledged) < enough and not over.wait(0.1):
                acknowledged |= reported(handle)
            if over.is_set():
                break
            orchestrator.end(signal.SIGKILL)
            took = orchestrator.start()
            lost = acknowledged.items() - reported(handle).items()
            print(f"kill -9 no. {kill}: {len(acknowledged)} reports before, {len(lost)} lost, up again in {took:.2f} s")
            if lost:
                sys.exit(f"lost: {sorted(lost)[:10]}")
        waiter.join()
        result = handle.result()
        counts = {state: n for state, n in result.sweep.counts.items() if n}
        print(f"{result.sweep.id} is {result.sweep.state}: {counts}, {result.sweep.steps} steps")
        print(f"best: trial {result.best.number}, accuracy {result.best.metric:.4f}")
        if acknowledged.items() - reported(handle).items():
            sys.exit("reports were lost")
    orchestrator.end(signal.SIGINT)


if __name__ == "__main__":
    main()
