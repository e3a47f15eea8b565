"""A server of one's own, with a stand-in for the binary."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import outbid as ob
from outbid import _server
from outbid._server import LocalServer, find_binary

UP = f"""#!{sys.executable}
import json, os, signal, sys
args = dict(zip(sys.argv[2::2], sys.argv[3::2]))
assert sys.argv[1] == "up" and args["--api"] == "127.0.0.1:0", sys.argv
with open(args["--data"] + "/starts", "a") as file:
    file.write("x")
print("starting")
if os.environ.get("BROKEN"):
    sys.exit("the disk is full")
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
ready = args["--ready-file"]
with open(ready + ".new", "w") as file:
    json.dump({{"api": "http://127.0.0.1:7", "pid": os.getpid()}}, file)
os.rename(ready + ".new", ready)
while True:
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


def test_started_reused_and_stopped(binary: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    first, second = LocalServer(data), LocalServer(data)
    assert first.url() == second.url() == first.url() == "http://127.0.0.1:7"
    assert (data / "starts").read_text() == "x"
    pid = pid_of(data)
    second.stop()
    assert _server._alive(pid), "only who started it stops it"
    first.stop()
    assert not _server._alive(pid)
    assert "starting" in (data / "server.log").read_text()
    assert first.url() == "http://127.0.0.1:7", "a dead server is started again"
    first.stop()
    assert (data / "starts").read_text() == "xx"


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
            f"from outbid._server import LocalServer; LocalServer({str(data)!r}, keep={keep}).url()",
        ],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")},
        check=True,
        timeout=60,
    )
    pid = pid_of(data)
    assert _server._alive(pid) == alive
    if alive:
        os.kill(pid, signal.SIGINT)


def test_damaged_server_file(binary: Path, tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text("{")
    assert LocalServer(tmp_path)._running() is None


def test_binary_is_found_or_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTBID_BIN", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(_server, "__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(FileNotFoundError, match="put it into PATH, name it in OUTBID_BIN"):
        find_binary()
    for place in (tmp_path / "bin", tmp_path / "path", tmp_path):  # from the last choice to the first
        place.mkdir(exist_ok=True)
        (place / "outbid").write_text("#!/bin/sh\n")
        (place / "outbid").chmod(0o755)
        assert find_binary() == str(place / "outbid")
    monkeypatch.setenv("OUTBID_BIN", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="OUTBID_BIN names"):
        find_binary()
