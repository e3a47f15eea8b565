"""Run other products' tuners on the tasks of a contest, with the same clock.

    rivals.py TASKS.jsonl.gz OUT.jsonl [option ...]

TASKS.jsonl.gz is what TestContest writes with -contest-dump. OUT.jsonl gets lines like those of TestContest. At every
tick, each slot trains a trial for a step and reports its metric if it was measured there. Rivals:

- random: Ray Tune's default, random search without a scheduler;
- ray_asha: random search with Ray's ASHAScheduler, its defaults, and max_t equal to the task's steps;
- tpe: Optuna's default sampler without pruning;
- tpe_median: Optuna's defaults, TPESampler and MedianPruner;
- tpe_halving, tpe_hyperband: TPESampler with SuccessiveHalvingPruner or HyperbandPruner, their defaults.

Needs numpy and optuna; ray_asha needs ray.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import optuna

RIVALS = ("random", "ray_asha", "tpe", "tpe_median", "tpe_halving", "tpe_hyperband")


class Rows:
    """The rows of a task that configurations stand for, as in contest_table_test.go."""

    def __init__(self, task: dict[str, Any], blind: bool, seed: int) -> None:
        self.count, self.blind = len(task["Curves"]), blind
        self.kinds = np.array(task["Kinds"] or [""] * self.count)
        self.rng, self.used = np.random.default_rng(seed), np.zeros(self.count, dtype=bool)
        self.ranges: list[tuple[str, float, float, bool]] = []
        units = []
        for j, name in enumerate(task["Parameters"] or []):
            values = np.array([row[j] for row in task["Rows"]], dtype=float)
            low, high = float(values.min()), float(values.max())
            if low == high:
                continue
            log = low > 0 and high / low > 50
            self.ranges.append((name, low, high, log))
            units.append(unit(values, low, high, log))
        self.units = np.stack(units, 1) if units else np.zeros((self.count, 0))

    def row(self, draw: Any) -> int:
        """Return the row of a trial whose parameters `draw` draws."""
        if self.blind:
            return int(draw("row", 0, self.count - 1, False, None))
        x = np.array([unit(draw(n, low, high, log, None), low, high, log) for n, low, high, log in self.ranges])
        kinds = sorted(set(self.kinds))
        kind = draw("kind", 0, 0, False, kinds) if len(kinds) > 1 else kinds[0]
        free = (self.kinds == kind) & ~self.used
        if not free.any():
            self.used[self.kinds == kind] = False
            free = self.kinds == kind
        far = np.where(free, ((self.units - x) ** 2).sum(1), np.inf)
        chosen = int(self.rng.choice(np.flatnonzero(far == far.min())))
        self.used[chosen] = True
        return chosen


def unit(value: Any, low: float, high: float, log: bool) -> Any:
    """Map a value to the unit interval."""
    return np.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)


class Optuna:
    """A study."""

    def __init__(self, rival: str, task: dict[str, Any], seed: int) -> None:
        pruners: dict[str, Any] = {
            "tpe": optuna.pruners.NopPruner,
            "tpe_median": optuna.pruners.MedianPruner,
            "tpe_halving": optuna.pruners.SuccessiveHalvingPruner,
            "tpe_hyperband": optuna.pruners.HyperbandPruner,
        }
        direction = "maximize" if task["Maximise"] else "minimize"
        sampler = optuna.samplers.TPESampler(seed=seed)
        self.study = optuna.create_study(direction=direction, sampler=sampler, pruner=pruners[rival]())

    def start(self, rows: Rows) -> tuple[Any, int]:
        """Return a new trial and its row."""
        trial = self.study.ask()

        def draw(name: str, low: float, high: float, log: bool, kinds: list[str] | None) -> Any:
            if kinds is not None:
                return trial.suggest_categorical(name, kinds)
            return trial.suggest_int(name, low, high) if rows.blind else trial.suggest_float(name, low, high, log=log)

        return trial, rows.row(draw)

    def stops(self, trial: Any, step: int, value: float) -> bool:
        """Report a value and return whether the trial is to stop."""
        trial.report(value, step)
        if trial.should_prune():
            self.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return True
        return False

    def end(self, trial: Any, value: float) -> None:
        """Report the end of a trial."""
        if math.isfinite(value):
            self.study.tell(trial, value)
        else:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)


class Trial:
    """A trial of Ray's scheduler, which asks only for its id."""

    def __init__(self, number: int) -> None:
        self.trial_id = str(number)


class Ray:
    """Random search, with Ray's ASHA if the rival is ray_asha."""

    def __init__(self, rival: str, task: dict[str, Any], seed: int) -> None:
        self.rng, self.sign = np.random.default_rng(seed), 1 if task["Maximise"] else -1
        self.started, self.bracket = 0, None
        if rival == "ray_asha":
            from ray.tune.schedulers.async_hyperband import _Bracket

            self.bracket = _Bracket(1, len(task["Curves"][0]), 4, 0)

    def start(self, rows: Rows) -> tuple[Any, int]:
        """Return a new trial and its row."""

        def draw(name: str, low: float, high: float, log: bool, kinds: list[str] | None) -> Any:
            if kinds is not None:
                return str(self.rng.choice(kinds))
            if rows.blind:
                return int(self.rng.integers(low, high + 1))
            return low * (high / low) ** self.rng.random() if log else low + (high - low) * self.rng.random()

        self.started += 1
        return Trial(self.started), rows.row(draw)

    def stops(self, trial: Any, step: int, value: float) -> bool:
        """Report a value and return whether the trial is to stop."""
        if self.bracket is None:
            return False
        return self.bracket.on_result(trial, step, self.sign * value) == "STOP"

    def end(self, trial: Any, value: float) -> None:
        """Report the end of a trial."""


def best_by_ticks(task: dict[str, Any], rival: Any, rows: Rows, slots: int, ticks: int) -> tuple[list[float], int]:
    """Return the best cost after each tick, and the number of trials."""
    curves, fresh, sign = task["Curves"], task["Fresh"], -1 if task["Maximise"] else 1
    running: list[list[Any]] = []
    best, by_ticks, trials = math.inf, [], 0
    for _ in range(ticks):
        while len(running) < slots:
            running.append([*rival.start(rows), 0])
            trials += 1
        left = []
        for state in running:
            trial, row, step = state
            value = curves[row][step]
            value = math.nan if value is None else value
            state[2] = step = step + 1
            best = min(best, sign * value) if math.isfinite(value) else best
            stopped = bool(fresh[row][step - 1]) and rival.stops(trial, step, value)
            if not stopped and step == len(curves[row]):
                rival.end(trial, value)
            elif not stopped:
                left.append(state)
        running = left
        by_ticks.append(best)
    return by_ticks, trials


def regret(task: dict[str, Any]) -> Any:
    """Return the function that rates a cost, as TestContest does."""
    sign = -1 if task["Maximise"] else 1
    rising = sorted(min((sign * v for v in curve if v is not None), default=math.inf) for curve in task["Curves"])
    least, median = rising[0], rising[len(rising) // 2]
    return lambda best: min(1.0, (best - least) / (median - least))


def results(task: dict[str, Any], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the rivals on a task."""
    steps, rate = len(task["Curves"][0]), regret(task)
    budgets = [b for b in (2, 4, 8, 16, 60, 200, 1000) if b <= options.trainings]
    for seed in range(options.seed, options.seed + options.seeds):
        for slots in map(int, options.slots.split(",")):
            for space in options.spaces.split(","):
                for name in options.rivals.split(","):
                    rival = (Optuna if name.startswith("tpe") else Ray)(name, task, seed)
                    rows = Rows(task, space == "blind", seed)
                    ticks = -(-max(budgets) * steps // slots)
                    best, trials = best_by_ticks(task, rival, rows, slots, ticks)
                    at = [rate(best[-(-b * steps // slots) - 1]) for b in budgets]
                    late = best[-(-8 * steps // slots) :]
                    yield {
                        "Set": task["Set"],
                        "Task": task["Name"],
                        "Space": space,
                        "Tuner": name,
                        "Slots": slots,
                        "Seed": seed,
                        "RegretByTicks": at,
                        "RegretMean": sum(map(rate, late)) / len(late),
                        "Trials": trials,
                    }


def main() -> None:
    """Read the tasks and append the results to a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks")
    parser.add_argument("out")
    parser.add_argument("--rivals", default=",".join(RIVALS))
    parser.add_argument("--spaces", default="blind,table")
    parser.add_argument("--slots", default="4")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trainings", type=int, default=16)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with gzip.open(options.tasks, "rt") as lines, open(options.out, "a") as out:
        for line in lines:
            for result in results(json.loads(line), options):
                print(json.dumps(result), file=out, flush=True)


if __name__ == "__main__":
    main()
