"""The soup of fine-tuned networks, run like in its README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import outbid as ob

ROOT = Path(__file__).resolve().parents[3]


def test_a_soup_of_fine_tunings(real: ob.Client, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "sdk-python" / "src"), "OUTBID_URL": real.url}
    command = [sys.executable, "examples/soup/soup.py", "--to", str(tmp_path / "soup.safetensors")]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(best trial|soup) +validation (\S+), selection (\S+), test (\S+)$", done.stdout, re.M)
    assert [row[0] for row in rows] == ["best trial", "soup"], done.stdout
    assert float(rows[1][2]) >= float(rows[0][2]), (
        "a greedy soup is no worse than what it began with, where it is judged"
    )
    assert float(rows[1][3]) > 0.85, done.stdout
