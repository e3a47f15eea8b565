"""Figure 5 of OASiS: the ratio of the offline optimum to OASiS. See docs/research/oasis.md.

    python docs/research/oasis/oasis_optimum.py --outbid bin/outbid-lab --results oasis-optimum.jsonl

`outbid-lab sim` makes and runs each instance. The optimum is a mixed-integer program that HiGHS solves (scipy). Runs
that are already in the results file are not repeated. --check compares the program with a search through all schedules.
"""

import argparse
import functools
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

SLOT = 1200.0
ARRIVALS = 10
HORIZON = 2 * ARRIVALS
T95 = 2.262  # Student's t, two-sided, 9 degrees of freedom


@dataclass(frozen=True)
class Job:
    """A job that needs `work` slots of a worker and has at most `most` workers, each with `devices` devices."""

    name: str
    arrives: int
    work: float
    most: int
    devices: int
    worth: tuple[float, ...]  # the worth of ending in each slot from the arrival on


def worth(utility: dict[str, float], seconds: float) -> float:
    """Return the worth of ending `seconds` after the arrival."""
    x = utility["Decay"] * (seconds - utility["Target"])
    return float(utility["Priority"] / (1 + math.exp(min(700.0, x))))


def jobs_of(trace: Path) -> list[Job]:
    """Return the jobs of a trace of `--made oasis`."""
    out = []
    for line in trace.read_text().splitlines():
        j = json.loads(line)
        if j["kind"] == "job" and j.get("min_gpus", 0) > 0:
            arrives, most = round(j["submit_s"] / SLOT), j["max_gpus"] // j["min_gpus"]
            ends = tuple(worth(j["utility"], (n + 1) * SLOT) for n in range(HORIZON - arrives))
            out.append(Job(j["id"], arrives, j["duration_s"] / SLOT * most, most, j["min_gpus"], ends))
    return out


def optimum(jobs: list[Job], devices: int, horizon: int) -> float:
    """Return the maximum total worth of all jobs; x is the slot in which a job ends, y its workers."""
    cells = [(i, t) for i, j in enumerate(jobs) for t in range(j.arrives, horizon)]
    at = {cell: n for n, cell in enumerate(cells)}
    n = len(cells)
    gain = np.zeros(2 * n)
    rows: list[tuple[dict[int, float], float]] = []  # sum <= bound
    for i, j in enumerate(jobs):
        mine = [at[i, t] for t in range(j.arrives, horizon)]
        for t, x in enumerate(mine):
            gain[x] = -j.worth[t]
            # a job has workers only up to the slot in which it ends
            rows.append(({n + x: 1.0} | {later: -float(j.most) for later in mine[t:]}, 0.0))
        rows.append((dict.fromkeys(mine, 1.0), 1.0))
        rows.append(({n + x: -1.0 for x in mine} | dict.fromkeys(mine, j.work), 1e-6))
    for t in range(horizon):
        rows.append(({n + at[i, t]: float(j.devices) for i, j in enumerate(jobs) if (i, t) in at}, float(devices)))
    table = lil_array((len(rows), 2 * n))
    for r, (row, _) in enumerate(rows):
        for column, value in row.items():
            table[r, column] = value
    upper = np.concatenate([np.ones(n), [jobs[i].most for i, _ in cells]])
    answer = milp(
        gain,
        integrality=np.ones(2 * n),
        bounds=Bounds(0, upper),
        constraints=LinearConstraint(table.tocsr(), ub=[bound for _, bound in rows]),
        options={"mip_rel_gap": 1e-6, "time_limit": 600},
    )
    if answer.status != 0:
        sys.exit(f"the program was not solved to optimality: {answer.message}")
    return float(-answer.fun)


def search(jobs: list[Job], devices: int, horizon: int) -> float:
    """Return the same maximum by trying every schedule."""

    @functools.cache
    def best(slot: int, left: tuple[int, ...]) -> float:
        if slot == horizon:
            return 0.0
        most = 0.0
        ranges = [range(min(j.most, left[i]) + 1 if slot >= j.arrives else 1) for i, j in enumerate(jobs)]
        for y in itertools.product(*ranges):
            if sum(n * j.devices for n, j in zip(y, jobs, strict=True)) > devices:
                continue
            ended = [i for i, n in enumerate(y) if n and n == left[i]]
            now = sum(jobs[i].worth[slot - jobs[i].arrives] for i in ended)
            most = max(most, now + best(slot + 1, tuple(a - n for a, n in zip(left, y, strict=True))))
        return most

    return best(0, tuple(math.ceil(j.work - 1e-6) for j in jobs))


def check(instances: int) -> None:
    """Compare the two on small random instances."""
    draw = random.Random(1)
    for n in range(instances):
        horizon, devices = draw.randint(2, 4), draw.randint(1, 4)
        jobs = []
        for i in range(draw.randint(1, 4)):
            arrives = draw.randrange(horizon)
            ends = sorted((draw.uniform(0, 10) for _ in range(horizon - arrives)), reverse=True)
            jobs.append(Job(str(i), arrives, draw.uniform(0.2, 4), draw.randint(1, 3), draw.randint(1, 2), tuple(ends)))
        program, brute = optimum(jobs, devices, horizon), search(jobs, devices, horizon)
        if abs(program - brute) > 1e-4:
            sys.exit(f"instance {n}: the program finds {program}, the search {brute}: {jobs}, {devices} devices")
    print(f"the program and the search agree on {instances} instances")


def run(outbid: str, devices: int, priority: int, seed: int) -> dict[str, float]:
    """Return the worth of OASiS and of the optimum in one instance."""
    with tempfile.TemporaryDirectory() as folder:
        trace, apps = Path(folder, "trace.jsonl"), Path(folder, "apps.jsonl")
        made = ["jobs=10", f"slots={ARRIVALS}", "times=0.01", f"priority={priority}"]
        policy = ["slot=20m", f"slots={ARRIVALS}", "slack=0", "conserve=false", "refused=reject"]
        command = [outbid, "sim", "--made", "oasis", "--policy", "oasis", "--cluster", f"v100:{devices}/4"]
        command += ["--seed", str(seed), "--restart-delay", "0s", "--slowdown", "1,1,1,1", "-o", "json"]
        command += ["--save-trace", str(trace), "--apps", str(apps)]
        command += [x for o in made for x in ("--made-option", o)] + [x for o in policy for x in ("--option", o)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        result = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
        jobs = {j.name: j for j in jobs_of(trace)}
        got, ended = 0.0, 0
        for line in apps.read_text().splitlines():
            app = json.loads(line)
            if app["device_seconds"] > 0:
                slots = math.ceil(app["shared_s"] / SLOT - 1e-3)
                got += jobs[app["app"]].worth[slots - 1]
                ended += 1
    best = optimum(list(jobs.values()), devices, HORIZON)
    if got > best * (1 + 1e-4):
        sys.exit(f"seed {seed}: OASiS is worth {got}, the optimum {best}: the two do not follow the same rules")
    return {"jobs": len(jobs), "ended": ended, "failed": result["failed"], "oasis": got, "optimum": best}


def main() -> None:
    """Run missing instances, then print the table."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--outbid", default="outbid", help="the binary")
    args.add_argument("--results", type=Path, help="file of results, a line each instance")
    args.add_argument("--seeds", default="100-109", metavar="FIRST-LAST")
    args.add_argument("--check", type=int, default=0, metavar="N", help="compare with a search on N small instances")
    opts = args.parse_args()
    if opts.check:
        check(opts.check)
    if not opts.results:
        return
    first, last = (int(n) for n in opts.seeds.split("-"))
    lines = opts.results.read_text().splitlines() if opts.results.exists() else []
    done = {(r["devices"], r["priority"], r["seed"]): r for r in map(json.loads, lines)}
    print("| devices | priorities | optimum / OASiS | the worst | OASiS ended, of jobs |\n|---|---|---|---|---|")
    for devices, priority in itertools.product((52, 100, 200), (10, 100, 1000)):
        ratios, ended, jobs = [], 0, 0
        for seed in range(first, last + 1):
            key = (devices, priority, seed)
            if key not in done:
                r = {"devices": devices, "priority": priority, "seed": seed} | run(opts.outbid, *key)
                done[key] = r
                with opts.results.open("a") as f:
                    f.write(json.dumps(r) + "\n")
            r = done[key]
            ratios.append(r["optimum"] / r["oasis"] if r["oasis"] > 0 else math.inf)
            ended, jobs = ended + int(r["ended"]), jobs + int(r["jobs"])
        half = T95 * statistics.stdev(ratios) / math.sqrt(len(ratios)) if math.isfinite(max(ratios)) else math.inf
        cells = [f"{devices}", f"1 to {priority}", f"{statistics.fmean(ratios):.2f} ± {half:.2f}", f"{max(ratios):.2f}"]
        print(f"| {' | '.join(cells)} | {ended} of {jobs} |")


if __name__ == "__main__":
    main()
