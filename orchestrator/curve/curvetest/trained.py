"""Train models on real data, and write their learning curves as tables.

    trained.py OUT.jsonl.gz [TASK...]

Each task trains CONFIGURATIONS configurations, drawn from a search space, for EPOCHS epochs, and measures a metric on
validation data after each. All of it is trained here, on a processor, in minutes: multilayer perceptrons
(perceptrons.py) and boosted trees. The data come along: scikit-learn's digits, breast cancer, diabetes and two
photographs, and of Python itself the sources of its library, its documentation (pydoc) and the names of Unicode's
characters.

Five tasks have a constant learning rate. Six have what may reorder configurations late: decay to zero, in steps
or with restarts, wrong labels, and boosting with small steps. They were chosen before any tuner was run on them, and
all are kept. A table is a JSON object a line: set, task, mode (min or max), parameters, rows and values. Where training
has diverged, so that a number is no longer finite, the value is null, as JSON cannot write NaN.

Seeded: the same versions on the same kind of machine write the same tables; the texts are those of Python's version.
Needs numpy, scikit-learn, Pillow and xgboost.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import pathlib
import pydoc_data.topics
import re
import sys
import sysconfig
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import xgboost
from perceptrons import CONTEXT, EPOCHS, TOKENS, USUAL, Array, Data, Drawn, How, train
from sklearn import datasets

CONFIGURATIONS = 150
SEED = 20261123
# Configurations that are computed together: what they hold fits into a processor's cache.
TOGETHER = 15
# Rounds of boosting that count as an epoch.
ROUNDS = 8

Draw = Callable[[np.random.Generator, int], Array]


def log(low: float, high: float) -> Draw:
    """Log-uniform."""
    return lambda rng, n: low * (high / low) ** rng.random(n)


def uniform(low: float, high: float) -> Draw:
    """Uniform."""
    return lambda rng, n: low + (high - low) * rng.random(n)


def whole(low: int, high: int) -> Draw:
    """Whole numbers, uniform."""
    return lambda rng, n: rng.integers(low, high + 1, n).astype(float)


def choice(*values: float) -> Draw:
    """One of the values."""
    return lambda rng, n: rng.choice(np.array(values, float), n)


def split(x: Array, y: Array, train: int, valid: int) -> Data:
    """Draw examples to train on, and others to validate with."""
    order = np.random.default_rng(SEED).permutation(len(x))[: train + valid]
    a, b = order[:train], order[train:]
    outputs = y.shape[1] if y.ndim > 1 else int(y.max()) + 1
    return Data(x[a].astype(np.float32), y[a], x[b].astype(np.float32), y[b], outputs)


def digits() -> Data:
    """8x8 images of handwritten digits."""
    x, y = datasets.load_digits(return_X_y=True)
    return split(x / 16, y, 1200, 597)


def wrong_digits() -> Data:
    """The digits; of those to train on, three in ten have a label drawn at random."""
    d, rng = digits(), np.random.default_rng(SEED)
    y = np.where(rng.random(len(d.y)) < 0.3, rng.integers(0, d.outputs, len(d.y)), d.y)
    return Data(d.x, y, d.x_valid, d.y_valid, d.outputs)


def cancer() -> Data:
    """Measurements of tumours, benign or malignant."""
    x, y = datasets.load_breast_cancer(return_X_y=True)
    return split((x - x.mean(0)) / x.std(0), y, 380, 189)


def diabetes() -> Data:
    """Measurements of patients, and the progress of their disease a year later, in standard deviations."""
    x, y = datasets.load_diabetes(return_X_y=True)
    return split(x, ((y - y.mean()) / y.std())[:, None], 300, 142)


def photographs() -> Data:
    """8x8 patches of two photographs, which are their own targets."""
    patches = []
    for image in datasets.load_sample_images().images:
        grey = image.mean(2)[:424, :640]
        patches.append(grey.reshape(53, 8, 80, 8).swapaxes(1, 2).reshape(-1, 64))
    x = np.concatenate(patches)
    x = ((x - x.mean()) / x.std()).astype(np.float32)
    return split(x, x, 1536, 512)


def names() -> Data:
    """Names of Unicode's characters, as counts of hashed pairs of letters, and the characters' categories."""
    found = []
    for code in range(sys.maxunicode + 1):
        name = unicodedata.name(chr(code), "")
        if name and not re.search("HANGUL SYLLABLE|-[0-9A-F]{4,5}$", name):  # those are made by rule
            found.append((name, unicodedata.category(chr(code))))
    kinds = [kind for kind, _ in Counter(kind for _, kind in found).most_common(8)]
    found = [(name, kind) for name, kind in found if kind in kinds]
    x = np.zeros((len(found), 256), np.float32)
    for row, (name, _) in zip(x, found, strict=True):
        for a, b in itertools.pairwise(f" {name} "):
            row[zlib.crc32((a + b).encode()) % 256] += 1
    return split(np.sqrt(x), np.array([kinds.index(kind) for _, kind in found]), 1536, 1024)


def characters(text: str) -> Data:
    """Each character of a text after those before it; the last tenth of the text validates."""
    common = [c for c, _ in Counter(text).most_common(TOKENS - 1)]
    number = {c: i + 1 for i, c in enumerate(common)}
    tokens = np.array([number.get(c, 0) for c in text])
    windows = np.lib.stride_tricks.sliding_window_view(tokens, CONTEXT + 1)
    cut = len(windows) * 9 // 10
    valid = windows[cut + CONTEXT :]
    valid = valid[np.random.default_rng(SEED).permutation(len(valid))[:1024]]
    return Data(windows[:cut, :-1], windows[:cut, -1], valid[:, :-1], valid[:, -1], TOKENS)


def sources() -> Data:
    """The sources of Python's library."""
    files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    order = np.random.default_rng(SEED).permutation(len(texts))
    return characters("".join(texts[i] for i in order)[:500_000])


def documentation() -> Data:
    """Python's documentation of its language."""
    topics = pydoc_data.topics.topics
    return characters("".join(topics[name] for name in sorted(topics))[:500_000])


@dataclass(frozen=True)
class Task:
    """What is trained, and the space that its configurations are drawn from; boosted trees if no network is said."""

    name: str
    data: Callable[[], Data]
    network: How | None
    space: dict[str, Draw]
    fixed: dict[str, float] = field(default_factory=dict)


TASKS = [
    Task(
        "digits-constant",
        digits,
        How((64,), optimiser="sgd", metric="accuracy"),
        {
            "learning_rate": log(1e-3, 1),
            "momentum": uniform(0, 0.99),
            "weight_decay": log(1e-6, 1e-2),
            "width": whole(8, 64),
            "batch_size": choice(16, 32, 64, 128),
        },
    ),
    Task(
        "cancer-constant",
        cancer,
        How((32,)),
        {
            "learning_rate": log(1e-5, 1e-1),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-5, 1),
            "dropout": uniform(0, 0.5),
        },
    ),
    Task(
        "names-constant",
        names,
        How((32,), metric="accuracy"),
        {
            "learning_rate": log(1e-5, 1e-1),
            "weight_decay": log(1e-5, 1),
            "dropout": uniform(0, 0.6),
            "batch_size": choice(32, 64, 128),
        },
    ),
    Task(
        "photographs-constant",
        photographs,
        How((64,)),
        {
            "learning_rate": log(1e-5, 1e-1),
            "momentum": uniform(0.5, 0.99),
            "width": whole(4, 64),
            "noise": uniform(0, 0.5),
        },
    ),
    Task(
        "sources-constant",
        sources,
        How((64,)),
        {
            "learning_rate": log(1e-4, 1e-1),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-4, 1),
            "dropout": uniform(0, 0.3),
        },
        fixed={"batch_size": 64},
    ),
    Task(
        "documentation-cosine",
        documentation,
        How((64,), schedule="cosine"),
        {
            "learning_rate": log(1e-4, 1e-1),
            "warmup": uniform(0, 0.2),
            "weight_decay": log(1e-4, 1),
            "dropout": uniform(0, 0.3),
            "beta2": uniform(0.9, 0.999),
        },
        fixed={"batch_size": 64},
    ),
    Task(
        "digits-linear",
        digits,
        How((64,), optimiser="sgd", schedule="linear"),
        {
            "learning_rate": log(1e-2, 3),
            "warmup": uniform(0, 0.2),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-5, 1e-1),
            "dropout": uniform(0, 0.5),
            "smoothing": uniform(0, 0.2),
        },
    ),
    Task(
        "digits-wrong-labels",
        wrong_digits,
        How((64,)),
        {
            "learning_rate": log(1e-4, 1e-1),
            "weight_decay": log(1e-3, 10),
            "dropout": uniform(0, 0.7),
            "width": whole(16, 64),
            "smoothing": uniform(0, 0.3),
        },
    ),
    Task(
        "names-restarts",
        names,
        How((32,), optimiser="sgd", schedule="restarts"),
        {
            "learning_rate": log(1e-2, 3),
            "first_cycle": whole(5, 25),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-6, 1e-2),
            "dropout": uniform(0, 0.6),
        },
    ),
    Task(
        "photographs-steps",
        photographs,
        How((64, 16, 64), optimiser="sgd", schedule="steps"),
        {
            "learning_rate": log(3e-3, 3),
            "momentum": uniform(0.5, 0.99),
            "weight_decay": log(1e-7, 1e-3),
            "first_drop": uniform(0.3, 0.8),
            "drop": log(0.05, 0.5),
        },
    ),
    Task(
        "diabetes-boosting",
        diabetes,
        None,
        {
            "learning_rate": log(0.003, 0.3),
            "max_depth": whole(2, 10),
            "min_child_weight": log(1, 50),
            "subsample": uniform(0.4, 1),
            "colsample_bytree": uniform(0.3, 1),
            "reg_lambda": log(0.01, 100),
        },
    ),
]


def boost(d: Data, h: Drawn) -> Array:
    """Root of the mean squared error after each epoch's rounds of boosting."""
    seen, valid = xgboost.DMatrix(d.x, d.y), xgboost.DMatrix(d.x_valid, d.y_valid)
    curves = []
    for i in range(len(h["learning_rate"])):
        settings = {name: float(values[i]) for name, values in h.items() if name not in USUAL}
        settings |= {"max_depth": int(settings["max_depth"]), "nthread": 1, "seed": SEED + i}
        history: dict[str, dict[str, list[float]]] = {}
        xgboost.train(settings, seen, ROUNDS * EPOCHS, evals=[(valid, "valid")], evals_result=history, verbose_eval=0)
        curves.append(history["valid"]["rmse"][ROUNDS - 1 :: ROUNDS])
    return np.array(curves)


def curves_of(task: Task, seed: int) -> tuple[Array, Array]:
    """Rows of configurations, and their curves."""
    rng = np.random.default_rng([SEED, seed])
    h = {name: draw(rng, CONFIGURATIONS) for name, draw in task.space.items()}
    rows = np.stack(list(h.values()), 1)
    h |= {k: np.full(CONFIGURATIONS, v) for k, v in (USUAL | task.fixed).items() if k not in h}
    data = task.data()
    if task.network is None:
        return rows, boost(data, h)
    result = np.empty((CONFIGURATIONS, EPOCHS))
    for batch in np.unique(h["batch_size"]):
        alike = np.flatnonzero(h["batch_size"] == batch)
        for which in np.array_split(alike, math.ceil(len(alike) / TOGETHER)):
            result[which] = train(task.network, data, {k: v[which] for k, v in h.items()}, rng)
    return rows, result


def main(out: str, *only: str) -> None:
    """Train the tasks and write one line for each."""
    if unknown := set(only) - {task.name for task in TASKS}:
        sys.exit(f"no task is called {', '.join(sorted(unknown))}; there are {', '.join(t.name for t in TASKS)}")
    with gzip.open(out, "wt") as file, np.errstate(all="ignore"):
        for seed, task in enumerate(TASKS):
            if only and task.name not in only:
                continue
            rows, values = curves_of(task, seed)
            line = {
                "set": "Trained",
                "task": task.name,
                "mode": "max" if task.network and task.network.metric == "accuracy" else "min",
                "parameters": list(task.space),
                "rows": [[float(f"{v:.6g}") for v in row] for row in rows],
                "values": [[float(f"{v:.6g}") if math.isfinite(v) else None for v in curve] for curve in values],
            }
            file.write(json.dumps(line) + "\n")
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
