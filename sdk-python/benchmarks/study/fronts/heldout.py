"""Problems that no sampler has seen during its development (docs/research/samplers/protocol-several.md)."""

from __future__ import annotations

import math
import warnings

import numpy as np
from problem import Config, flt, log, logint, pick, whole
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from fronts.common import Fronts

PROBLEMS = Fronts()
warnings.simplefilter("ignore", ConvergenceWarning)


def _split(data: object) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    x, xt, y, yt = train_test_split(*data(return_X_y=True), test_size=0.5, random_state=1)  # type: ignore[operator]
    scale = StandardScaler().fit(x)
    return scale.transform(x), scale.transform(xt), y, yt


CANCER, WINE = _split(load_breast_cancer), _split(load_wine)


@PROBLEMS.add("zdt4", {"a": flt(0.0, 1.0), **{f"x{i}": flt(-1.0, 1.0) for i in range(3)}})
def _zdt4(c: Config) -> tuple[float, ...]:
    g = 1 + 30 + sum(c[f"x{i}"] ** 2 - 10 * math.cos(4 * math.pi * c[f"x{i}"]) for i in range(3))
    return c["a"], g * (1 - math.sqrt(c["a"] / g))


@PROBLEMS.add("zdt6", {f"x{i}": flt(0.0, 1.0) for i in range(5)})
def _zdt6(c: Config) -> tuple[float, ...]:
    f = 1 - math.exp(-4 * c["x0"]) * math.sin(6 * math.pi * c["x0"]) ** 6
    g = 1 + 9 * (sum(c[f"x{i}"] for i in range(1, 5)) / 4) ** 0.25
    return f, g * (1 - (f / g) ** 2)


@PROBLEMS.add("dtlz7", {f"x{i}": flt(0.0, 1.0) for i in range(5)})
def _dtlz7(c: Config) -> tuple[float, ...]:
    f = [c["x0"], c["x1"]]
    g = 1 + 9 / 3 * sum(c[f"x{i}"] for i in range(2, 5))
    return f[0], f[1], (1 + g) * (3 - sum(v / (1 + g) * (1 + math.sin(3 * math.pi * v)) for v in f))


@PROBLEMS.add("kursawe", {f"x{i}": flt(-5.0, 5.0) for i in range(3)})
def _kursawe(c: Config) -> tuple[float, ...]:
    x = [c[f"x{i}"] for i in range(3)]
    first = sum(-10 * math.exp(-0.2 * math.hypot(x[i], x[i + 1])) for i in range(2))
    return first, sum(abs(v) ** 0.8 + 5 * math.sin(v**3) for v in x)


@PROBLEMS.add(
    "misses-alarms",
    {"c": log(1e-4, 1e3), "weight": log(1e-2, 1e2), "threshold": flt(0.05, 0.95), "penalty": pick(0.0, 1.0)},
)
def _misses(c: Config) -> tuple[float, ...]:
    x, xt, y, yt = CANCER
    made = LogisticRegression(
        C=c["c"], class_weight={0: c["weight"], 1: 1.0}, l1_ratio=c["penalty"], solver="saga", max_iter=60
    )
    positive = made.fit(x, y).predict_proba(xt)[:, 1] > c["threshold"]
    return float((~positive[yt == 1]).mean()), float(positive[yt == 0].mean())


@PROBLEMS.add(
    "network-size",
    {
        "layers": pick(1, 2),
        "first": logint(1, 64),
        "second": logint(1, 64, "layers", 2),
        "rate": log(1e-4, 1e-1),
        "decay": log(1e-6, 1.0),
    },
)
def _network(c: Config) -> tuple[float, ...]:
    x, xt, y, yt = WINE
    sizes = (c["first"],) if c["layers"] == 1 else (c["first"], c["second"])
    made = MLPClassifier(sizes, learning_rate_init=c["rate"], alpha=c["decay"], max_iter=40, random_state=0).fit(x, y)
    size = sum(w.size for w in (*made.coefs_, *made.intercepts_))
    return 1 - made.score(xt, yt), math.log2(size)


@PROBLEMS.add(
    "forest-size",
    {
        "trees": logint(1, 20),
        "depth": whole(1, 10),
        "leaf": logint(1, 30),
        "features": flt(0.05, 1.0),
        "share": flt(0.2, 1.0),
    },
)
def _forest(c: Config) -> tuple[float, ...]:
    x, xt, y, yt = CANCER
    made = RandomForestClassifier(
        c["trees"],
        max_depth=c["depth"],
        min_samples_leaf=c["leaf"],
        max_features=c["features"],
        max_samples=c["share"],
        random_state=0,
    ).fit(x, y)
    return 1 - made.score(xt, yt), math.log2(sum(t.tree_.node_count for t in made.estimators_))


@PROBLEMS.add(
    "route",
    {
        "way": pick("road", "rail", "air"),
        "speed": flt(0.1, 1.0),
        "stops": whole(0, 5, "way", "road", "rail"),
        "load": flt(0.0, 1.0),
    },
)
def _route(c: Config) -> tuple[float, ...]:
    price, pace = {"road": (1.0, 1.0), "rail": (0.7, 0.8), "air": (3.0, 4.0)}[c["way"]]
    stops = c.get("stops", 0)
    time = 1 / (pace * c["speed"]) + 0.3 * stops + 0.2 * c["load"]
    cost = price * (0.5 + c["speed"] ** 2) / (0.3 + c["load"]) - 0.05 * stops
    return time, cost, abs(c["load"] - 0.6) + 0.1 * stops
