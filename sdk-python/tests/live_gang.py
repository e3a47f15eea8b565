"""A server and two workers in separate processes, and a sweep with a gang on them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import live_server
import outbid as ob
from server_log import check_log

SRC = str(Path(__file__).resolve().parents[1] / "src")
DEADLINE = 120.0
STEPS = 60
until = partial(live_server.until, deadline=DEADLINE)


class Cluster:
    """A server and two workers, each in a separate process. Its sweeps run `train`, whose files are in `place`."""

    def __init__(self, folder: Path, train: Callable[[ob.Trial], None]) -> None:
        self.train = train
        self.folder, self.log, self.place = folder, folder / "server.log", folder
        self.handle: ob.SweepHandle | None = None
        self.env = {**os.environ, "PYTHONPATH": SRC}
        self.env.pop("OUTBID_DEVICES", None)
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the server and the workers."""
        self.serve("127.0.0.1:0", "127.0.0.1:0")
        for name in ("a", "b"):
            self.worker(name)
        self.client = ob.connect(self.info["api"])
        until(lambda: self.nodes() == 2, "both workers have joined", self.log)

    def serve(self, api: str, nats: str) -> None:
        """Start the server."""
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = ["serve", "--data", str(self.folder / "data"), "--api", api, "--nats-listen", nats]
        self.server = self.run(*command, "--ready-file", str(ready), "--lease", "4s")
        until(ready.exists, "the server is ready", self.log)
        self.info = json.loads(ready.read_text())

    def kill(self, victim: str) -> None:
        """Kill the server, or else a worker, and start it again."""
        if victim == "server":
            self.server.kill()
            self.server.wait()
            self.serve(*(self.info[name].partition("://")[2] for name in ("api", "nats")))
        else:
            self.workers[victim].kill()
            self.workers[victim].wait()
            self.worker(victim)

    def revive(self) -> bool:
        """Start the server again if it has ended because it stood still for longer than its lease. Return True."""
        if self.server.poll() is not None:
            self.serve(*(self.info[name].partition("://")[2] for name in ("api", "nats")))
        return True

    def saving(self, node: str) -> bool:
        """Return whether a node's worker has a checkpoint that is not in the store."""
        return any(not file.name.startswith("start") for file in (self.folder / node).rglob("*.safetensors"))

    def nodes(self) -> int:
        """Return the number of nodes that are up."""
        return live_server.nodes_up(self.info["api"], DEADLINE)

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """Start the binary."""
        with self.log.open("a") as log:
            return subprocess.Popen([os.environ["OUTBID_BIN"], *command], env=self.env, stderr=log, stdout=log)

    def worker(self, name: str) -> None:
        """Start a worker, possibly again."""
        command = ["worker", "--nats", self.info["nats"], "--keys", self.info["keys"], "--name", name]
        command += ["--dir", str(self.folder / name)]
        self.workers[name] = self.run(*command, "--devices", "cpu:2", "--python", sys.executable)

    @contextmanager
    def testing(self, place: Path) -> Iterator[Cluster]:
        """Run a test in its own directory, and end the sweep that it leaves behind."""
        self.place = place
        try:
            yield self
        finally:
            self.revive()
            for name in [name for name, worker in self.workers.items() if worker.poll() is not None]:
                self.worker(name)
            if self.handle is not None and self.handle.info().state not in ("done", "failed"):
                self.handle.stop()
                self.handle.wait(timeout=DEADLINE)
            until(lambda: self.nodes() == 2, "both workers have joined", self.log)

    def submit(self, tuner: ob.Tuner | None = None, devices: int | tuple[int, int] = 4, spread: bool = True) -> Any:
        """Submit a sweep of one trial, unless the tuner says otherwise."""
        sweep = ob.Sweep(
            self.train,
            {"x": ob.uniform(0, 1)},
            metric="loss",
            mode="max",
            tuner=tuner or ob.Random(max_steps=STEPS, seed=1),
            trials=None if tuner else 1,
            resources=ob.Resources(devices=devices, processes="per_device", spread=spread),
            checkpoints=ob.Checkpoints(last=True, every="200ms"),
            env={"GANG_FOLDER": str(self.place), "OMP_NUM_THREADS": "1"},
            max_restarts=10,
        )
        self.handle = sweep.submit(self.client)
        return self.handle

    def lines(self, name: str) -> list[list[Any]]:
        """Return the lines of a file that the training function writes."""
        file = self.place / name
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def failures(self) -> list[dict[str, Any]]:
        """Return the sweep's failures in the ledger."""
        assert self.handle is not None
        found = [e["fork_failed"] for e in live_server.events(self.folder / "data") if "fork_failed" in e]
        return [failure for failure in found if failure["sweep"] == self.handle.id]

    def touch(self, name: str) -> None:
        """Create one of the files that the training function waits for."""
        (self.place / name).touch()

    def begin(self, *, slow: bool = False) -> None:
        """Let the training function take steps: slowly, for events that must happen while it trains, or fast."""
        (self.place / "slow").touch() if slow else (self.place / "slow").unlink(missing_ok=True)
        self.touch("begin")


@contextmanager
def running(folder: Path, train: Callable[[ob.Trial], None]) -> Iterator[Cluster]:
    """Run a cluster until the end of the context."""
    cluster = Cluster(folder, train)
    try:
        cluster.start()
        yield cluster
    finally:
        for process in [*cluster.workers.values(), cluster.server]:
            process.send_signal(signal.SIGTERM)
        for process in [*cluster.workers.values(), cluster.server]:
            process.wait(60)
        check_log(cluster.log)


def pace(folder: Path, pause: threading.Event) -> None:
    """Wait for the duration of a step."""
    pause.wait(0.2 if (folder / "slow").exists() else 0.02)


def started(cluster: Cluster, times: int = 1) -> list[list[Any]]:
    """Wait until all four processes have started a number of times, and return the last ones by rank."""
    until(
        lambda: cluster.revive() and len(cluster.lines("processes")) >= 4 * times, "the gang has started", cluster.log
    )
    return sorted(cluster.lines("processes")[4 * (times - 1) :])


def trains(cluster: Cluster, handle: Any, after: int = 0) -> None:
    """Let it train slowly until a checkpoint of a later step is stored."""
    cluster.begin(slow=True)
    until(lambda: any(c.step > after for c in handle.trials()[0].checkpoints), "a checkpoint is stored", cluster.log)
