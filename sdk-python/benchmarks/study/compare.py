"""Compare samplers on realistic problems.

    python sdk-python/benchmarks/study/compare.py run results.jsonl      # continues where it stopped
    python sdk-python/benchmarks/study/compare.py show results.jsonl     # prints the tables

docs/research/samplers/protocol.md describes the study.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import contest
import samplers
import tables

SEEDS = {"development": range(1, 6), "heldout": range(7100, 7120)}
OURS = ("random", "sobol", "bayes")
OPTUNA = ("tpe", "tpe-multivariate", "gp", "auto", "cmaes")


def maker_of(name: str) -> samplers.Maker:
    """Return what starts a run of a sampler."""
    ours = name.split("@")[0]  # bayes@2 is bayes again, after a change
    if ours in OURS:
        return samplers.maker(ours)
    product, _, sampler = name.partition("-")
    made: samplers.Maker = importlib.import_module(f"rivals.{product}").maker(sampler)
    return made


def one(half: str, problem: str, sampler: str, flight: int, seed: int, trials: int) -> dict[str, Any]:
    """Make one run."""
    import warnings

    warnings.simplefilter("ignore")
    problems = importlib.import_module(half).PROBLEMS
    row = contest.run(problems[problem], maker_of(sampler), seed, trials, flight)
    return {"problem": problem, "sampler": sampler, "flight": flight, "seed": seed, **row}


def run(given: argparse.Namespace) -> None:
    """Make the runs that the file does not have."""
    problems = given.problems or list(importlib.import_module(given.half).PROBLEMS)
    done = {contest.key(row) for row in contest.read(*given.files[:1])}
    wanted = [
        (given.half, problem, sampler, flight, seed, given.trials)
        for seed in given.seeds or SEEDS[given.half]
        for flight in given.flights
        for problem in problems
        for sampler in given.samplers
        if (problem, sampler, flight, seed) not in done
    ]
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # for the processes that start below
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(one, *which) for which in wanted]):
            with given.files[0].open("a") as out:
                out.write(json.dumps(future.result()) + "\n")


def show(given: argparse.Namespace) -> None:
    """Print the tables."""
    rows = contest.read(*given.files)
    if given.seeds:
        rows = [row for row in rows if row["seed"] in given.seeds]
    made = tables.regrets(rows)
    named = list(dict.fromkeys(row["sampler"] for row in rows))
    for flight in sorted({row["flight"] for row in rows}):
        tables.overview(made, named, flight)
        if given.each:
            tables.each(made, given.each, flight)
    for name in named:
        mine = [row for row in rows if row["sampler"] == name]
        cpu = sum(row["cpu"] for row in mine) / sum(len(row["seen"]) for row in mine)
        print(f"{name}: {1000 * cpu:.2f} ms of processor time a suggestion")


def main() -> int:
    """Run or show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--half", choices=("development", "heldout"), default="heldout")
    parser.add_argument("--problems", nargs="+")
    parser.add_argument("--samplers", nargs="+", default=["random", "bayes", "optuna-tpe"])
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--flights", type=int, nargs="+", default=[1])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--each", nargs="+", help="samplers whose mean regret on each problem is printed")
    given = parser.parse_args()
    (run if given.what == "run" else show)(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
