"""Print the tables of the fifty seeds: python docs/research/themis/themis_seeds.py FILE (.jsonl or .jsonl.gz)

For each table of the study and each row it prints how the largest rho is distributed over the seeds, and its ratio to
`themis` of the same seed. Intervals are percentile bootstrap intervals over seeds (protocol-seeds.md).
"""

import gzip
import json
import math
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

RESAMPLES = 10_000
BASE = "themis"
FIGURE = "rho_max"


def read(path: Path) -> dict[str, dict[str, dict[int, float]]]:
    """Return the figure by table, row and seed."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    found: dict[str, dict[str, dict[int, float]]] = {}
    for line in text.splitlines():
        run = json.loads(line)
        found.setdefault(run["table"], {}).setdefault(run["row"], {})[run["seed"]] = run["figures"][FIGURE]
    return found


def quantile(values: list[float], share: float) -> float:
    """Return a quantile with linear interpolation between the closest ranks."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def bootstrap(values: list[float], statistic: Callable[[list[float]], float]) -> str:
    """Return a statistic with its 95 % percentile bootstrap interval."""
    draw = random.Random(1)
    drawn = [statistic(draw.choices(values, k=len(values))) for _ in range(RESAMPLES)]
    return f"{statistic(values):.3g} ({quantile(drawn, 0.025):.3g} to {quantile(drawn, 0.975):.3g})"


def tail(values: list[float]) -> float:
    """Return the 90 % quantile."""
    return quantile(values, 0.9)


def distribution(values: list[float]) -> list[str]:
    """Return the cells about a row's values."""
    return [
        bootstrap(values, statistics.median),
        f"{quantile(values, 0.75):.3g}",
        bootstrap(values, tail),
        f"{max(values):.3g}",
        bootstrap(values, statistics.fmean),
    ]


def ratio(row: dict[int, float], base: dict[int, float]) -> list[str]:
    """Return the cells about a row's ratio to the base, seed by seed."""
    ratios = [row[seed] / base[seed] for seed in sorted(row) if seed in base]
    if row is base or not ratios:
        return ["", "", ""]
    below = sum(r < 1 for r in ratios)
    return [bootstrap(ratios, statistics.median), bootstrap(ratios, statistics.fmean), f"{below} of {len(ratios)}"]


def main() -> None:
    """Print the tables of the file that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("give one file of runs: python docs/research/themis/themis_seeds.py FILE")
    for name, rows in read(Path(sys.argv[1])).items():
        if BASE not in rows:
            continue
        print(f"\n{name}, {len(rows[BASE])} seeds\n")
        print("| row | median | 75 % | 90 % | maximum | mean | median ratio | mean ratio | below 1 |")
        print("|---|---|---|---|---|---|---|---|---|")
        for row, values in rows.items():
            cells = distribution([values[seed] for seed in sorted(values)]) + ratio(values, rows[BASE])
            print(f"| `{row}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
