"""Records which sweeps of a local server have a running program. The next program pauses the sweeps of a killed one.

A program holds a shared lock on a file for each sweep that it has submitted or attached to. The kernel releases the
lock when the program ends, however it ends. Only sweeps of a server that ends with its programs have such files: on
other servers a sweep runs without the program that submitted it.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outbid._client.connection import Connection
from outbid._client.interrupt import go_on
from outbid._client.server_lock import ServerLock
from outbid._core.errors import NotFoundError, OutbidError
from outbid.v1 import service_pb2 as pb

_FOLDER = "programs"

_locks: dict[Path, ServerLock] = {}  # locks of this program, until it ends


@atexit.register
def _release_all() -> None:
    while _locks:
        _locks.popitem()[1].give_back()


@dataclass(frozen=True)
class _Named:
    """A sweep's id, for `go_on`."""

    id: str


def hold(client: Connection, sweep: str, *, new: bool) -> None:
    """Record that this program uses a sweep until it ends. An old sweep is only recorded if it has a file."""
    if client.data is None or (new and not client.passing):
        return
    path = client.data / _FOLDER / sweep
    if path in _locks or not (new or path.exists()):
        return
    with contextlib.suppress(OSError):  # a sweep without a record is never paused
        path.parent.mkdir(exist_ok=True)
        _locks[path] = ServerLock(path)
        _locks[path].take(0)


def release(client: Connection, sweep: str) -> None:
    """Delete the record of a sweep that has ended."""
    if client.data is None:
        return
    path = client.data / _FOLDER / sweep
    if (lock := _locks.pop(path, None)) is not None:
        lock.give_back()
        path.unlink(missing_ok=True)


def pause_left(client: Connection) -> None:
    """Pause the sweeps of programs that have ended, and print on stderr how to continue or stop each."""
    if client.data is None:
        return
    for path in _left(client.data / _FOLDER):
        with contextlib.suppress(OutbidError, OSError):  # errors here must not prevent the new sweep
            path.unlink(missing_ok=True)  # from now on it is only resumed by a person
            with contextlib.suppress(NotFoundError):
                _pause(client, path.name)


def _left(folder: Path) -> Iterator[Path]:
    """Yield the files that no program has locked."""
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if path not in _locks and ServerLock(path).unused():
                yield path


def _pause(client: Connection, sweep: str) -> None:
    state = client.sweep(sweep).state
    if state != "running":
        return
    client.rpc.control_sweep(pb.ControlSweepRequest(sweep=sweep, command=pb.SWEEP_COMMAND_PAUSE))
    print(
        f"outbid: paused {sweep}: the program that submitted it has ended. Continue it with "
        f"{go_on(_Named(sweep), client, 'resume().wait(display=True)')}, or stop it with "
        f"{go_on(_Named(sweep), client, 'stop()')}",
        file=sys.stderr,
        flush=True,
    )
