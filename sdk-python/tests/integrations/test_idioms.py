"""Scripts in idioms of Ray Tune's and Optuna's users print on Outbid what they print with the library.

Only imports, and Optuna's calls of `optimize`, are changed. A difference that docs/guides/from-optuna.md or
from-ray-tune.md does not name is a defect.

    OUTBID_IDIOMS=1 make test-integrations     # all of them, each with its library too
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import outbid as ob
from e2e.conftest import SRC
from integrations.optuna_scripts import changed

SCRIPTS = sorted((Path(__file__).parent / "scripts" / "idioms").glob("*.py"))
WANTED = os.environ.get("OUTBID_IDIOMS", "")
QUICK = {"optuna_early_stopping", "optuna_enqueue", "ray_asha_checkpoints"}
"""Those that every run tries. `NAME.txt` has the lines that the library prints, so that the library need not run."""


def imported(script: str) -> str:
    """Return a script for Ray Tune that imports Outbid."""
    return re.sub(r"^(\s*)from ray([ .])", r"\1from outbid\2", script, flags=re.M)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_prints_on_outbid_what_the_library_prints(real: ob.Client, tmp_path: Path, script: Path) -> None:
    if script.stem not in QUICK and not WANTED:
        pytest.skip("OUTBID_IDIOMS=1 runs all of them")
    text, recorded = script.read_text(), script.with_suffix(".txt")
    theirs = recorded.read_text().splitlines() if script.stem in QUICK else []
    if WANTED:
        printed = run(text, script.name, tmp_path / "library", {})
        assert printed == (theirs or printed)
        theirs = printed
    changes = changed(text)[0] if script.stem.startswith("optuna") else imported(text)
    assert run(changes, script.name, tmp_path / "outbid", {"PYTHONPATH": SRC, "OUTBID_URL": real.url}) == theirs


def run(text: str, name: str, place: Path, more: dict[str, str]) -> list[str]:
    """Run a script in a new home directory, and return the lines that it printed with a =."""
    place.mkdir()
    (place / name).write_text(text)
    done = subprocess.run(
        [sys.executable, name],
        env={**os.environ, "HOME": str(place), "OMP_NUM_THREADS": "1", **more},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return [line for line in done.stdout.splitlines() if line.startswith("=")]
