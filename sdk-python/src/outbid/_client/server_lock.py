"""A program's claim on a local server that ends with its last client: a shared lock on a file in its data directory.

The kernel releases the lock when the program ends, however it ends. The server takes an exclusive lock when no program
holds one, and then ends.
"""

from __future__ import annotations

import os
import time
import weakref
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # a system without flock
    fcntl = None  # type: ignore[assignment]

_POLL_SECONDS = 0.05

_held: weakref.WeakSet[ServerLock] = weakref.WeakSet()


class ServerLock:
    """A shared file lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def take(self, seconds: float) -> bool:
        """Take the lock. Returns False if the server, which is ending, holds it for `seconds`."""
        if self._file is not None:
            return True
        end = time.monotonic() + seconds
        while (file := self._try()) is None:
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_SECONDS)
        self._file = file
        _held.add(self)
        return True

    def give_back(self) -> None:
        """Release the lock."""
        file, self._file = self._file, None
        _held.discard(self)
        if file is not None:
            file.close()

    def free(self) -> bool:
        """Return whether the lock could be taken, which means that the server is not ending."""
        file = self._try()
        if file is None:
            return False
        file.close()
        return True

    def unused(self) -> bool:
        """Return whether no program holds the lock; False if the system does not support locks."""
        if fcntl is None:
            return False
        with self._path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
        return True

    def write(self, text: str) -> None:
        """Write the file's text."""
        with self._path.open("w") as file:
            file.write(text)

    def read(self) -> str:
        """Return the file's text."""
        try:
            return self._path.read_text()
        except OSError:
            return ""

    def _try(self) -> IO[str] | None:
        file = self._path.open("a")
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError:  # on a file system without locks the server does not end
            pass
        return file


def _forget() -> None:
    """Close the locks in a forked child. They belong to the parent and end with it."""
    for lock in list(_held):
        lock.give_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
