"""A worker for tests: starts a real training process and connects over a Unix socket."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from google.protobuf import duration_pb2

from outbid._core import function_pickle
from outbid.v1 import bus_pb2, node_pb2, session_pb2

DEADLINE = 60.0  # seconds after which a test fails
SRC = Path(__file__).resolve().parents[1] / "src"


class _Frames:
    """A connection with length-prefixed messages."""

    def __init__(self, path: Path, said: queue.SimpleQueue[Any], orders: queue.SimpleQueue[Any]) -> None:
        self._said, self._orders = said, orders
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._connection: socket.socket | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            self._connection, _ = self._listener.accept()
        except OSError:
            return  # stopped
        threading.Thread(target=self._write, args=(self._connection,), daemon=True).start()
        with contextlib.suppress(OSError), self._connection.makefile("rb") as stream:
            while len(length := stream.read(4)) == 4:
                body = stream.read(int.from_bytes(length, "big"))
                self._said.put(session_pb2.AttachRequest.FromString(body))
        self._said.put(None)
        self._orders.put(None)

    def _write(self, connection: socket.socket) -> None:
        while (order := self._orders.get()) is not None:
            body = order.SerializeToString()
            with contextlib.suppress(OSError):
                connection.sendall(len(body).to_bytes(4, "big") + body)
        connection.close()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)


class FakeWorker:
    """One training process and its stream."""

    def __init__(self, tmp: Path, function: Callable[..., Any] | None = None, **env: str) -> None:
        self.scratch = tmp / "scratch"
        self.scratch.mkdir(exist_ok=True)
        self.function_path = tmp / "function"
        if function is not None:
            self.function_path.write_bytes(function_pickle.dump(function))
        self.said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._server = _Frames(tmp / "s", self.said, self._orders)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "outbid.trial_process"],
            env={
                **os.environ,
                "OUTBID_STREAM": f"{tmp}/s",
                "OUTBID_SESSION": "secret",
                "PYTHONPATH": str(SRC),
                "PYTHONFAULTHANDLER": "1",  # see _next
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.lease_id = 0
        self.fork = node_pb2.ForkRef()

    def hear(self, kind: str | None = None) -> Any:
        """Return the next message of the process, which must be of this kind."""
        message = self._next()
        if message is None:
            raise EOFError("the process ended the stream")
        got = message.WhichOneof("kind")
        if kind is not None and got != kind:
            raise AssertionError(f"heard {got} instead of {kind}: {message}")
        return getattr(message, got)

    def _next(self) -> Any:
        """Return the next message, or None at the end; without one, print where the process and its children are."""
        try:
            return self.said.get(timeout=DEADLINE)
        except queue.Empty:
            os.killpg(self.process.pid, signal.SIGABRT)
            _, where = self.process.communicate(timeout=DEADLINE)
        raise AssertionError(f"no message for {DEADLINE} s:\n{where}")

    def reports(self, n: int) -> list[Any]:
        """Return the next n reports, however they are batched."""
        found: list[Any] = []
        while len(found) < n:
            found.extend(self.hear("reports").reports)
        assert len(found) == n, found
        return found

    def until(self, kind: str) -> Any:
        """Return the next message of this kind, ignoring earlier ones."""
        while True:
            message = self._next()
            if message is None:
                raise EOFError("the process ended the stream")
            if message.WhichOneof("kind") == kind:
                return getattr(message, kind)

    def assign(self, config: str = "{}", *, trial: int = 0, save_every: float = 0, **fields: Any) -> None:
        self.lease_id += 1
        self.fork = node_pb2.ForkRef(sweep="s-1", trial=trial, lease_id=self.lease_id)
        assignment = session_pb2.TrialAssignment(
            fork=self.fork,
            config_json=config,
            function_path=str(self.function_path),
            scratch=str(self.scratch),
            metric="loss",
            mode="min",
            **fields,
        )
        if save_every:
            assignment.save_every.CopyFrom(duration_pb2.Duration(nanos=int(save_every * 1e9)))
        self._orders.put(session_pb2.AttachResponse(assignment=assignment))

    def direct(self, verdict: str = "", until_step: int = 0, save: bool = False) -> None:
        directive = session_pb2.Directive(fork=self.fork, until_step=until_step, save=save)
        directive.verdict = bus_pb2.Verdict.Value(f"VERDICT_{verdict.upper() or 'UNSPECIFIED'}")
        self._orders.put(session_pb2.AttachResponse(directive=directive))

    def save_done(self, step: int, error: str = "") -> None:
        done = session_pb2.SaveDone(fork=self.fork, step=step, error=error)
        self._orders.put(session_pb2.AttachResponse(save_done=done))

    def shutdown(self) -> None:
        self._orders.put(session_pb2.AttachResponse(shutdown=session_pb2.ProcessShutdown(reason="done")))

    def break_stream(self) -> None:
        self._server.stop()

    def output(self) -> tuple[str, str]:
        """Wait for the end of the process and return its output."""
        return self.process.communicate(timeout=DEADLINE)

    def close(self) -> None:
        # Kill its child processes too, because a remaining one would keep the pipes open and block the test.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=DEADLINE)
        self._orders.put(None)
        self._server.stop()
