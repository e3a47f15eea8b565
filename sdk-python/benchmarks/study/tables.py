"""Regrets and their comparison.

The regret of a run after n trials is 0 for the best loss that any run found and 1 for the median of random search after
16 trials. Its incumbent is the trial with the best observed loss; its loss without noise counts.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

BUDGETS = (16, 50, 100, 200)
RIVAL = "optuna-tpe"
Regrets = dict[tuple[str, int, int], dict[str, list[float]]]


def incumbents(row: dict[str, Any]) -> dict[int, float]:
    """Return the loss of the incumbent after each budget that the run reached."""
    found: dict[int, float] = {}
    best = float("inf")
    value = float("inf")
    for n, (seen, true) in enumerate(zip(row["seen"], row["true"], strict=True), 1):
        if seen < best:
            best, value = seen, true
        if n in BUDGETS:
            found[n] = value
    return found


def regrets(rows: list[dict[str, Any]]) -> Regrets:
    """Return the regrets by sampler, flight and budget, then by problem, a number for each seed."""
    least: dict[str, float] = defaultdict(lambda: float("inf"))
    chance: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        least[row["problem"]] = min(least[row["problem"]], *row["true"])
        if row["sampler"] == "random" and row["flight"] == 1:
            chance[row["problem"]].append(incumbents(row)[16])
    made: Regrets = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        name = row["problem"]
        unit = statistics.median(chance[name]) - least[name]
        for n, loss in incumbents(row).items():
            made[row["sampler"], row["flight"], n][name].append((loss - least[name]) / unit if unit > 0 else 0.0)
    return made


def means(by_problem: dict[str, list[float]]) -> dict[str, float]:
    """Return the mean regret on each problem."""
    return {name: statistics.mean(values) for name, values in by_problem.items()}


def overview(made: Regrets, samplers: list[str], flight: int, rival: str = RIVAL) -> None:
    """Print mean regrets, their ratios to the rival, wins and Wilcoxon's p over problems."""
    from scipy.stats import wilcoxon

    print(f"\n{flight} at a time\n\n| sampler | " + " | ".join(f"{n} trials" for n in BUDGETS) + " |")
    print("|---|" + "---|" * len(BUDGETS))
    for sampler in samplers:
        cells = []
        for n in BUDGETS:
            ours, theirs = means(made[sampler, flight, n]), means(made[rival, flight, n])
            both = sorted(ours.keys() & theirs.keys())
            if not both:
                cells.append("")
                continue
            a, b = [ours[p] for p in both], [theirs[p] for p in both]
            text = f"{statistics.mean(a):.3f}"
            if sampler != rival:
                won, lost = sum(x < y for x, y in zip(a, b, strict=True)), sum(x > y for x, y in zip(a, b, strict=True))
                p = wilcoxon(a, b).pvalue if a != b else 1.0
                text += f" ({statistics.mean(a) / statistics.mean(b):.2f}, {won}:{lost}, p {p:.2g})"
            cells.append(text)
        print(f"| {sampler} | " + " | ".join(cells) + " |")


def each(made: Regrets, samplers: list[str], flight: int) -> None:
    """Print the mean regret on each problem."""
    problems = sorted({p for (_, f, _), by in made.items() if f == flight for p in by})
    budgets = [n for n in BUDGETS if any(made[s, flight, n] for s in samplers)]
    print("\n| problem | " + " | ".join(f"{s} {n}" for n in budgets for s in samplers) + " |")
    print("|---|" + "---|" * (len(samplers) * len(budgets)))
    for problem in problems:
        cells = []
        for n in budgets:
            for s in samplers:
                values = made[s, flight, n].get(problem)
                cells.append(f"{statistics.mean(values):.2f}" if values else "")
        print(f"| {problem} | " + " | ".join(cells) + " |")
