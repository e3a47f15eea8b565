"""The local server: `outbid up`, started when no other server is named."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from outbid._client.server_lock import ServerLock
from outbid._core.errors import UnavailableError

DATA = ".outbid"
"""The default directory of a local server."""

_START_SECONDS = 60.0
_LEFT_SECONDS = 2.0  # seconds after which a server without clients has noticed that
_STOP_SECONDS = 45.0  # seconds in which its trials have saved or were given up
_SILENT_SECONDS = 1.0  # seconds of waiting for its end before a message

_NEEDED_NEXT = ("outbid.v1.service_pb2_grpc", "outbid._search.sweep", "cloudpickle")
_staying: list[subprocess.Popen[bytes]] = []  # servers that other programs use


@dataclass(frozen=True)
class _Running:
    """A running server's description of itself in its directory."""

    api: str
    pid: int
    while_clients: bool


class LocalServer:
    """The server of one data directory on this machine: found if it runs, otherwise started.

    A server that was started here saves its trials and ends when the last program that uses it has ended, however that
    ended, unless `keep` is set. The next server of the directory continues where it stopped.
    """

    def __init__(self, data: str | os.PathLike[str] = DATA, *, keep: bool = False) -> None:
        self.data = Path(data).resolve()
        self.hurry = False
        """Whether to exit without waiting for the server's end."""
        self._keep = keep
        self._lock = ServerLock(self.data / "clients")
        self._process: subprocess.Popen[bytes] | None = None

    def url(self) -> str:
        """Return the server's URL; start the server if it does not run."""
        self.data.mkdir(parents=True, exist_ok=True)
        if not self._lock.take(_START_SECONDS):
            raise UnavailableError(
                f"the server of {self.data} has been ending for {_START_SECONDS:g} s; its log is {self._log}"
            )
        if (found := self._running()) is None:
            with _locked(self.data / "sdk.lock"):  # two programs that start at the same time share one server
                found = self._running() or self._start()
        if self._keep and found.while_clients:
            self._lock.write(f"keep {found.pid}\n")
        return found.api

    @property
    def passing(self) -> bool:
        """Whether the server ends with the programs that use it."""
        found = self._running()
        return found is not None and found.while_clients and self._lock.read() != f"keep {found.pid}\n"

    def stop(self) -> None:
        """Stop using the server. If it was started here and no other program uses it, wait for its end."""
        process, self._process = self._process, None
        atexit.unregister(self.stop)
        self._lock.give_back()
        if process is None or process.poll() is not None:
            return
        if self._keep or self.hurry or not self._await_end(process):
            _staying.append(process)

    def _await_end(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for the server's end. Returns False if other programs use it."""
        start = time.monotonic()
        ending = told = False
        while process.poll() is None:
            waited = time.monotonic() - start
            if waited > (_STOP_SECONDS if ending else _LEFT_SECONDS):
                return False
            if not ending and not self._lock.free():
                ending = True
            if ending and not told and waited > _SILENT_SECONDS:
                told = True
                print("outbid: the server ends when its trials have saved; Ctrl-C skips the wait", file=sys.stderr)
            try:
                time.sleep(0.02)
            except KeyboardInterrupt:
                return False
        return True

    @property
    def _ready_file(self) -> Path:
        return self.data / "server.json"

    @property
    def _log(self) -> Path:
        return self.data / "server.log"

    def _running(self) -> _Running | None:
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        try:
            with self._ready_file.open() as file:
                found = json.load(file)
                if found.get("locked") and not _is_locked(file):
                    return None  # the process id now belongs to another process
            running = _Running(str(found["api"]), int(found["pid"]), bool(found.get("while_clients")))
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return running if _alive(running.pid) else None

    def _start(self) -> _Running:
        command = [find_binary(), "up", "--data", str(self.data), "--api", "127.0.0.1:0"]
        command += ["--ready-file", str(self._ready_file), "--pass-env", "*"]  # trials are this user's own code
        if not self._keep:
            command.append("--while-clients")
        self._ready_file.unlink(missing_ok=True)  # left by a server that was killed
        with self._log.open("ab") as output:
            # In a new session, so that Ctrl-C reaches this program and not the server.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        if not self._keep:
            atexit.unregister(self.stop)
            atexit.register(self.stop)
        return self._await_ready()

    def _await_ready(self) -> _Running:
        end = time.monotonic() + _START_SECONDS
        for name in _NEEDED_NEXT:
            importlib.import_module(name)  # while the server starts
        while time.monotonic() < end:
            if (found := self._running()) is not None:
                return found
            if self._process is None:
                raise UnavailableError(f"`outbid up` ended at once; the end of {self._log}:\n{_tail(self._log)}")
            time.sleep(0.02)
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        raise UnavailableError(
            f"`outbid up` was not ready in {_START_SECONDS:g} s; the end of {self._log}:\n{_tail(self._log)}"
        )


def find_binary() -> str:
    """Return the path of the `outbid` binary.

    The first of these that exists: OUTBID_BIN, the binary installed with this package, one in Python's directory, one
    in PATH, one in a checkout's bin/.
    """
    if named := os.environ.get("OUTBID_BIN"):
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"OUTBID_BIN is {named!r}, which is not an executable program")
        return named
    package = Path(__file__).resolve().parents[1]
    beside = Path(sys.executable).parent / "outbid"
    checkout = package.parents[2] / "bin" / "outbid"
    in_path = shutil.which("outbid")
    for candidate in [*_installed(package), beside, *([Path(in_path)] if in_path else []), checkout]:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    import platform

    raise FileNotFoundError(
        "the `outbid` binary was not found: `pip install outbid` installs it on Linux and macOS (x86-64, arm64), "
        "`make build` builds it in a checkout\n"
        f"This is {platform.system()} ({platform.machine()}) with Python at {sys.executable}; looked in its directory, "
        f"where the package {package} was installed, in {checkout.parent} and in PATH.\n"
        "OUTBID_BIN can name another path. A running server needs no binary here: ob.connect(url) or OUTBID_URL"
    )


def _installed(package: Path) -> Iterator[Path]:
    """Yield where the binary that was installed with the package may be, according to pip's records."""
    for record in package.parent.glob("outbid-*.dist-info/RECORD"):
        for line in record.read_text().splitlines():
            path = line.split(",", 1)[0]
            if path.endswith("/bin/outbid"):
                yield Path(os.path.normpath(package.parent / path))
    yield package.parent / "bin" / "outbid"  # pip install --target


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0


def _is_locked(file: IO[str]) -> bool:
    """Return whether another process has locked a file. A server locks its ready file while it runs."""
    try:
        import fcntl
    except ImportError:  # a system without flock
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _tail(path: Path, lines: int = 10) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    return ""


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            import fcntl
        except ImportError:  # a system without flock
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file releases the lock
