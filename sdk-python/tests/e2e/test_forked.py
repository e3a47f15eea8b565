"""The example of a forked training run, run like in its README with fewer steps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_a_forked_run_ends_as_one_that_is_not(tmp_path: Path) -> None:
    if not os.environ.get("OUTBID_BIN"):
        pytest.skip("OUTBID_BIN names no binary (make build; OUTBID_BIN=bin/outbid)")
    pytest.importorskip("sklearn")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "sdk-python" / "src")}
    for name in ("OUTBID_URL", "OUTBID_TOKEN", "OUTBID_DEVICES"):
        env.pop(name, None)
    command = [sys.executable, "examples/forked/forked.py", "--data", str(tmp_path), "--steps", "400", "--slot", "3s"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = dict(
        re.findall(r"^(alone|forked) +(\d+) steps in .* error 0\.0\d+ on what was held out$", done.stdout, re.M)
    )
    assert rows == {"alone": "400", "forked": "400"}, done.stdout
    slots = re.findall(r"^  fork slot \d+: step (\d+) to (\d+): (.*); averaged$", done.stdout, re.M)
    assert slots, done.stdout
    for begin, end, did in slots:
        steps = [int(n) for n in re.findall(r"(\d+) on (?:fast|middle|slow)", did)]
        assert len(steps) > 1 and sum(steps) == int(end) - int(begin), done.stdout
