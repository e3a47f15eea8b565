"""The page for Optuna users: its scripts run unchanged, and its names exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import outbid as ob

SRC = Path(__file__).resolve().parents[2] / "src"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "from-optuna.md"


def test_the_scripts_run_as_printed(real: ob.Client, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    if not PAGE.exists():
        pytest.skip("the page is not beside the SDK")
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    (tmp_path / "both.py").write_text("\n".join(blocks) + "\nprint(len(study.trials), len(result.trials))\n")
    environment = {"PYTHONPATH": str(SRC), "OUTBID_URL": real.url, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "both.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "12 12"


def test_the_names_are_there() -> None:
    if not PAGE.exists():
        pytest.skip("the page is not beside the SDK")
    rows = [line.split("|")[-2] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    names = {name for row in rows for name in re.findall(r"\bob\.([A-Za-z_0-9]+(?:\.[a-z_]+)?)", row)}
    assert len(names) > 20
    for name in names:
        thing = ob
        for part in name.split("."):
            thing = getattr(thing, part)
    for method in set(re.findall(r"\bresult\.([a-z]+)", "".join(rows))):
        assert hasattr(ob.Result, method), method
