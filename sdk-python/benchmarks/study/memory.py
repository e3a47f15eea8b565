"""Compare bayes with and without the trials of earlier sweeps.

    python sdk-python/benchmarks/study/memory.py run results.jsonl       # continues where it stopped
    python sdk-python/benchmarks/study/memory.py show results.jsonl      # prints the tables

docs/research/samplers/protocol-memory.md describes the study.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import math
import os
import random
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import contest
import samplers
from problem import Config, Problem, Space

SEEDS = {"development": range(1, 9), "heldout": range(7200, 7220)}
EARLIER = 40  # trials of each earlier sweep
WORST = 2.0  # larger regrets count as this, or one task would decide
BUDGETS = (4, 8, 16, 50)
# What the sweep remembers: nothing, the other tasks of its family, the task itself, or sweeps that mislead.
HISTORIES = ("none", "related", "same", "negated", "shuffled", "mirrored", "mixed")
MISLEADING = ("negated", "shuffled", "mirrored")


def mirrored(space: Space, config: Config) -> dict[str, Any]:
    """Return a configuration with numbers at the other side of their range and each choice replaced by the next."""
    made = {}
    for name, value in config.items():
        kind, *rest = space[name]
        if kind == "choice":
            made[name] = rest[0][(rest[0].index(value) + 1) % len(rest[0])]
            continue
        low, high, logarithmic = rest[:3]
        other = low * high / value if logarithmic else low + high - value
        made[name] = min(max(round(other) if kind == "int" else other, low), high)
    for name, spec in space.items():  # a condition that now holds
        if name not in made:
            made[name] = spec[1]
    return made


def variant(problem: Problem, how: str) -> Problem:
    """Return a problem as an earlier sweep had it."""
    loss = {
        "negated": lambda config: -problem.loss(config),
        "mirrored": lambda config: problem.loss(mirrored(problem.space, config)),
    }.get(how, problem.loss)
    return dataclasses.replace(problem, loss=loss)


def sweep(problem: Problem, seed: int, trials: int, past: list[Any], name: str = "bayes") -> dict[str, Any]:
    """Return the trials of a sweep."""
    sampler = samplers.Ours(name, problem.space, seed, past)
    found = []
    for _ in range(trials):
        trial, config = sampler.ask()
        loss = contest.loss_of(problem, config)
        sampler.tell(trial, loss)
        found.append({"config": config, "cost": loss if math.isfinite(loss) else None})
    return {"trials": found, "cpu": sampler.cpu}


def run_earlier(problem: Problem, how: str, seed: int) -> list[Any]:
    """Return the trials of an earlier sweep, from a file if it has run before."""
    file = Path(os.environ["STUDY_EARLIER"]) / f"{problem.name.replace('/', '-')}-{how}-{seed}.json"
    if not file.exists():
        ran = sweep(variant(problem, how), 1000 + seed, EARLIER, [])["trials"]
        file.write_text(json.dumps([trial for trial in ran if trial["cost"] is not None]))
    found: list[Any] = json.loads(file.read_text())
    return found


def earlier(problem: Problem, how: str, seed: int) -> list[Any]:
    """Return the trials of an earlier sweep that did not fail."""
    trials = run_earlier(problem, how if how in ("negated", "mirrored") else "related", seed)
    if how != "shuffled":
        return list(trials)
    costs = [trial["cost"] for trial in trials]
    random.Random(f"{problem.name} {seed}").shuffle(costs)
    return [{**trial, "cost": cost} for trial, cost in zip(trials, costs, strict=True)]


def histories(tasks: list[Problem], target: int, how: str, seed: int) -> list[list[Any]]:
    """Return what a sweep of a task remembers."""
    others = [task for i, task in enumerate(tasks) if i != target]
    if how == "none":
        return []
    if how == "same":
        return [earlier(tasks[target], "related", seed)]
    if how == "mixed":  # one is related
        return [
            earlier(task, kind, seed) for task, kind in zip(others, ("related", "negated", "mirrored"), strict=False)
        ]
    return [earlier(task, how, seed) for task in others]


def family(half: str, name: str, seed: int, wanted: list[str], label: str, trials: int) -> list[dict[str, Any]]:
    """Make the runs of a family and a seed."""
    import warnings

    warnings.simplefilter("ignore")
    tasks = importlib.import_module(f"sequences.{half}").FAMILIES[name]
    target = seed % len(tasks)
    rows = []
    for how in wanted:
        chosen = "random" if how == "random" else "bayes"
        past = [] if how == "random" else histories(tasks, target, how, seed)
        ran = sweep(tasks[target], seed, trials, past, chosen)
        best, bests = math.inf, []
        for trial in ran["trials"]:
            best = min(best, math.inf if trial["cost"] is None else trial["cost"])
            bests.append(contest.number_of(best))
        rows.append(
            {
                "family": name,
                "task": target,
                "seed": seed,
                "history": how,
                "label": label,
                "best": bests,
                "cpu": ran["cpu"],
            }
        )
    return rows


def run(given: argparse.Namespace) -> None:
    """Make the runs that the file does not have."""
    names = given.families or list(importlib.import_module(f"sequences.{given.half}").FAMILIES)
    done = {(r["family"], r["seed"], r["history"], r["label"]) for r in contest.read(given.files[0])}
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # for the processes that start below
    os.environ["STUDY_EARLIER"] = str(given.files[0].with_suffix(".earlier"))
    Path(os.environ["STUDY_EARLIER"]).mkdir(exist_ok=True)
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        futures = []
        for seed in given.seeds or SEEDS[given.half]:
            for name in names:
                wanted = [h for h in given.histories if (name, seed, h, given.label) not in done]
                if wanted:
                    futures.append(pool.submit(family, given.half, name, seed, wanted, given.label, given.trials))
        for future in as_completed(futures):
            with given.files[0].open("a") as out:
                out.writelines(json.dumps(row) + "\n" for row in future.result())


def regrets(rows: list[dict[str, Any]]) -> dict[Any, dict[Any, list[float]]]:
    """Return the regrets after each budget by label and history, and by family and seed."""
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault((row["family"], row["task"]), []).append(row)
    found: dict[Any, dict[Any, list[float]]] = {}
    for (name, _), all_ in groups.items():
        least = min(row["best"][-1] for row in all_)
        usual = statistics.median(row["best"][15] for row in all_ if row["history"] == "random")
        for row in all_:
            scaled = [(row["best"][:n][-1] - least) / max(usual - least, 1e-9) for n in BUDGETS]
            way = found.setdefault((row["label"], row["history"]), {})
            way[name, row["seed"]] = [min(regret, WORST) for regret in scaled]
    return found


def line(way: dict[Any, list[float]], base: dict[Any, list[float]]) -> list[tuple[float, float]]:
    """Return mean regrets, and their ratios to those of the same runs without memory."""
    keys = [key for key in way if key in base]
    mine = [statistics.mean(c) for c in zip(*(way[key] for key in keys), strict=True)]
    plain = [statistics.mean(c) for c in zip(*(base[key] for key in keys), strict=True)]
    return [(a, a / max(b, 1e-9)) for a, b in zip(mine, plain, strict=True)]


def show(given: argparse.Namespace) -> None:
    """Print mean regrets after each budget, and their ratios to those without memory."""
    found = regrets(contest.read(*given.files))
    base = next(way for (_, how), way in found.items() if how == "none")
    misled: dict[str, list[Any]] = {}
    for (label, how), way in sorted(found.items()):
        means = line(way, base)
        print(f"{label:14} {how:9} " + "  ".join(f"{mean:.3f} ({ratio:.2f})" for mean, ratio in means))
        if how in MISLEADING:
            misled.setdefault(label, []).append([ratio for _, ratio in means])
        if how not in (given.each or ()):
            continue
        for name in dict.fromkeys(name for name, _ in way):
            one = line({key: v for key, v in way.items() if key[0] == name}, base)
            print(f"    {name:20} " + "  ".join(f"{mean:.3f} ({ratio:.2f})" for mean, ratio in one))
    for label, ratios in misled.items():
        print(f"{label:14} misled    " + "  ".join(f"{statistics.mean(c):.2f}" for c in zip(*ratios, strict=True)))


def main() -> int:
    """Run or show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--half", choices=("development", "heldout"), default="heldout")
    parser.add_argument("--families", nargs="+")
    parser.add_argument("--histories", nargs="+", default=["random", *HISTORIES])
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--label", default="bayes", help="names the runs, to compare changes")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--each", nargs="+", help="histories whose mean regret on each family is printed")
    given = parser.parse_args()
    (run if given.what == "run" else show)(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
