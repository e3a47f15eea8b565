"""The rate of a default sweep's trials against Optuna's, as benchmarks/throughput.py measures both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from e2e.conftest import SRC

MEASURE = Path(SRC).parent / "benchmarks" / "throughput.py"


def trials_per_second(system: str, place: Path) -> float:
    place.mkdir()
    done = subprocess.run(
        [sys.executable, str(MEASURE), "one", system, "trials"],
        cwd=place,
        env={**os.environ, "PYTHONPATH": SRC},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    count, took = json.loads(done.stdout.splitlines()[-1])
    assert count == 1000
    return float(count / took)


def test_a_default_sweep_has_a_higher_rate_than_a_journal_with_tpe(tmp_path: Path) -> None:
    """The systems take turns, since other programs may use the machine too. The server writes every trial to disk."""
    ours, theirs = [], []
    for turn in range(2):
        ours.append(trials_per_second("outbid-default", tmp_path / f"outbid-{turn}"))
        theirs.append(trials_per_second("optuna-journal-tpe", tmp_path / f"optuna-{turn}"))
    assert max(ours) > max(theirs), f"{ours} trials/s against {theirs}"
