"""Runs a program that outlives the actor that started it until it has shut down cleanly.

Ray kills an actor's child processes with it immediately. Therefore a program runs under a guard process, which is no
longer the actor's child and holds one end of a socket. When the other end closes, however the actor ended, the guard
terminates the program and waits for it.

    python -m outbid.ray._guard FD JSON
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

_LEAVE_SECONDS = 60.0  # seconds in which workers of a server whose actor died may save and leave


class Guarded:
    """A program under a guard."""

    def __init__(
        self,
        command: Sequence[str],
        log: str,
        env: Mapping[str, str],
        *,
        remove: str = "",
        idle: Sequence[str] = (),
        ready: str = "",
        stop_seconds: float = 60.0,
    ) -> None:
        """Start the program, with its output in the file `log`.

        `remove` is a directory that is deleted after the program. `idle` is a command that lists the server's nodes, if
        the program is a server, which writes the file `ready`. If this process dies, the server is then terminated only
        when none of its nodes is up. `stop_seconds` is the time that the program has to end.
        """
        mine, theirs = socket.socketpair()
        setup = {
            "command": [*command],
            "log": log,
            "remove": remove,
            "idle": [*idle],
            "ready": ready,
            "stop": stop_seconds,
        }
        with theirs:
            starter = subprocess.Popen(
                [sys.executable, "-m", "outbid.ray._guard", str(theirs.fileno()), json.dumps(setup)],
                pass_fds=[theirs.fileno()],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        starter.wait()
        self._socket = mine
        self._text = b""
        self._ended = False
        self.pid = 0
        """The program's process id; 0 before it has started."""
        self.code: int | None = None
        """The exit code; None while it runs."""
        if starter.returncode:
            raise RuntimeError(f"the guard of {command[0]} did not start: exit code {starter.returncode}")
        self._hear(10.0, until_started=True)

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        self._hear(0.0)
        return self.code

    def wait(self, seconds: float) -> int | None:
        """Wait for the program's end. Returns the exit code, or None if it is still running."""
        end = time.monotonic() + seconds
        while self.code is None and (left := end - time.monotonic()) > 0:
            self._hear(left)
        return self.code

    def terminate(self) -> None:
        """Tell the program to shut down (SIGTERM)."""
        if self.code is None:
            try:
                self._socket.sendall(b"end\n")
            except OSError:  # it has ended, which the next poll reports
                pass

    def _hear(self, seconds: float, *, until_started: bool = False) -> None:
        while self.code is None:
            readable, _, _ = select.select([self._socket], [], [], seconds)
            if not readable:
                return
            read = self._socket.recv(4096)
            self._text += read
            for line in self._text.split(b"\n")[:-1]:
                word, number = line.split()
                if word == b"pid":
                    self.pid = int(number)
                else:
                    self.code = int(number)
            self._text = self._text.rpartition(b"\n")[2]
            if not read and self.code is None:
                self.code = -signal.SIGKILL  # the guard itself was killed
            if until_started and self.pid:
                return


def main(fd: int, setup: Mapping[str, Any]) -> None:
    """Detach from the actor, run the program, and end it when the actor ends."""
    if os.fork():
        os._exit(0)  # so that the guard is not a child of the actor
    line = socket.socket(fileno=fd)
    with open(setup["log"], "ab") as log:
        child = subprocess.Popen(
            setup["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        os.dup2(log.fileno(), 1)  # the guard must not keep the actor's output open
        os.dup2(log.fileno(), 2)
    _say(line, f"pid {child.pid}\n")
    threading.Thread(target=_see_to, args=(line, child, setup), daemon=True).start()
    code = child.wait()
    if setup["remove"] and code == 0:
        shutil.rmtree(setup["remove"], ignore_errors=True)
    _say(line, f"code {code}\n")


def _see_to(line: socket.socket, child: subprocess.Popen[bytes], setup: Mapping[str, Any]) -> None:
    """End the program when the actor requests it or has ended."""
    try:
        told = line.recv(16)
    except OSError:
        told = b""
    if not told and setup["idle"]:
        _await_leaving(setup["idle"], setup["ready"], child)
    child.terminate()
    try:
        child.wait(setup["stop"])
    except subprocess.TimeoutExpired:
        child.kill()


def _await_leaving(command: Sequence[str], ready: str, child: subprocess.Popen[bytes]) -> None:
    """Wait until no node is up, because ending workers save through the server."""
    end = time.monotonic() + _LEAVE_SECONDS
    try:
        with open(ready) as file:
            command = [*command, "--server", json.load(file)["api"]]
    except (OSError, ValueError, KeyError):  # the server never became ready
        return
    while time.monotonic() < end and child.poll() is None:
        asked = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=30)
        try:
            nodes = json.loads(asked.stdout)
        except ValueError:
            nodes = []
        if asked.returncode == 0 and not any(node.get("state") in ("up", "draining") for node in nodes):
            return
        time.sleep(0.2)


def _say(line: socket.socket, text: str) -> None:
    try:
        line.sendall(text.encode())
    except OSError:  # the actor has ended
        pass


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
