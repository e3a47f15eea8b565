"""Two servers on a machine with the same cores."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import SRC

PROGRAM = """
import json, os, pathlib, subprocess, sys, time
import outbid as ob

def wait(trial):
    # The first's trials use every core until the second has said that it waits.
    while not os.path.exists(trial.config.gate):
        time.sleep(0.02)
    return 1.0

def sweep(name, trials=1, **space):
    train = wait if space else lambda trial: 1.0
    space = {n: ob.constant(v) for n, v in (space or {"x": 1}).items()}
    return ob.Sweep(train, space, metric="x", mode="max", trials=trials, name=name)

if sys.argv[1:]:
    print("ended", sweep(sys.argv[1]).run(display=False).trials[0].state)
else:
    def start(name):
        command = [sys.executable, __file__, name]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with ob.connect(data="first") as client:
        sweep("first").run(client=client, display=False)
        print("first is", json.loads(pathlib.Path("first", "server.json").read_text())["pid"])
        print("idle:", *start("beside").communicate(timeout=500), sep="\\n")
        gate = os.path.abspath("gate")
        handle = sweep("busy", trials=os.cpu_count(), gate=gate).submit(client)
        for update in handle.watch():
            if update.sweep.counts["running"] == os.cpu_count():
                break
        second = start("second")
        print(second.stderr.readline(), end="")
        pathlib.Path(gate).touch()
        print(*second.communicate(timeout=500), sep="rest: ")
        print(handle.wait(500).sweep.state)
"""
# in a network namespace, where no other test has devices
OWN = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def test_servers_of_one_machine_share_its_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        subprocess.run([*OWN, "true"], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this machine gives a test no network of its own: {error}")
    monkeypatch.delenv("OUTBID_DEVICES")
    monkeypatch.setenv("PYTHONPATH", SRC)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [*OWN, sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=500
    )
    told = re.fullmatch(
        r"first is (\d+)\n"
        r"idle:\nended completed\n\n\n"
        r"outbid: second-1 waits: worker local: core/\d+ is held by process (\d+) \(.*/first/.*, since .*\); .*"
        r"OUTBID_DEVICES=cpu:2 for a program that starts it\n"
        r"ended completed\nrest: \n"
        r"done\n",
        done.stdout,
    )
    assert told and told.group(1) == told.group(2), done.stdout + done.stderr
