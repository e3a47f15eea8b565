"""A real Ray cluster for tests, with several nodes on this machine that only use loopback."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

TESTS = Path(__file__).resolve().parents[2]
SRC = str(TESTS.parent / "src")
HEAD_TYPE = "ray.head.default"
MEMORY = 80_000_000
PATIENCE = 150.0  # seconds that any operation of Ray may take on a busy machine

# Set before Ray is imported, which would otherwise look for an address beyond loopback and send statistics.
ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": str(int(PATIENCE)),
    "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "1",  # seconds in which a client that died may reconnect
    "RAY_SCHEDULER_EVENTS": "0",  # the autoscaler must not print into a program's output
    "RAY_FAKE_CLUSTER": "1",  # the autoscaler's nodes are processes on this machine
    "RAY_enable_metrics_collection": "0",  # the metrics exporter sometimes crashes a node on start (ray#61281)
    # gRPC's fork handlers abort processes that Ray starts by fork, if another thread is in gRPC.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    "PYTHONPATH": os.pathsep.join([SRC, str(TESTS)]),
}


def eventually(what: str, done: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait until a condition holds, and return its result."""
    end = time.monotonic() + seconds
    while not (found := done()):
        if time.monotonic() >= end:
            pytest.fail(f"not in {seconds:g} s: {what}")
        time.sleep(0.05)
    return found


class Program(subprocess.Popen[str]):
    """A program that is killed with its children if it takes too long, so that no test reads from it indefinitely."""

    def __init__(self, command: list[str], **options: Any) -> None:
        super().__init__(command, start_new_session=True, **options)
        self._late = threading.Timer(3 * PATIENCE, self.kill)
        self._late.daemon = True
        self._late.start()

    def says(self, begins: str) -> str:
        """Return the next line with this prefix, skipping Ray's messages about its nodes."""
        assert self.stdout
        told: list[str] = []
        for line in self.stdout:
            if line.startswith(begins):
                return line.rstrip("\n")
            told.append(line)
        raise AssertionError(f"it never said {begins!r}: {''.join(told)}")

    def kill(self) -> None:
        """Kill the program."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            self.kill()  # the test has failed, so the program's end is not awaited
        super().__exit__(*error)
        self._late.cancel()


class Raylet:
    """A node's process."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Record which of the processes that Ray starts in this context it is."""
        from ray._private import ray_constants, services

        start = services.start_ray_process

        def started(command: list[str], process_type: str, *args: Any, **kwargs: Any) -> Any:
            info = start(command, process_type, *args, **kwargs)
            if process_type == ray_constants.PROCESS_TYPE_RAYLET:
                self._process = info.process
            return info

        with mock.patch("ray._private.services.start_ray_process", started):
            yield

    def is_of(self, node: Any) -> bool:
        """Return whether this is a node's raylet."""
        return any(info.process is self._process for infos in node.all_processes.values() for info in infos)

    def crash(self) -> str:
        """Return the exit code and last output of a raylet that has crashed, or ""."""
        if self._process is None or not (code := self._process.poll()):
            return ""  # a node that was drained ends with 0
        words = [f"a raylet ended with {code}"]
        for file in sorted(self.place.glob("*/logs/raylet.*")):
            words += [f"{file.name}:", *file.read_text(errors="replace").splitlines()[-40:]]
        return "\n".join(words)

    def crashed_by_itself(self) -> bool:
        """Return whether it has crashed in Ray's own code.

        Either writing a trace was stuck until its alarm, or its agents took longer than 15 s to start.
        """
        if self._process is not None and self._process.poll() == -signal.SIGALRM:
            return True
        errors = self.place.glob("*/logs/raylet.err")
        return any("Timed out waiting for file" in file.read_text(errors="replace") for file in errors)


class RayCluster:
    """A head without CPUs, and nodes that are added and removed."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._places: list[tempfile.TemporaryDirectory[str]] = []
        self._raylets: list[Raylet] = []
        self._crashed_by_itself = False  # of the last raylet that crashed
        self._jobs = free_port()
        with mock.patch("ray._private.services.start_ray_process", jobs_alone()), patience():
            self.cluster = Cluster(
                initialize_head=True,
                head_node_args={
                    "num_cpus": 0,
                    "node_ip_address": "127.0.0.1",
                    "include_dashboard": True,
                    "dashboard_host": "127.0.0.1",
                    "dashboard_port": self._jobs,
                    "dashboard_agent_listen_port": 0,  # any port; the default may be in use by another cluster
                    "no_monitor": True,
                    "object_store_memory": MEMORY,
                },
            )

    @property
    def address(self) -> str:
        """The address for drivers."""
        return str(self.cluster.address)

    @property
    def jobs(self) -> str:
        """The address for submitting jobs."""
        return f"http://127.0.0.1:{self._jobs}"

    @functools.cached_property
    def client(self) -> str:
        """The address for Ray Client. It is started late, because it fails if the head does not exist within 30 s."""
        head = self.cluster.head_node
        head._ray_params.ray_client_server_port = port = free_port()
        head.start_ray_client_server()
        return f"ray://127.0.0.1:{port}"

    @contextlib.contextmanager
    def autoscaled(self, place: Path, resources: dict[str, float]) -> Iterator[None]:
        """Run Ray's autoscaler, which adds one node with these resources when they are requested."""
        head = self.cluster.head_node
        provider = {"type": "fake_multinode", "gcs_address": self.address, "head_node_id": head.node_id}
        provider |= {"use_node_id_as_ip": True, "disable_node_updaters": True, "disable_launch_config_check": True}
        room = {**resources, "object_store_memory": MEMORY}
        types = {HEAD_TYPE: {"resources": {}, "node_config": {}, "max_workers": 0}}
        types["more"] = {"resources": room, "node_config": {}, "min_workers": 0, "max_workers": 1}
        config = {"cluster_name": "fake", "max_workers": 1, "idle_timeout_minutes": 0.05, "upscaling_speed": 1.0}
        config |= {"provider": provider, "available_node_types": types, "head_node_type": HEAD_TYPE, "docker": {}}
        config |= {"auth": {}, "file_mounts": {}, "cluster_synced_files": [], "file_mounts_sync_continuously": False}
        for name in ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray"):
            config[f"{name}_commands"] = []
        file = place / "autoscaler.yaml"
        file.write_text(json.dumps(config))
        head._ray_params.autoscaling_config = str(file)
        head.start_monitor()
        try:
            yield
        finally:
            head.kill_monitor()

    def add(self, cpus: int, gpus: int = 0) -> Any:
        """Add a node, with a number of GPUs that only Ray believes in.

        A raylet sometimes crashes on start (seen with Ray 2.60), before it runs anything; then another one is started.
        """
        try:
            return self._add(cpus, gpus)
        except pytest.fail.Exception as crash:
            if not self._crashed_by_itself:
                raise
            print(f"{crash}\nanother is started in its place", file=sys.stderr)
            return self._add(cpus, gpus)

    def _add(self, cpus: int, gpus: int) -> Any:
        # Each node has its own folder, because nodes with the same folder overwrite each other's unpacked job files.
        self._places.append(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
        raylet = Raylet(Path(self._places[-1].name))
        self._raylets.append(raylet)
        with raylet.noted(), patience(self.check), light_agent():
            where = {"node_ip_address": "127.0.0.1", "temp_dir": str(raylet.place)}
            node = self.cluster.add_node(num_cpus=cpus, num_gpus=gpus, object_store_memory=MEMORY, **where)
        self.runs(node)
        return node

    def runs(self, node: Any) -> None:
        """Fail unless a node runs a task, because it may have crashed since it joined."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if not ray.is_initialized():
            return
        there = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        nothing = ray.remote(num_cpus=0, max_retries=0)(lambda: None).options(scheduling_strategy=there)
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(nothing.remote(), timeout=PATIENCE)
        self.check()

    def check(self) -> bool:
        """Fail with the last output if a raylet has ended unexpectedly; otherwise return True."""
        for raylet in self._raylets:
            if crash := raylet.crash():
                self._raylets.remove(raylet)  # reported once
                self._crashed_by_itself = raylet.crashed_by_itself()
                pytest.fail(crash)
        return True

    def alive(self) -> list[str]:
        """Return the nodes that Ray considers alive."""
        import ray

        return [node["NodeID"] for node in ray.nodes() if node["Alive"]]

    def kill(self, node: Any, workers: list[int]) -> None:
        """End a node as if its machine failed: it has no time to shut down, and neither have Outbid's workers."""
        for pid in workers:
            guard = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            for one in (guard, pid):
                os.kill(one, signal.SIGKILL)
        self._raylets = [one for one in self._raylets if not one.is_of(node)]
        node.kill_raylet()  # kill -9
        self.cluster.remove_node(node, allow_graceful=False)

    def remove(self, node_id: str) -> None:
        """Remove the rest of a node that was drained."""
        for node in [one for one in self.cluster.worker_nodes if one.node_id == node_id]:
            self._raylets = [one for one in self._raylets if not one.is_of(node)]
            self.cluster.remove_node(node, allow_graceful=False)

    def drain(self, node_id: str) -> None:
        """Start draining a node."""
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

    def driver(self, script: str, *args: str) -> Program:
        """Start Python code as a separate driver."""
        return self.program("-c", script, *args)

    def program(self, *words: str, cwd: Path | None = None) -> Program:
        """Start Python as a separate driver."""
        return Program(
            [sys.executable, *words],
            env={**os.environ, "RAY_ADDRESS": self.address},
            cwd=cwd,
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )

    def end(self) -> None:
        """End everything, including processes left by the nodes of the fake autoscaler."""
        session = self.cluster.head_node.get_session_dir_path()
        self.cluster.shutdown()
        for words in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended
                if f"--session-dir={session}".encode() in words.read_bytes().split(b"\0"):
                    os.kill(int(words.parent.name), signal.SIGKILL)
        for place in self._places:
            place.cleanup()


def jobs_alone() -> Callable[..., Any]:
    """Return Ray's function for starting processes, with only those dashboard modules that jobs need."""
    from ray._private import services

    start = services.start_ray_process

    def started(command: list[str], *args: Any, **kwargs: Any) -> Any:
        if any(word.endswith("dashboard.py") for word in command):
            command = [*command, "--modules-to-load=JobHead,NodeHead"]
        return start(command, *args, **kwargs)

    return started


@contextlib.contextmanager
def light_agent() -> Iterator[None]:
    """Start nodes without the dashboard, because no test uses their agents.

    A node ends if its agent has not reported its ports within 15 s, and on a busy machine the imports take that long.
    """
    missing = ImportError("the tests need no dashboard on this node")
    with mock.patch("ray._private.utils.get_dashboard_dependency_error", return_value=missing):
        yield


@contextlib.contextmanager
def patience(check: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Make Ray wait longer for a node than its 30 seconds, and check meanwhile."""
    from ray._private import services

    get_node = services.get_node

    def found(*args: Any) -> Any:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return get_node(*args)
            except RuntimeError:
                check()
                if time.monotonic() >= end:
                    raise
                time.sleep(0.1)

    with mock.patch("ray._private.services.get_node", found):
        yield


def free_port() -> int:
    """Return a free port on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])
