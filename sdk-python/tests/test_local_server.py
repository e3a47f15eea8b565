"""A private server, with a fake binary."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import outbid as ob
from outbid._client import local_server, programs, server_lock
from outbid._client.local_server import LocalServer, find_binary

UP = f"""#!{sys.executable}
import fcntl, json, os, signal, sys, time
given = [a for a in sys.argv[2:] if a != "--while-clients"]
args = dict(zip(given[::2], given[1::2]))
assert sys.argv[1] == "up" and args["--api"] == "127.0.0.1:0", sys.argv
with open(args["--data"] + "/starts", "a") as file:
    file.write("x")
print("starting")
if os.environ.get("BROKEN"):
    sys.exit("the disk is full")
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
ready = args["--ready-file"]
passing = "--while-clients" in sys.argv
with open(ready + ".new", "w") as file:
    json.dump({{"api": "http://127.0.0.1:7", "pid": os.getpid(), "while_clients": passing}}, file)
os.rename(ready + ".new", ready)
if not passing:
    signal.pause()
clients = open(args["--data"] + "/clients", "r+")
while True:
    try:
        fcntl.flock(clients, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.02)
        continue
    if clients.read() != f"keep {{os.getpid()}}\\n":
        break
    fcntl.flock(clients, fcntl.LOCK_UN)
    signal.pause()
"""


@pytest.fixture
def binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "outbid"
    path.write_text(UP)
    path.chmod(0o755)
    monkeypatch.setenv("OUTBID_BIN", str(path))
    yield path


def pid_of(data: Path) -> int:
    return int(json.loads((data / "server.json").read_text())["pid"])


def gone(pid: int) -> bool:
    """Wait until a process has ended."""
    end = time.monotonic() + 30
    while local_server._alive(pid):
        assert time.monotonic() < end, f"process {pid} is still running"
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("locked", [False, True])
def test_a_file_that_another_process_has_the_id_of_is_no_server(binary: Path, tmp_path: Path, locked: bool) -> None:
    """After a restart of the machine or container, the process ID in the file may belong to another live process."""
    data = tmp_path / "data"
    data.mkdir()
    with (data / "server.json").open("w") as file:
        json.dump({"api": "http://127.0.0.1:9", "pid": os.getpid(), "locked": True}, file)
        file.flush()
        if locked:
            fcntl.flock(file, fcntl.LOCK_EX)
        server = LocalServer(data)
        assert server.url() == ("http://127.0.0.1:9" if locked else "http://127.0.0.1:7")
    server.stop()


def test_started_reused_and_stopped(binary: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    first, second = LocalServer(data), LocalServer(data)
    assert first.url() == second.url() == first.url() == "http://127.0.0.1:7"
    assert (data / "starts").read_text() == "x"
    assert first.passing and second.passing
    pid = pid_of(data)
    second.stop()
    assert local_server._alive(pid), "another client uses it"
    first.stop()
    assert not local_server._alive(pid)
    assert "starting" in (data / "server.log").read_text()
    assert first.url() == "http://127.0.0.1:7", "a server that died is started again"
    first.stop()
    assert (data / "starts").read_text() == "xx"


def test_it_lives_as_long_as_its_last_client(binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_server, "_LEFT_SECONDS", 0.2)
    first, second = LocalServer(tmp_path), LocalServer(tmp_path)
    first.url()
    second.url()
    pid = pid_of(tmp_path)
    first.stop()
    assert local_server._alive(pid), "the client that started it has ended, but another one uses it"
    second.stop()
    starter = local_server._staying.pop()
    assert starter.wait(30) == 0


def test_a_server_that_ends_is_waited_for(binary: Path, tmp_path: Path) -> None:
    server = LocalServer(tmp_path)
    server.url()
    assert server._lock.free()
    with (tmp_path / "clients").open("r+") as ending:
        server._lock.give_back()
        server._lock = server_lock.ServerLock(tmp_path / "other")  # stop() must not see this
        fcntl.flock(ending, fcntl.LOCK_EX)
        assert not server_lock.ServerLock(tmp_path / "clients").free()
        assert not server_lock.ServerLock(tmp_path / "clients").take(0.1)
    os.kill(pid_of(tmp_path), signal.SIGKILL)
    server.stop()


def test_it_can_be_told_to_stay(binary: Path, tmp_path: Path) -> None:
    first, second = LocalServer(tmp_path), LocalServer(tmp_path, keep=True)
    first.url()
    assert first.passing
    second.url()
    assert not first.passing, "the second client keeps it running"
    pid = pid_of(tmp_path)
    second.stop()
    first.hurry = True
    first.stop()
    starter = local_server._staying.pop()
    assert starter.poll() is None
    os.kill(pid, signal.SIGINT)
    assert starter.wait(30) == 0


def test_a_forked_child_is_no_client(binary: Path, tmp_path: Path) -> None:
    """Children of multiprocessing outlive a killed program, but must not keep its lock."""
    script = f"""
import os, signal, time
from outbid._client.local_server import LocalServer
server = LocalServer({str(tmp_path)!r})
server.url()
if os.fork() == 0:
    time.sleep(600)
    os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    program = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None and program.stdout.readline() == "ready\n"
    program.kill()
    program.wait()
    try:
        assert gone(pid_of(tmp_path))
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.stdout.close()


def test_two_at_once_share_one(binary: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    servers = [LocalServer(data) for _ in range(4)]
    threads = [threading.Thread(target=server.url) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (data / "starts").read_text() == "x"
    for server in servers:
        server.stop()


def test_start_that_fails_shows_the_log(binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(ob.UnavailableError, match=r"ended at once(.|\n)*the disk is full"):
        LocalServer(tmp_path / "data").url()


@pytest.mark.parametrize(("keep", "alive"), [(False, False), (True, True)])
def test_end_of_python(binary: Path, tmp_path: Path, keep: bool, alive: bool) -> None:
    data = tmp_path / "data"
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"from outbid._client.local_server import LocalServer; LocalServer({str(data)!r}, keep={keep}).url()",
        ],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")},
        check=True,
        timeout=60,
    )
    pid = pid_of(data)
    assert local_server._alive(pid) == alive
    if alive:
        os.kill(pid, signal.SIGINT)


def test_python_that_is_killed_takes_its_server_along(binary: Path, tmp_path: Path) -> None:
    script = f"""
import os, signal
from outbid._client.local_server import LocalServer
server = LocalServer({str(tmp_path)!r})
server.url()
os.kill(os.getpid(), signal.SIGKILL)
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    done = subprocess.run([sys.executable, "-c", script], env=env, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert gone(pid_of(tmp_path))


def test_damaged_server_file(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text("{")
    assert LocalServer(tmp_path)._running() is None


def test_binary_is_found_or_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTBID_BIN", raising=False)
    installed = tmp_path / "env" / "lib" / "python3" / "site-packages"
    (installed / "outbid-0.1.0.dist-info").mkdir(parents=True)
    record = installed / "outbid-0.1.0.dist-info" / "RECORD"
    record.write_text("../../../scripts/bin/outbid,sha256=x,9\noutbid/bin.py,sha256=y,7\n")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(local_server, "__file__", str(installed / "outbid" / "_client" / "local_server.py"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(FileNotFoundError) as missing:
        find_binary()
    first, *others = str(missing.value).splitlines()
    assert "`pip install outbid` installs it" in first
    assert any("OUTBID_BIN" in line for line in others)
    own = tmp_path / "env" / "scripts" / "bin"  # the location in pip's metadata
    for place in (
        tmp_path / "env/lib/bin",
        tmp_path / "path",
        tmp_path,
        installed / "bin",
        own,
    ):  # the lowest priority first
        place.mkdir(exist_ok=True, parents=True)
        (place / "outbid").write_text("#!/bin/sh\n")
        (place / "outbid").chmod(0o755)
        assert find_binary() == str(place / "outbid")
    monkeypatch.setenv("OUTBID_BIN", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="OUTBID_BIN is"):
        find_binary()


def test_the_package_is_the_command_too(binary: Path, tmp_path: Path) -> None:
    binary.write_text('#!/bin/sh\necho "given $*"\n')
    command = [sys.executable, "-m", "outbid", "ls", "-o", "json"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "given ls -o json\n"
    binary.unlink()
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("outbid: OUTBID_BIN is")


def test_sweeps_whose_program_runs_are_not_left(tmp_path: Path) -> None:
    (tmp_path / "ended-1").touch()
    code = (
        "import pathlib, sys; from outbid._client.server_lock import ServerLock; "
        "lock = ServerLock(pathlib.Path(sys.argv[1])); assert lock.take(0); print(flush=True); sys.stdin.read()"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(local_server.__file__).parents[2])}
    command = [sys.executable, "-c", code, str(tmp_path / "runs-1")]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None and program.stdout.readline()
        assert [path.name for path in programs._left(tmp_path)] == ["ended-1"]
        program.kill()
    assert [path.name for path in programs._left(tmp_path)] == ["ended-1", "runs-1"]
