"""A second server on a machine whose cores another one has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import SRC

PROGRAM = """
import json, pathlib, subprocess, sys
import outbid as ob

def run(name, **options):
    sweep = ob.Sweep(lambda trial: trial.config.x, {"x": ob.constant(1)}, metric="x", mode="max", trials=1, name=name)
    return sweep.run(display=False, **options)

if sys.argv[1:] == ["second"]:
    print("ended", run("second").trials[0].state)
else:
    with ob.connect(data="first") as client:
        run("first", client=client)
        print("first is", json.loads(pathlib.Path("first", "server.json").read_text())["pid"])
        command = [sys.executable, __file__, "second"]
        second = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        print(second.stderr.readline(), end="")
    print(*second.communicate(timeout=500), sep="rest: ")
"""
OWN = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]  # where no other test has any device


def test_it_says_once_who_has_them_and_goes_on_when_they_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        r"outbid: second-1 waits: worker local: core/\d+ is held by process (\d+) \(.*/first/.*, since .*\); stop that "
        r"one, or share cores with it by declaring slots: .*OUTBID_DEVICES=cpu:2 where a program starts it\n"
        r"ended completed\nrest: \n",
        done.stdout,
    )
    assert told and told.group(1) == told.group(2), done.stdout + done.stderr
