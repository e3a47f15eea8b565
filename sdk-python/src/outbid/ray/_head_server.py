"""The server of a cluster, on the head node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import ray

from outbid._client.local_server import find_binary
from outbid.ray._guard import Guarded
from outbid.ray._setup import Access, Setup, environment

_START_SECONDS = 60.0


class Serving:
    """Runs `outbid serve`, with new certificates and a new token if other machines can reach it."""

    def __init__(self, setup: Setup) -> None:
        self._data = Path(setup.data or Path.home() / ".outbid" / "ray" / setup.name).absolute()
        self._data.mkdir(parents=True, exist_ok=True)
        self._outbid = find_binary()
        host = ray.util.get_node_ip_address()
        secure = not host.startswith("127.") if setup.secure is None else setup.secure
        ready = self._data / "server.json"
        ready.unlink(missing_ok=True)
        command = [self._outbid, "serve", "--data", str(self._data), "--ready-file", str(ready)]
        command += ["--api", f"{host}:0", "--nats-listen", f"{host}:0", *setup.server_options]
        token, ca, listing = "", "", [self._outbid, "nodes", "-o", "json"]
        if secure:
            token, ca = self._secrets(host)
            keys = self._data / "tls"
            command += ["--tls-cert", str(keys / "cert.pem"), "--tls-key", str(keys / "key.pem")]
            command += ["--tokens", str(self._data / "tokens")]
            listing += ["--ca", str(keys / "ca.pem"), "--token-file", str(self._data / "token")]
        self._log = self._data / "server.log"
        env = environment(ray.get_runtime_context().gcs_address)
        for name in ("OUTBID_URL", "OUTBID_TOKEN", "OUTBID_CA_FILE"):
            env.pop(name, None)
        self._process = Guarded(command, str(self._log), env, idle=listing, ready=str(ready))
        self.access = Access(self._await_ready(ready), token, ca)

    def _secrets(self, host: str) -> tuple[str, str]:
        """Create a certificate, and an admin token for the users of this Ray cluster."""
        tokens = self._data / "tokens"
        tokens.unlink(missing_ok=True)
        shutil.rmtree(self._data / "tls", ignore_errors=True)
        self._run("tls", "new", "--dir", str(self._data / "tls"), "--host", host)
        made = self._run("token", "new", "--file", str(tokens), "--name", "ray", "--tenant", "*", "--role", "admin")
        token = made.strip()
        with open(os.open(self._data / "token", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(token)
        return token, (self._data / "tls" / "ca.pem").read_text()

    def _run(self, *words: str) -> str:
        done = subprocess.run([self._outbid, *words], capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"outbid {' '.join(words[:2])}: {done.stderr.strip()}")
        return done.stdout

    def _await_ready(self, ready: Path) -> str:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            try:
                return str(json.loads(ready.read_text())["api"])
            except (FileNotFoundError, ValueError, KeyError):
                time.sleep(0.02)
        self._process.terminate()
        log = self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
        raise RuntimeError(f"`outbid serve` did not become ready; the end of {self._log}:\n{log}")

    def ended(self) -> bool:
        """Return whether the server has ended by itself."""
        return self._process.poll() is not None

    def stop(self, seconds: float) -> None:
        """Shut the server down."""
        self._process.terminate()
        self._process.wait(seconds)
