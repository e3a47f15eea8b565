"""A server of one's own: `outbid up`, started when no server is named."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from outbid._errors import UnavailableError

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


class LocalServer:
    """The server of one data directory on this machine: found if it runs, else started.

    One that was started here is stopped, gently, when Python ends, unless `keep`. The next one goes on where
    it stopped.
    """

    def __init__(self, data: str | os.PathLike[str] = ".outbid", *, keep: bool = False) -> None:
        self.data = Path(data).resolve()
        self._keep = keep
        self._process: subprocess.Popen[bytes] | None = None

    def url(self) -> str:
        """Return the server's URL; it is started if it does not run."""
        if (found := self._running()) is not None:
            return found
        self.data.mkdir(parents=True, exist_ok=True)
        with _locked(self.data / "sdk.lock"):  # two programs that start at once share one server
            return self._running() or self._start()

    def stop(self) -> None:
        """Stop the server if it was started here, and wait for its end."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def _ready_file(self) -> Path:
        return self.data / "server.json"

    def _running(self) -> str | None:
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        try:
            found = json.loads(self._ready_file.read_text())
            api, pid = str(found["api"]), int(found["pid"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return api if _alive(pid) else None

    def _start(self) -> str:
        binary = find_binary()
        log = self.data / "server.log"
        command = [binary, "up", "--data", str(self.data), "--api", "127.0.0.1:0"]
        command += ["--ready-file", str(self._ready_file), "--pass-env", "*"]  # trials are this user's own code
        self._ready_file.unlink(missing_ok=True)  # left by a server that was killed
        with log.open("ab") as output:
            # In a session of its own, so that Ctrl-C ends the sweep here before it ends the server.
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
        return self._await_ready(log)

    def _await_ready(self, log: Path) -> str:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if (found := self._running()) is not None:
                return found
            if self._process is None:
                raise UnavailableError(f"`outbid up` ended at once; the end of {log}:\n{_tail(log)}")
            time.sleep(0.02)
        self.stop()
        raise UnavailableError(f"`outbid up` was not ready in {_START_SECONDS:g} s; the end of {log}:\n{_tail(log)}")


def find_binary() -> str:
    """Return the path of the `outbid` binary: OUTBID_BIN, beside Python, in PATH, or in a checkout's bin/."""
    if named := os.environ.get("OUTBID_BIN"):
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"OUTBID_BIN names {named!r}, which is no program")
        return named
    package = Path(__file__).resolve().parent
    beside = [Path(sys.executable).parent / "outbid", package / "bin" / "outbid"]
    checkout = [package.parents[2] / "bin" / "outbid"]
    in_path = shutil.which("outbid")
    for candidate in [*beside, *([Path(in_path)] if in_path else []), *checkout]:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    raise FileNotFoundError(
        "the `outbid` binary was not found: put it into PATH, name it in OUTBID_BIN, "
        "or name a server that runs with ob.connect(url) or OUTBID_URL"
    )


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0


def _tail(path: Path, lines: int = 10) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    return ""


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            import fcntl
        except ImportError:  # no such lock on this system
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file gives the lock back
