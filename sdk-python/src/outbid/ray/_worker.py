"""The actor in which one worker runs, on the node of its bundle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import ray

from outbid._client.local_server import find_binary
from outbid.ray._guard import Guarded
from outbid.ray._setup import BUNDLE, RESOURCES, Access, Setup, environment

_POLL_SECONDS = 0.2


class WorkerActor:
    """Runs `outbid worker` until it ends or `leave` is called. Its methods are called concurrently."""

    def __init__(self, setup: Setup, access: Access, name: str, bundle: str, gpus: str | None) -> None:
        self._setup = setup
        self._access = access
        self._name = name
        self._bundle = bundle
        self._gpus = gpus
        self._leaving = threading.Event()

    def run(self, join_token: str) -> tuple[int, str]:
        """Join the server and run the worker. Returns the exit code, and the end of the log if that is not 0."""
        place = Path(tempfile.mkdtemp(prefix=f"{self._name}-"))
        env = environment(ray.get_runtime_context().gcs_address)
        env[BUNDLE], env[RESOURCES] = self._bundle, json.dumps(dict(self._setup.resources))
        if self._gpus is not None:
            env["CUDA_VISIBLE_DEVICES"] = self._gpus
        log = place / "worker.log"
        worker = Guarded(self._command(place, join_token), str(log), env, remove=str(place))
        told = False
        while (code := worker.wait(_POLL_SECONDS)) is None:
            if self._leaving.is_set() and not told:
                told = True
                worker.terminate()
        if code == 0:
            return 0, ""
        return code, log.read_text(errors="replace")[-2000:] if log.exists() else ""

    def leave(self) -> None:
        """Make trials save and end; then `run` returns."""
        self._leaving.set()

    def _command(self, place: Path, join_token: str) -> list[str]:
        credentials = str(place / "credentials")
        joining = ["--server", self._access.url]
        if self._access.ca:
            (place / "ca.pem").write_text(self._access.ca)
            joining += ["--ca", str(place / "ca.pem")]
        outbid = find_binary()
        joined = subprocess.run(
            [outbid, "worker", "join", "--join-token", "-", "--credentials", credentials, *joining],
            input=join_token,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if joined.returncode:
            raise RuntimeError(f"outbid worker join: {joined.stderr.strip()}")
        command = [outbid, "worker", "--credentials", credentials, "--dir", str(place / "scratch")]
        command += ["--devices", self._setup.devices, "--python", sys.executable]
        command += ["--label", f"ray-node={ray.get_runtime_context().get_node_id()}"]
        for name in ("RAY_ADDRESS", BUNDLE, RESOURCES, *self._setup.pass_env):
            command += ["--pass-env", name]
        if not self._setup.server:  # anyone who may submit sweeps may run code on this Ray cluster anyway
            command.append("--trust-trials")
        return [*command, *self._setup.worker_options]


def visible_gpus() -> str:
    """Return the GPUs that Ray assigned to this task."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")
