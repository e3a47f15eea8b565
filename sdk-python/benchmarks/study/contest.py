"""One run of a sampler on a problem: trials on a clock that is not real."""

from __future__ import annotations

import heapq
import json
import math
import random
import time
from pathlib import Path
from typing import Any

from problem import Problem
from samplers import Maker

FLIGHTS = (1, 4, 16)


def run(problem: Problem, make: Maker, seed: int, trials: int, flight: int) -> dict[str, Any]:
    """Return the losses in the order in which trials ended: what was observed, and the loss without noise.

    A trial's duration is lognormal, drawn from the problem's name, the seed and the trial's number.
    """
    draw = random.Random(f"{problem.name} {seed} {flight}")
    noises = [draw.gauss(0, problem.noise) for _ in range(trials)]
    durations = [draw.lognormvariate(0, 0.5) for _ in range(trials)]
    running: list[tuple[float, int, Any, float]] = []
    seen: list[float] = []
    true: list[float] = []
    now = cpu = 0.0
    sampler = None
    for number in range(trials):
        began = time.process_time()
        if sampler is None:
            sampler = make(problem.space, seed, trials, flight)
        if len(running) == flight:
            now = end(sampler, running, seen, true, noises)
        trial, config = sampler.ask()
        cpu += time.process_time() - began
        heapq.heappush(running, (now + durations[number], number, trial, loss_of(problem, config)))
    while running:
        end(sampler, running, seen, true, noises)
    return {"seen": seen, "true": true, "cpu": round(getattr(sampler, "cpu", cpu), 4)}


def end(sampler: Any, running: list[Any], seen: list[float], true: list[float], noises: list[float]) -> float:
    """End the running trial that ends first, and return when."""
    at, number, trial, loss = heapq.heappop(running)
    observed = loss + noises[number]
    sampler.tell(trial, observed)
    seen.append(number_of(observed))
    true.append(number_of(loss))
    return float(at)


def loss_of(problem: Problem, config: dict[str, Any]) -> float:
    """Return a configuration's loss: NaN, a failed trial, where a library refuses to compute it."""
    try:
        return problem.loss(config)
    except (ArithmeticError, ValueError):  # numpy's LinAlgError is a ValueError
        return math.nan


def number_of(loss: float) -> float:
    """Return a loss with seven digits, and the largest number for a failed trial."""
    return float(f"{loss:.7g}") if math.isfinite(loss) else 1e300


def read(*paths: Path) -> list[dict[str, Any]]:
    """Return the runs in files."""
    return [json.loads(line) for path in paths if path.exists() for line in path.read_text().splitlines()]


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a run."""
    return row["problem"], row["sampler"], row["flight"], row["seed"]
