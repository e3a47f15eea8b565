"""Compare samplers on problems with several objectives.

    several.py run results.jsonl [--half development|heldout] [--seeds N ...] [--flights N ...] [--samplers NAME ...]
    several.py show results.jsonl

A run's regret after n trials is the volume that its front lacks to that of all runs together, relative to that of
random search after 16 trials (median over its runs, one trial at a time). Losses are scaled first, so that the front
of all runs reaches from 0 to 1; volumes are below 1.1 in each.
"""

from __future__ import annotations

import argparse
import heapq
import importlib
import json
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import samplers
from fronts.common import Front, Losses, front, volume
from rivals.optuna import _Study
from scipy.stats import wilcoxon

BUDGETS = (16, 50, 100, 200)
SAMPLERS = ("bayes", "optuna-tpe", "optuna-nsga2", "random")


class _Ours(samplers.Ours):
    def tell_all(self, trial: int, losses: Losses) -> None:
        self._send({"tell": {"trial": trial, "costs": list(losses)}})


class _Optuna(_Study):
    """A sampler of Optuna in a study of several directions."""

    def __init__(self, front: Front, name: str, seed: int, flight: int) -> None:
        lie = {"constant_liar": True} if flight > 1 else {}
        made: Any = (
            optuna.samplers.TPESampler(seed=seed, **lie)
            if name == "optuna-tpe"
            else optuna.samplers.NSGAIISampler(seed=seed)
        )
        self._space = front.space
        first = {k: middle(v) for k, v in front.space.items()}
        count = len(front.losses(first))
        self._study = optuna.create_study(sampler=made, directions=["minimize"] * count)

    def tell_all(self, trial: Any, losses: Losses) -> None:
        self._study.tell(trial, list(losses))


def middle(spec: tuple[Any, ...]) -> Any:
    """Return a value of a parameter."""
    if spec[0] == "choice":
        return spec[1][0]
    return (spec[1] + spec[2]) / 2 if spec[0] == "float" else (spec[1] + spec[2]) // 2


def run(problem: Front, name: str, seed: int, trials: int, flight: int) -> dict[str, Any]:
    """Return the losses of the trials of a run, in the order in which they ended."""
    sampler: Any = (
        _Optuna(problem, name, seed, flight)
        if name.startswith("optuna")
        else _Ours(name.split("@")[0], problem.space, seed)
    )
    clock = np.random.default_rng([seed, trials, flight])
    durations = clock.lognormal(0, 0.5, trials)
    running: list[tuple[float, int, Any, Losses]] = []
    ended: list[Losses] = []
    spent, now = 0.0, 0.0
    for i in range(trials):
        if len(running) == flight:
            now, _, handle, losses = heapq.heappop(running)
            sampler.tell_all(handle, losses)
            ended.append(losses)
        began = time.process_time()
        handle, config = sampler.ask()
        spent += time.process_time() - began
        heapq.heappush(running, (now + durations[i], i, handle, tuple(map(float, problem.losses(config)))))
    ended += [losses for _, _, _, losses in sorted(running, key=lambda r: r[:2])]
    return {"losses": ended, "cpu": (spent + getattr(sampler, "cpu", 0.0)) / trials}


def regrets(rows: list[dict[str, Any]]) -> dict[tuple[str, str, int], dict[int, float]]:
    """Return the regret at each budget by problem, sampler and flight, averaged over seeds."""
    found: dict[tuple[str, str, int], dict[int, float]] = {}
    for problem in sorted({r["problem"] for r in rows}):
        own = [r for r in rows if r["problem"] == problem]
        whole = np.array(front([tuple(p) for r in own for p in r["losses"]]))
        low, high = whole.min(0), whole.max(0)
        reach = np.where(high > low, high - low, 1.0)
        reference = (1.1,) * len(low)
        most = volume([tuple(p) for p in (whole - low) / reach], reference)
        lacks: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for r in own:
            scaled = [tuple(p) for p in (np.array(r["losses"]) - low) / reach]
            for n in BUDGETS:
                if n <= len(scaled):
                    lacks[r["sampler"], r["flight"]][n].append(most - volume(scaled[:n], reference))
        unit = statistics.median(lacks["random", 1][16])
        for (sampler, flight), by in lacks.items():
            found[problem, sampler, flight] = {n: statistics.mean(v) / unit for n, v in by.items()}
    return found


def show(path: Path) -> None:
    """Print the tables."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    table = regrets(rows)
    for flight in sorted({r["flight"] for r in rows}):
        print(f"{flight} in flight")
        for sampler in sorted({r["sampler"] for r in rows}):
            cells = []
            for n in BUDGETS:
                mine = {p: v[n] for (p, s, f), v in table.items() if s == sampler and f == flight and n in v}
                rival = {p: v[n] for (p, s, f), v in table.items() if s == "optuna-tpe" and f == flight and n in v}
                if mine and rival:
                    won = sum(mine[p] < rival[p] for p in mine)
                    ratio = statistics.mean(mine.values()) / statistics.mean(rival.values())
                    apart = [mine[p] - rival[p] for p in mine]
                    chance = wilcoxon(apart).pvalue if any(apart) else 1.0
                    mean = statistics.mean(mine.values())
                    cells.append(f"{n}: {mean:.3f} ({ratio:.2f}, {won}:{len(mine) - won}, p {chance:.2g})")
            cpu = statistics.mean(r["cpu"] for r in rows if r["sampler"] == sampler and r["flight"] == flight)
            print(f"  {sampler:16}", "  ".join(cells), f" {1000 * cpu:.1f} ms")
    for key in sorted(table):
        print(*key, {n: round(float(v), 3) for n, v in table[key].items()})


def main() -> None:
    """Run or show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--half", default="development")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3, 4, 5])
    parser.add_argument("--flights", type=int, nargs="*", default=[1])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--samplers", nargs="*", default=SAMPLERS)
    parser.add_argument("--problems", nargs="*")
    given = parser.parse_args()
    if given.what == "show":
        return show(given.file)
    problems = importlib.import_module(f"fronts.{given.half}").PROBLEMS
    done = set()
    if given.file.exists():
        rows = [json.loads(line) for line in given.file.read_text().splitlines()]
        done = {(r["problem"], r["sampler"], r["flight"], r["seed"]) for r in rows}
    with given.file.open("a") as file:
        for seed in given.seeds:
            for flight in given.flights:
                for name in given.problems or problems:
                    for sampler in given.samplers:
                        if (name, sampler, flight, seed) in done:
                            continue
                        row = run(problems[name], sampler, seed, given.trials, flight)
                        row |= {"problem": name, "sampler": sampler, "flight": flight, "seed": seed}
                        print(json.dumps(row), file=file, flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main())
