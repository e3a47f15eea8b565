"""The best results of samplers after 100 trials, one at a time: Outbid's samplers in real sweeps, and Optuna's.

    python benchmarks/samplers.py run results.jsonl     # continues where it stopped
    python benchmarks/samplers.py show results.jsonl    # the tables of docs/benchmarks.md

Workload, rivals, seeds and the criterion are in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from functions import FUNCTIONS

TRIALS = 100
SEEDS = range(4200, 4210)
OURS = ("random", "sobol", "bayes", "tpe", "cmaes", "nsga2")
OPTUNA = ("optuna-tpe", "optuna-tpe-multivariate")
BLIND = ("random", "sobol")  # these do not use results
RIVAL = "optuna-tpe"


def outbid_space(space: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Convert a space to Outbid's parameters."""
    import outbid as ob

    made: dict[str, Any] = {}
    for name, (kind, *rest) in space.items():
        condition = None
        if kind != "choice" and len(rest) == 4:
            condition = rest.pop()
        if kind == "choice":
            parameter: Any = ob.choice(rest[0])
        elif kind == "float":
            parameter = (ob.loguniform if rest[2] else ob.uniform)(rest[0], rest[1])
        else:
            parameter = ob.integer(rest[0], rest[1], log=rest[2])
        made[name] = ob.when(parameter, condition[0], in_=condition[1]) if condition else parameter
    return made


def suggest(trial: Any, space: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Return a configuration drawn like in an Optuna objective."""
    config: dict[str, Any] = {}
    for name, (kind, *rest) in space.items():
        if kind != "choice" and len(rest) == 4:
            on, values = rest.pop()
            if config.get(on) not in values:
                continue
        if kind == "choice":
            config[name] = trial.suggest_categorical(name, rest[0])
        elif kind == "float":
            config[name] = trial.suggest_float(name, rest[0], rest[1], log=rest[2])
        else:
            config[name] = trial.suggest_int(name, rest[0], rest[1], log=rest[2])
    return config


def train(trial: Any, function: Any) -> None:
    """Evaluate one configuration."""
    trial.report(value=function(trial.config))


def sweep_of(name: str, sampler: str, seed: int) -> Any:
    """Return the sweep of a function with a sampler."""
    import outbid as ob

    function, space = FUNCTIONS[name]
    tuners: dict[str, Any] = {
        "random": ob.Random, "sobol": ob.Sobol, "bayes": ob.Bayes, "tpe": ob.TPE, "cmaes": ob.CMAES, "nsga2": ob.NSGA2,
    }  # fmt: skip
    return ob.Sweep(
        partial(train, function=function),
        outbid_space(space),
        metric="value",
        mode="min",
        tuner=tuners[sampler](seed=seed),
        trials=TRIALS,
        concurrency=1 if sampler not in BLIND else None,
        name=name,
    )


def run_sweep(name: str, sampler: str, seed: int, data: str) -> list[float]:
    """Return the values of the trials of a sweep on a real server, in order."""
    import outbid as ob

    with ob.connect(data=data) as client:
        result = sweep_of(name, sampler, seed).run(display=False, client=client)
    return [trial.metrics["value"] for trial in result.trials]


def run_program(name: str, sampler: str, seed: int) -> list[float]:
    """Return the values of trials drawn by the server's plugin for samplers, which is called like by the server."""
    from outbid.plugin import Create, Exit
    from outbid.plugin._optuna import Sampler
    from outbid.plugin._tuner import spec_of

    program, values = Sampler(), []
    program.spec = spec_of(sweep_of(name, sampler, seed)._spec)
    program.start()
    for n in range(TRIALS):
        (created,) = program.ask(1)
        assert isinstance(created, Create)
        program.created += 1
        values.append(FUNCTIONS[name][0](created.config))
        program.exited(Exit(n, 1, values[-1], failed=False))
    return values


def run_optuna(name: str, sampler: str, seed: int) -> list[float]:
    """Return the values of a study's trials, in order."""
    import warnings

    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    function, space = FUNCTIONS[name]
    joint = sampler.endswith("multivariate")
    conditional = any(len(spec) > 4 for spec in space.values())
    options: dict[str, Any] = {"multivariate": True, "group": conditional} if joint else {}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, **options))
    study.optimize(lambda trial: function(suggest(trial, space)), n_trials=TRIALS)
    return [trial.value for trial in study.trials if trial.value is not None]


def one(function: str, sampler: str, seed: int, data: str) -> dict[str, Any]:
    """Run one sampler on one function."""
    began, used = time.monotonic(), time.process_time()
    if sampler in BLIND or sampler == "bayes":
        values = run_sweep(function, sampler, seed, data)
    elif sampler in OURS:
        values = run_program(function, sampler, seed)
    else:
        values = run_optuna(function, sampler, seed)
    assert len(values) == TRIALS, (function, sampler, seed, len(values))
    took = {"seconds": round(time.monotonic() - began, 2), "cpu": round(time.process_time() - used, 2)}
    return {"function": function, "sampler": sampler, "seed": seed, "values": values, **took}


def run(path: Path, functions: list[str], samplers: list[str], seeds: list[int], processes: int) -> None:
    """Run what is missing in the file, one seed after another, and append the results."""
    import outbid as ob

    done = {(r["function"], r["sampler"], r["seed"]) for r in read(path)}
    wanted = [(f, s, seed) for seed in seeds for f in functions for s in samplers if (f, s, seed) not in done]
    with (
        tempfile.TemporaryDirectory(prefix="outbid-samplers-") as data,
        ob.connect(data=data),
        ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool,
    ):
        for future in as_completed([pool.submit(one, *which, data) for which in wanted]):
            with path.open("a") as out:
                out.write(json.dumps(future.result()) + "\n")


def check(functions: list[str]) -> None:
    """Compare the plugin's configurations here with those of a sweep on a real server."""
    with tempfile.TemporaryDirectory(prefix="outbid-samplers-") as data:
        for function in functions:
            here, there = run_program(function, "tpe", 1), run_sweep(function, "tpe", 1, data)
            print(
                f"{function}: {sum(a == b for a, b in zip(here, there, strict=True))} of {TRIALS} values are the same"
            )


def read(path: Path) -> list[dict[str, Any]]:
    """Return the results in a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def show(path: Path) -> None:
    """Print the tables."""
    import numpy as np
    from scipy.stats import wilcoxon

    rows = read(path)
    best = {(r["function"], r["sampler"], r["seed"]): min(r["values"]) for r in rows}
    samplers = [s for s in (*OURS, *OPTUNA) if any(r["sampler"] == s for r in rows)]
    every = [(function, s) for function in FUNCTIONS for s in samplers]
    seeds = sorted({r["seed"] for r in rows if all((*pair, r["seed"]) in best for pair in every)})
    if not seeds:
        raise SystemExit("no seed has been run with every function and sampler yet")
    print(f"{len(rows)} runs; Python {platform.python_version()}, Optuna {version('optuna')}, ", end="")
    print(f"scikit-learn {version('scikit-learn')}; seeds {seeds[0]} to {seeds[-1]}\n")
    print("| function | " + " | ".join(samplers) + " |\n|---|" + "---|" * len(samplers))
    ranks: dict[str, list[float]] = {s: [] for s in samplers}
    for function in FUNCTIONS:
        medians = [statistics.median(best[function, s, seed] for seed in seeds) for s in samplers]
        print(f"| {function} | " + " | ".join(f"{m:.4g}" for m in medians) + " |")
        for seed in seeds:
            found = [best[function, s, seed] for s in samplers]
            for s, value in zip(samplers, found, strict=True):
                ranks[s].append(sum(v < value for v in found) + (sum(v == value for v in found) + 1) / 2)
    print("| mean rank | " + " | ".join(f"{statistics.mean(ranks[s]):.2f}" for s in samplers) + " |\n")
    rng = np.random.default_rng(0)
    print(f"| function | sampler | better than {RIVAL} in | median difference | 95 % interval | p | Holm |")
    print("|---|---|---|---|---|---|---|")
    for sampler in (s for s in OURS if s in samplers and RIVAL in samplers):
        table = []
        for function in FUNCTIONS:
            gap = np.array([best[function, sampler, s] - best[function, RIVAL, s] for s in seeds])
            draws = np.median(rng.choice(gap, (10_000, len(gap))), axis=1)
            p = float(wilcoxon(gap).pvalue) if np.any(gap) else 1.0
            table.append((function, gap, np.quantile(draws, (0.025, 0.975)), p))
        holm = adjusted([p for *_, p in table])
        for (function, gap, (low, high), p), corrected in zip(table, holm, strict=True):
            wins = f"{int((gap < 0).sum())} of {len(gap)}"
            print(f"| {function} | {sampler} | {wins} | {np.median(gap):.3g} | {low:.3g} to {high:.3g} ", end="")
            print(f"| {p:.3f} | {corrected:.3f} |")
    for sampler in samplers:
        took = [r["cpu"] for r in rows if r["sampler"] == sampler and r["function"] == "branin"]
        if took and sampler not in BLIND:
            print(f"{sampler}: {statistics.median(took):.1f} s of processor time for {TRIALS} trials of branin")


def adjusted(values: list[float]) -> list[float]:
    """Return p-values adjusted by Holm's method."""
    found, highest = [0.0] * len(values), 0.0
    for rank, i in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[i]))
        found[i] = highest
    return found


def main() -> int:
    """Run or show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show", "check"))
    parser.add_argument("file", type=Path, nargs="?", default=Path("samplers.jsonl"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--functions", nargs="+", default=list(FUNCTIONS), choices=list(FUNCTIONS))
    parser.add_argument("--samplers", nargs="+", default=[*OURS[:4], *OPTUNA], choices=[*OURS, *OPTUNA])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    given = parser.parse_args()
    if given.what == "run":
        run(given.file, given.functions, given.samplers, given.seeds, given.processes)
    elif given.what == "check":
        check(given.functions)
    else:
        show(given.file)
    return 0


if __name__ == "__main__":
    random.seed(0)
    sys.exit(main())
