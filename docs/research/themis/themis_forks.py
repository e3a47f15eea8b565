"""Run the comparison of docs/research/themis-forks.md.

Usage: python docs/research/themis/themis_forks.py bin/outbid-lab > themis-forks.jsonl
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CLUSTER = "v100:1/1,k80:2/1,t4:2/1"
SEEDS = range(200, 220)
FIGURES = ("makespan_s", "jct_mean_s", "rho_mean", "rho_max", "utilization", "preemptions")
T95 = 2.093  # for 19 degrees of freedom


def trace(seed: int, forks: str, path: Path) -> None:
    """Write a trace of two sweeps: successive halving of nine trials, and four trials from half an hour on."""
    draw = random.Random(seed)
    lines: list[dict[str, object]] = [{"kind": "trace", "version": 1, "name": f"two sweeps, seed {seed}"}]
    lines.append(
        {"kind": "app", "id": "halving", "tuner": "successive-halving", "eta": 3, "min_steps": 2000, "max_steps": 18000}
    )
    lines.append({"kind": "app", "id": "four", "tuner": "none"})
    for app, jobs, submit in (("halving", 9, 0.0), ("four", 4, 1800.0)):
        k80 = draw.uniform(0.8, 1.2)
        rates = {"k80": k80, "t4": k80 * draw.uniform(1.5, 2.5), "v100": k80 * draw.uniform(3, 5)}
        for i in range(jobs):
            steps = 18000 if app == "halving" else draw.randint(6000, 24000)
            job: dict[str, object] = {
                "kind": "job", "id": f"{app}-{i}", "app": app, "submit_s": submit, "min_gpus": 1, "max_gpus": 1,
                "share": 1, "weight": 1, "total_steps": steps, "rates": rates,
                "loss": {"Start": 2.0, "Floor": draw.uniform(0.1, 1.0), "Scale": 500.0, "Power": 0.5},
            }  # fmt: skip
            if forks:
                job["forks"] = forks
            lines.append(job)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main() -> None:
    results: dict[str, list[dict[str, float]]] = {"themis": [], "themis, forks": []}
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            for name, forks in (("themis", ""), ("themis, forks", "auto")):
                path = Path(folder) / "trace.jsonl"
                trace(seed, forks, path)
                args = [sys.argv[1], "sim", "--cluster", CLUSTER, "--trace", str(path), "--policy", "themis"]
                args += ["--option", f"seed={seed}", "--restart-delay", "10s", "--fork-costs", "3s,3s,1s", "-o", "json"]
                run = subprocess.run(args, check=True, capture_output=True, text=True)
                figures = json.loads(run.stdout.splitlines()[0])
                row = {figure: figures[figure] for figure in FIGURES}
                results[name].append(row)
                print(json.dumps({"seed": seed, "policy": name} | row))
    for figure in FIGURES:
        plain, forked = ([row[figure] for row in results[name]] for name in results)
        ratio = [f / p if p else 1.0 for f, p in zip(forked, plain, strict=True)]
        cells = (
            f"{statistics.mean(x):.4g} ± {T95 * statistics.stdev(x) / len(x) ** 0.5:.2g}"
            for x in (plain, forked, ratio)
        )
        print(f"| {figure} | " + " | ".join(cells) + " |", file=sys.stderr)


if __name__ == "__main__":
    main()
