"""Print the tables of docs/research/forks.md from the output of measure.py.

.cache/venv/bin/python examples/forked/summarise.py docs/research/forks/forks.jsonl.gz
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

# Two-sided 95 % quantiles of Student's t by degrees of freedom.
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}


def spread(values: list[float]) -> str:
    """Return a mean and a standard deviation."""
    off = f" ± {statistics.stdev(values):.3g}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.3g}{off}"


def interval(values: list[float]) -> str:
    """Return a mean and half of its 95 % interval."""
    half = STUDENT[len(values) - 1] * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.fmean(values):.2f} ± {half:.2f}"


def main() -> None:
    runs = defaultdict(dict)
    data = Path(sys.argv[1]).read_bytes()
    for line in (gzip.decompress(data) if sys.argv[1].endswith(".gz") else data).decode().splitlines():
        run = json.loads(line)
        runs[run["workload"], run["way"]][run["seed"]] = run
    print("| workload | way | seeds | makespan, s | to `single` | mean JCT, s | to `single` | fork slots averaged |")
    print("|---|---|---|---|---|---|---|---|")
    for (workload, way), seeds in runs.items():
        single = runs[workload, "single"]
        cells = [workload, f"`{way}`", str(len(seeds))]
        for figure in ("makespan", "mean_jct"):
            cells.append(spread([run[figure] for run in seeds.values()]))
            ratios = [run[figure] / single[seed][figure] for seed, run in seeds.items() if seed in single]
            cells.append("1" if way == "single" else interval(ratios))
        cells.append(spread([sum(m["averaged"] for m in run["models"].values()) for run in seeds.values()]))
        print(f"| {' | '.join(cells)} |")
    print()
    print("| workload | model | way | held out | to `single`'s, per seed | seconds from first report to last |")
    print("|---|---|---|---|---|---|")
    for (workload, way), seeds in runs.items():
        single = runs[workload, "single"]
        for model in next(iter(seeds.values()))["models"]:
            values = {seed: run["models"][model]["quality"] for seed, run in seeds.items()}
            ratios = [v / single[seed]["models"][model]["quality"] for seed, v in values.items() if seed in single]
            trained = spread([run["models"][model]["trained_seconds"] for run in seeds.values()])
            against = "1" if way == "single" else interval(ratios)
            print(f"| {workload} | {model} | `{way}` | {spread(list(values.values()))} | {against} | {trained} |")
    print()
    for when in ("first", "later"):
        off = [
            m["forecast_off"][when]
            for (_, way), seeds in runs.items()
            for run in seeds.values()
            for m in run["models"].values()
            if way == "forks" and when in m["forecast_off"]
        ]
        error = statistics.median(off)
        print(f"forecasts of rates, {when} fork slots: median error {error:.0%} over {len(off)} trials")
    loads = [run["load"] for seeds in runs.values() for run in seeds.values()]
    print(f"load average: {min(loads):.0f} to {max(loads):.0f}, median {statistics.median(loads):.0f}")


if __name__ == "__main__":
    main()
