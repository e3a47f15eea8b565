"""The cases of docs/research/averaging.md: numpy's with one seed, and torch's if it is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def measured(*cases: str) -> dict[str, list[float]]:
    """Return the results of each case with one seed: most, best fork, alone, mean by steps, uniform mean."""
    command = [sys.executable, "examples/averaging/cases.py", "--seeds", "1"]
    for case in cases:
        command += ["--case", case]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    return {row[0]: [float(re.split(" ± ", cell)[0]) for cell in row[1:]] for row in rows}


def test_averages_of_one_beginning_and_of_permuted_networks() -> None:
    pytest.importorskip("sklearn")
    rows = measured("10:5:2", "permuted")
    near, permuted = rows["network, slot of 10:5:2 steps"], rows["permuted units"]
    assert near[3] < near[0] + 2, f"the mean of what lies near is as good: {near}"
    assert permuted[3] > permuted[1] + 1, f"the mean of permuted networks is worse than a fork: {permuted}"


def test_a_torch_network_with_batch_normalisation_and_moments() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    for case, row in measured("batch norm", "BF16").items():
        assert row[3] < row[0] + 3, f"{case}: {row}"
