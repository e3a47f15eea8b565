"""The example with three competing sweeps, run like in its README with shorter steps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_three_sweeps_end_as_they_do_alone(tmp_path: Path) -> None:
    if not os.environ.get("OUTBID_BIN"):
        pytest.skip("OUTBID_BIN names no binary (make build; OUTBID_BIN=bin/outbid)")
    pytest.importorskip("sklearn")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "sdk-python" / "src")}
    for name in ("OUTBID_URL", "OUTBID_TOKEN"):
        env.pop(name, None)
    command = [
        sys.executable,
        "examples/contest/contest.py",
        "--data",
        str(tmp_path),
        "--repeats",
        "1",
        "--images",
        "250",
        "--lease",
        "1s",
    ]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    rows = {line[0]: line for line in lines if line and line[0] in ("large", "medium", "small")}
    assert sorted(rows) == ["large", "medium", "small"], done.stdout
    assert all(row[-1] == "yes" for row in rows.values()), done.stdout
    # If a sweep takes longer than a lease, the lease ends during training and is renewed or revoked, depending on the
    # machine's speed.
    said = r"the arbiter granted (\d+), renewed (\d+) and took back (\d+) leases"
    counts = re.fullmatch(said, done.stdout.splitlines()[0])
    assert counts, done.stdout
    granted, renewed, taken = map(int, counts.groups())
    longest = max(float(row[2].removesuffix("s")) for row in rows.values())
    assert granted > 0 and (renewed + taken > 0 or longest < 5), done.stdout
