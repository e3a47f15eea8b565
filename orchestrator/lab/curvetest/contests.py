"""Summarise contests of tuners.

    contests.py RESULTS.jsonl [TUNER]

Read the lines that TestContest of orchestrator/tuner/registry wrote (-contest-out RESULTS.jsonl), and print a table of
docs/research/tuners.md for each number of slots. For each set of tasks, and for easy and hard tasks together, it has
the mean regret of each tuner after 4, 8 and 16 trainings by the clock, the mean share of configurations that are
better (in %, in brackets), and the additional regret compared with TUNER (freeze_thaw) after 16. This difference is
paired by task and seed. It has two bootstrap intervals of 95 %: over seeds with fixed tasks, and over tasks and
seeds. All tasks have the same weight. Needs numpy.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

# Groups of trained tasks, as in docs/research/tuners/protocols-4.md.
TRAINED = {
    "trained, hard": "diabetes-boosting cancer-constant digits-linear names-restarts",
    "trained, easy": """digits-constant names-constant photographs-constant sources-constant documentation-cosine
        digits-wrong-labels photographs-steps""",
    "next, hard": """care-narrow faults-cosine faults-hold faults-narrow care-hold care-boosting
        documentation-narrow""",
    "next, easy": "affairs-constant photographs-narrow character-names-hold scan-linear digits-hold",
    "larger, hard": """flights-hold mnist-wrong-labels deliveries-one-cycle houses-regularised astronaut-steps
        churn-boosting""",
    "larger, usual": """diamonds-constant mnist-convolution personalities-autoencoder pronunciations-constant
        species-constant hotels-boosting""",
    "stranger's, hard": """cells-wrong-labels words-restarts pitches-one-cycle textures-steps
        salaries-slow-trees""",
    "stranger's, usual": "leaves-adam tweets-linear movies-factors loans-histograms riders-sgd",
}
DRAWS = 4000

HEAD = "| space | set | tasks, contests | tuner | 4 | 8 | 16 | less than it by, on these tasks | on tasks like them |"

Cell = dict[str, dict[str, dict[int, Any]]]
"""Results by tuner, task and seed."""


def groups(task: str, of: str) -> list[str]:
    """Return the rows of the table that a task counts in."""
    if of != "Trained":
        return [of, "hard together" if of == "AlgoPerf" else "easy together"]
    name = next((name for name, tasks in TRAINED.items() if task in tasks.split()), None)
    if name is None:
        raise SystemExit(f"contests.py: task {task!r} is in no group of TRAINED: add it there")
    return [name, "hard together" if name.endswith("hard") else "easy together"]


def interval(rng: np.random.Generator, more: dict[str, list[float]], others: bool) -> str:
    """Return a bootstrap interval of the mean over tasks: over seeds, and also over tasks if others are given."""
    drawn = []
    for values in more.values():
        at = np.asarray(values)
        drawn.append(at[rng.integers(len(at), size=(DRAWS, len(at)))].mean(1))
    means = np.stack(drawn)
    if others:
        means = means[rng.integers(len(means), size=means.shape), np.arange(DRAWS)]
    low, high = np.percentile(means.mean(0), [2.5, 97.5])
    return f"{low:+.3f} to {high:+.3f}"


def mean(cell: dict[str, dict[int, Any]], key: str, at: int) -> float:
    """Return the mean over tasks of the mean over seeds."""
    return float(np.mean([np.mean([r[key][at] for r in seeds.values()]) for seeds in cell.values()]))


def rows(cell: Cell, own: str) -> Iterator[list[str]]:
    """Yield a row for each tuner, the others first."""
    rng = np.random.default_rng(1)
    for tuner in sorted(cell, key=lambda name: (name == own, name)):
        row = [tuner]
        for at in (1, 2, 3):
            row.append(f"{mean(cell[tuner], 'RegretByTicks', at):.3f} ({mean(cell[tuner], 'ShareByTicks', at):.1f})")
        more: dict[str, list[float]] = defaultdict(list)
        for task, seeds in cell[tuner].items():
            for seed, r in seeds.items():
                if tuner != own and seed in cell.get(own, {}).get(task, {}):
                    more[task].append(r["RegretByTicks"][3] - cell[own][task][seed]["RegretByTicks"][3])
        if more:
            by = np.mean([np.mean(values) for values in more.values()])
            row += [f"{by:+.3f} ({interval(rng, more, False)})", interval(rng, more, True)]
        else:
            row += ["", ""]
        yield row


def main(results: str, own: str = "freeze_thaw") -> None:
    """Print the tables."""
    cells: dict[int, dict[tuple[str, str], Cell]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    )
    with open(results) as file:
        for line in file:
            r = json.loads(line)
            for group in groups(r["Task"], r["Set"]):
                cells[r["Slots"]][r["Space"], group][r["Tuner"]][r["Task"]][r["Seed"]] = r
    for slots, by in sorted(cells.items()):
        print(f"\n{slots} slots:\n")
        print(HEAD)
        print("|" + "---|" * 9)
        for (space, group), cell in sorted(by.items()):
            for row in rows(cell, own):
                n = f"{len(cell[row[0]])}, {sum(map(len, cell[row[0]].values()))}"
                print("| " + " | ".join([space, group, n, *row]) + " |")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
