"""A process that outlives the actor that started it, by as long as it takes to end in good order.

Ray kills the children of an actor's process with it, at once. So a program stands below a guard, which has left that
family and holds one end of a socket: when the other end closes, however the actor ended, the guard tells the program
to end and waits for it.

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

_LEAVE_SECONDS = 60.0  # in which the workers of a server whose actor died may save and leave


class Guarded:
    """A program below a guard."""

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
        """Start it; its output goes to the file `log`.

        `remove` is a directory that goes with it. `idle` is a command that lists the nodes of the server that is the
        program and wrote the file `ready`: when this process dies, the server is told to end only once none of them
        is up. `stop_seconds` is how long it may then take.
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
        """The program's process; 0 before it has started."""
        self.code: int | None = None
        """Its exit code once it has ended."""
        if starter.returncode:
            raise RuntimeError(f"the guard of {command[0]} did not start: exit code {starter.returncode}")
        self._hear(10.0, until_started=True)

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        self._hear(0.0)
        return self.code

    def wait(self, seconds: float) -> int | None:
        """Wait for its end; returns the exit code, or None if it still runs."""
        end = time.monotonic() + seconds
        while self.code is None and (left := end - time.monotonic()) > 0:
            self._hear(left)
        return self.code

    def terminate(self) -> None:
        """Tell it to end in good order (SIGTERM)."""
        if self.code is None:
            try:
                self._socket.sendall(b"end\n")
            except OSError:  # it has ended, which the next poll says
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
    """Leave the family, start the program, and see to its end."""
    if os.fork():
        os._exit(0)  # so that the guard is nobody's child
    line = socket.socket(fileno=fd)
    with open(setup["log"], "ab") as log:
        child = subprocess.Popen(
            setup["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        os.dup2(log.fileno(), 1)  # what the actor's output goes to is not to be kept open by the guard
        os.dup2(log.fileno(), 2)
    _say(line, f"pid {child.pid}\n")
    threading.Thread(target=_see_to, args=(line, child, setup), daemon=True).start()
    code = child.wait()
    if setup["remove"] and code == 0:
        shutil.rmtree(setup["remove"], ignore_errors=True)
    _say(line, f"code {code}\n")


def _see_to(line: socket.socket, child: subprocess.Popen[bytes], setup: Mapping[str, Any]) -> None:
    """End the program when the actor says so, or is no more."""
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
    """Wait until no node is up: workers save through the server when they are told to end."""
    end = time.monotonic() + _LEAVE_SECONDS
    try:
        with open(ready) as file:
            command = [*command, "--server", json.load(file)["api"]]
    except (OSError, ValueError, KeyError):  # it never served
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
    except OSError:  # the actor is no more
        pass


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
