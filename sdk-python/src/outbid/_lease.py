"""A program's claim on a server that ends with its last client: a shared lock on a file of its data directory.

The kernel gives the lock back when the program ends, however it ends. The server takes the file for itself when
nobody holds it, and then ends.
"""

from __future__ import annotations

import os
import time
import weakref
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # no such lock on this system
    fcntl = None  # type: ignore[assignment]

_POLL_SECONDS = 0.05

_held: weakref.WeakSet[Lease] = weakref.WeakSet()


class Lease:
    """A shared lock on a file, taken and given back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def take(self, seconds: float) -> bool:
        """Take the lock; False if the server, which is ending, has held it for so many seconds."""
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
        """Give the lock back."""
        file, self._file = self._file, None
        _held.discard(self)
        if file is not None:
            file.close()

    def free(self) -> bool:
        """Return whether the lock could be taken: the server is not ending."""
        file = self._try()
        if file is None:
            return False
        file.close()
        return True

    def unused(self) -> bool:
        """Return whether no program has the lock; False where the file system has no locks."""
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
        except OSError:  # a file system without locks: the server stays then
            pass
        return file


def _forget() -> None:
    """In a forked child: the lock is the parent's, and ends with the parent."""
    for lease in list(_held):
        lease.give_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
