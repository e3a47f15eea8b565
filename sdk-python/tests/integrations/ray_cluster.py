"""A real cluster of Ray's for tests, of several nodes on this machine and on loopback alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SRC = str(Path(__file__).resolve().parents[2] / "src")
MEMORY = 80_000_000
PATIENCE = 150.0  # for anything of Ray's on a machine that has other things to do

# Before Ray is imported: it would look for an address beyond loopback otherwise, and send statistics.
ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "PYTHONPATH": os.pathsep.join([SRC, str(Path(__file__).parents[1])]),
}


def eventually(what: str, done: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until something holds, and return it."""
    end = time.monotonic() + seconds
    while not (found := done()):
        if time.monotonic() >= end:
            pytest.fail(f"not in {seconds:g} s: {what}")
        time.sleep(0.05)
    return found


class RayCluster:
    """A head without CPUs, and nodes that come and go."""

    def __init__(self, **head: Any) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "node_ip_address": "127.0.0.1",
                "include_dashboard": False,
                "object_store_memory": MEMORY,
                **head,
            },
        )

    @property
    def address(self) -> str:
        """Where drivers connect to."""
        return str(self.cluster.address)

    def add(self, cpus: int) -> Any:
        """Add a node."""
        return self.cluster.add_node(num_cpus=cpus, node_ip_address="127.0.0.1", object_store_memory=MEMORY)

    def kill(self, node: Any, workers: list[int]) -> None:
        """End a node as a machine ends: nothing on it has any time, Outbid's workers among it."""
        for pid in workers:
            guard = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            for one in (guard, pid):
                os.kill(one, signal.SIGKILL)
        node.kill_raylet()  # kill -9
        self.cluster.remove_node(node, allow_graceful=False)

    def drain(self, node_id: str) -> None:
        """Give a node notice."""
        subprocess.run(
            [
                str(Path(sys.executable).parent / "ray"), "drain-node", "--address", self.address,
                "--node-id", node_id, "--reason", "DRAIN_NODE_REASON_PREEMPTION",
                "--reason-message", "spot", "--deadline-remaining-seconds", "600",
            ],
            check=True,
            capture_output=True,
            timeout=PATIENCE,
        )  # fmt: skip

    def driver(self, script: str, *args: str) -> subprocess.Popen[str]:
        """Start a text of Python that is a driver of its own."""
        return self.program("-c", script, *args)

    def program(self, *words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start Python as a driver of its own."""
        return subprocess.Popen(
            [sys.executable, *words],
            env={**os.environ, "RAY_ADDRESS": self.address},
            cwd=cwd,
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )

    def end(self) -> None:
        """End everything."""
        self.cluster.shutdown()
