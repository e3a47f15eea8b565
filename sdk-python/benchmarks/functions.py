"""Ten functions to minimise: numeric, mixed, conditional, and the errors of three scikit-learn models.

A space is a dict with a description of each parameter for both samplers: ("float", low, high, log), ("int", low, high,
log), ("choice", values), and a condition as an additional last element (name, values).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

Config = Mapping[str, Any]


def branin(c: Config) -> float:
    """Return Branin's function minus its minimum."""
    x, y = c["x"], c["y"]
    bend = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return bend * bend + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.39788735773


_A = ((10, 3, 17, 3.5, 1.7, 8), (0.05, 10, 17, 0.1, 8, 14), (3, 3.5, 1.7, 10, 17, 8), (17, 8, 0.05, 10, 0.1, 14))
_P = (
    (0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886),
    (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
    (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650),
    (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381),
)


def hartmann6(c: Config) -> float:
    """Return Hartmann's function of six variables minus its minimum."""
    total = 3.32236801141551
    for weight, a, p in zip((1.0, 1.2, 3.0, 3.2), _A, _P, strict=True):
        total -= weight * math.exp(-sum(a[i] * (c[f"x{i}"] - p[i]) ** 2 for i in range(6)))
    return total


def rosenbrock(c: Config) -> float:
    """Return Rosenbrock's function of five variables."""
    x = [c[f"x{i}"] for i in range(5)]
    return float(sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(4)))


def mixed_ackley(c: Config) -> float:
    """Return Ackley's function of two numbers, two whole numbers and a choice, whose minimum is not in the middle."""
    x = [c["x"] - 0.7, c["y"] + 1.3, float(c["n"] - 3), float(c["m"] + 2), float("abcd".index(c["kind"]) - 2)]
    mean = sum(v * v for v in x) / 5
    waves = sum(math.cos(2 * math.pi * v) for v in x) / 5
    return -20 * math.exp(-0.2 * math.sqrt(mean)) - math.exp(waves) + 20 + math.e


def mixed_training(c: Config) -> float:
    """Return a synthetic validation loss: a valley of rate and batch, a width that saturates, choices that shift."""
    rate = math.log10(c["lr"]) + 0.5 * math.log2(c["batch"] / 32) * 0.3 + 2.5
    shift = {"relu": 0.0, "tanh": 0.15, "gelu": -0.03}[c["activation"]]
    width = 1 / math.log2(c["width"] + 1)
    decay = 0.05 * (math.log10(c["decay"]) + 4) ** 2 * (1 + c["width"] / 512)
    return 0.2 + 0.3 * rate * rate + shift + width + decay + 0.1 * abs(c["dropout"] - 0.2)


def conditional_branches(c: Config) -> float:
    """Return a function whose parameters depend on a choice: three bowls, the deepest of them being the narrowest."""
    if c["branch"] == "wide":
        return 1.0 + 0.05 * (c["a"] - 2) ** 2
    if c["branch"] == "log":
        return 0.5 + 0.3 * (math.log10(c["b"]) + 3) ** 2 + 0.02 * abs(c["k"] - 7)
    return 3 * (c["u"] - 0.8) ** 2 + 3 * (c["v"] - 0.15) ** 2 + 6 * abs(c["u"] - 0.8) * abs(c["v"] - 0.15)


def conditional_layers(c: Config) -> float:
    """Return a network's loss by its number of layers and the width of each existing layer."""
    best = {1: (48,), 2: (96, 24), 3: (128, 64, 16)}[c["layers"]]
    loss = {1: 0.4, 2: 0.2, 3: 0.05}[c["layers"]]
    for i, width in enumerate(best):
        loss += 0.15 * math.log2(c[f"width{i}"] / width) ** 2
    return loss + 0.4 * (math.log10(c["lr"]) + 0.5 * c["layers"] + 1.5) ** 2


def svc(c: Config) -> float:
    """Return the error of a support vector machine on 200 digits, in three folds."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    if c["kernel"] == "linear":
        model = SVC(kernel="linear", C=c["C"])
    else:
        model = SVC(kernel=c["kernel"], C=c["C"], gamma=c["gamma"], degree=c.get("degree", 3))
    return _error(make_pipeline(StandardScaler(), model), "digits")


def forest(c: Config) -> float:
    """Return the squared error of extremely randomised trees on the diabetes data, in three folds."""
    from sklearn.ensemble import ExtraTreesRegressor

    model = ExtraTreesRegressor(
        n_estimators=c["trees"],
        max_depth=c["depth"],
        min_samples_leaf=c["leaf"],
        max_features=c["features"],
        bootstrap=c["bootstrap"],
        random_state=0,
    )
    return _error(model, "diabetes")


def boosting(c: Config) -> float:
    """Return the log loss of gradient boosting on the breast cancer data, in three folds."""
    from sklearn.ensemble import GradientBoostingClassifier

    model = GradientBoostingClassifier(
        learning_rate=c["lr"],
        n_estimators=c["trees"],
        max_depth=c["depth"],
        subsample=c["subsample"],
        min_samples_leaf=c["leaf"],
        max_features="sqrt",
        random_state=0,
    )
    return _error(model, "cancer")


@functools.lru_cache(maxsize=3)
def _data(name: str) -> tuple[Any, Any, str]:
    from sklearn import datasets

    if name == "digits":
        X, y = datasets.load_digits(return_X_y=True)
        return X[:200], y[:200], "accuracy"
    if name == "diabetes":
        return *datasets.load_diabetes(return_X_y=True), "neg_mean_squared_error"
    X, y = datasets.load_breast_cancer(return_X_y=True)
    return X[:150], y[:150], "neg_log_loss"


def _error(model: Any, data: str) -> float:
    from sklearn.model_selection import cross_val_score

    X, y, scoring = _data(data)
    value = -float(cross_val_score(model, X, y, cv=3, scoring=scoring).mean())
    return 1 + value if scoring == "accuracy" else value


_UNIT = ("float", 0.0, 1.0, False)

FUNCTIONS: dict[str, tuple[Callable[[Config], float], dict[str, tuple[Any, ...]]]] = {
    "branin": (branin, {"x": ("float", -5.0, 10.0, False), "y": ("float", 0.0, 15.0, False)}),
    "hartmann6": (hartmann6, {f"x{i}": _UNIT for i in range(6)}),
    "rosenbrock5": (rosenbrock, {f"x{i}": ("float", -2.0, 2.0, False) for i in range(5)}),
    "mixed-ackley": (
        mixed_ackley,
        {
            "x": ("float", -5.0, 5.0, False),
            "y": ("float", -5.0, 5.0, False),
            "n": ("int", -5, 5, False),
            "m": ("int", -5, 5, False),
            "kind": ("choice", ["a", "b", "c", "d"]),
        },
    ),
    "mixed-training": (
        mixed_training,
        {
            "lr": ("float", 1e-5, 1.0, True),
            "batch": ("int", 8, 512, True),
            "width": ("int", 4, 512, True),
            "decay": ("float", 1e-7, 1e-1, True),
            "dropout": ("float", 0.0, 0.6, False),
            "activation": ("choice", ["relu", "tanh", "gelu"]),
        },
    ),
    "conditional-branches": (
        conditional_branches,
        {
            "branch": ("choice", ["wide", "log", "narrow"]),
            "a": ("float", -10.0, 10.0, False, ("branch", ["wide"])),
            "b": ("float", 1e-6, 1.0, True, ("branch", ["log"])),
            "k": ("int", 1, 20, False, ("branch", ["log"])),
            "u": (*_UNIT, ("branch", ["narrow"])),
            "v": (*_UNIT, ("branch", ["narrow"])),
        },
    ),
    "conditional-layers": (
        conditional_layers,
        {
            "layers": ("choice", [1, 2, 3]),
            "width0": ("int", 8, 512, True, ("layers", [1, 2, 3])),
            "width1": ("int", 8, 512, True, ("layers", [2, 3])),
            "width2": ("int", 8, 512, True, ("layers", [3])),
            "lr": ("float", 1e-5, 1e-1, True),
        },
    ),
    "svc-digits": (
        svc,
        {
            "kernel": ("choice", ["linear", "rbf", "poly"]),
            "C": ("float", 1e-3, 1e3, True),
            "gamma": ("float", 1e-5, 1e1, True, ("kernel", ["rbf", "poly"])),
            "degree": ("int", 2, 5, False, ("kernel", ["poly"])),
        },
    ),
    "forest-diabetes": (
        forest,
        {
            "trees": ("int", 2, 10, False),
            "depth": ("int", 1, 16, False),
            "leaf": ("int", 1, 30, True),
            "features": ("float", 0.1, 0.99, False),
            "bootstrap": ("choice", [True, False]),
        },
    ),
    "boosting-cancer": (
        boosting,
        {
            "lr": ("float", 1e-3, 1.0, True),
            "trees": ("int", 2, 20, False),
            "depth": ("int", 1, 6, False),
            "subsample": ("float", 0.3, 0.99, False),
            "leaf": ("int", 1, 30, True),
        },
    ),
}
