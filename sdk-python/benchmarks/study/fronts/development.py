"""Problems for developing samplers of several objectives."""

from __future__ import annotations

import math

from problem import Config, flt, log, logint, pick, whole
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from fronts.common import Fronts

PROBLEMS = Fronts()
_X, _XT, _Y, _YT = train_test_split(*load_digits(return_X_y=True), train_size=500, test_size=500, random_state=0)
SIX = {f"x{i}": flt(0.0, 1.0) for i in range(6)}


@PROBLEMS.add("zdt1", SIX)
def _zdt1(c: Config) -> tuple[float, ...]:
    g = 1 + 9 * sum(c[f"x{i}"] for i in range(1, 6)) / 5
    return c["x0"], g * (1 - math.sqrt(c["x0"] / g))


@PROBLEMS.add("zdt2", SIX)
def _zdt2(c: Config) -> tuple[float, ...]:
    g = 1 + 9 * sum(c[f"x{i}"] for i in range(1, 6)) / 5
    return c["x0"], g * (1 - (c["x0"] / g) ** 2)


@PROBLEMS.add("zdt3", SIX)
def _zdt3(c: Config) -> tuple[float, ...]:
    g = 1 + 9 * sum(c[f"x{i}"] for i in range(1, 6)) / 5
    f = c["x0"]
    return f, g * (1 - math.sqrt(f / g) - f / g * math.sin(10 * math.pi * f))


@PROBLEMS.add("dtlz2", SIX)
def _dtlz2(c: Config) -> tuple[float, ...]:
    g = sum((c[f"x{i}"] - 0.5) ** 2 for i in range(2, 6))
    a, b = (c[f"x{i}"] * math.pi / 2 for i in range(2))
    return (
        (1 + g) * math.cos(a) * math.cos(b),
        (1 + g) * math.cos(a) * math.sin(b),
        (1 + g) * math.sin(a),
    )


@PROBLEMS.add(
    "shapes",
    {"shape": pick("a", "b", "c"), "u": flt(0.0, 1.0), "v": flt(-2.0, 2.0, "shape", "a", "b"), "w": log(1e-3, 1.0)},
)
def _shapes(c: Config) -> tuple[float, ...]:
    bent = {"a": 0.5, "b": 1.0, "c": 2.0}[c["shape"]]
    off = (c.get("v", 1.0) - 0.7) ** 2 / 4 + (math.log10(c["w"]) + 2) ** 2 / 8
    return c["u"] + off, (1 - c["u"] ** bent) + off + (0.2 if c["shape"] == "b" else 0.0)


@PROBLEMS.add("svm-vectors", {"c": log(1e-3, 1e3), "gamma": log(1e-6, 1.0), "shrink": pick(True, False)})
def _svm(c: Config) -> tuple[float, ...]:
    made = SVC(C=c["c"], gamma=c["gamma"], shrinking=c["shrink"]).fit(_X, _Y)
    return 1 - made.score(_XT, _YT), len(made.support_) / len(_X)


@PROBLEMS.add(
    "tree-size",
    {
        "depth": whole(1, 16),
        "leaf": logint(1, 50),
        "features": flt(0.05, 1.0),
        "prune": log(1e-5, 1e-1),
        "criterion": pick("gini", "entropy"),
    },
)
def _tree(c: Config) -> tuple[float, ...]:
    made = DecisionTreeClassifier(
        max_depth=c["depth"],
        min_samples_leaf=c["leaf"],
        max_features=c["features"],
        ccp_alpha=c["prune"],
        criterion=c["criterion"],
        random_state=0,
    ).fit(_X, _Y)
    return 1 - made.score(_XT, _YT), math.log2(made.tree_.node_count)


@PROBLEMS.add(
    "sparse-linear", {"alpha": log(1e-5, 1.0), "mix": flt(0.0, 1.0), "eta": log(1e-4, 1.0), "rounds": logint(1, 30)}
)
def _sparse(c: Config) -> tuple[float, ...]:
    made = SGDClassifier(
        penalty="elasticnet",
        alpha=c["alpha"],
        l1_ratio=c["mix"],
        learning_rate="constant",
        eta0=c["eta"],
        max_iter=c["rounds"],
        tol=None,
        random_state=0,
    ).fit(_X, _Y)
    return 1 - made.score(_XT, _YT), float((abs(made.coef_) > 1e-6).mean())
