"""Count the lines that a port changes: compares and runs each script of ports/ and its original.

python benchmarks/ports.py
"""

from __future__ import annotations

import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

PORTS = (
    ("Ray Tune", "ray_before.py", "ray_after.py"),
    ("Optuna, the objective as it is", "optuna_before.py", "optuna_after.py"),
    ("Optuna, as a sweep", "optuna_before.py", "optuna_sweep.py"),
)
HERE = Path(__file__).resolve().parent / "ports"


def changed(before: str, after: str) -> tuple[int, int]:
    """Return the numbers of removed and added lines."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]
    return sum(line.startswith("-") for line in lines), sum(line.startswith("+") for line in lines)


def best(script: Path) -> str:
    """Run a script, and return the best result that it prints."""
    with tempfile.TemporaryDirectory(prefix="outbid-ports-") as place:
        done = subprocess.run([sys.executable, str(script)], cwd=place, capture_output=True, text=True, timeout=600)
    found = [line for line in done.stdout.splitlines() if line.startswith("best:")]
    if done.returncode or not found:
        raise SystemExit(f"{script.name} failed:\n{done.stderr[-2000:]}")
    return found[0].removeprefix("best:").strip()


def main() -> int:
    """Print the table."""
    print("| script | lines | lines that go | lines that come | best before | best after |\n|---|---|---|---|---|---|")
    for name, *scripts in PORTS:
        before, after = (HERE / script for script in scripts)
        gone, come = changed(before.read_text(), after.read_text())
        length = len([line for line in before.read_text().splitlines() if line.strip()])
        print(f"| {name} | {length} | {gone} | {come} | {best(before)} | {best(after)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
