"""Families of related tasks for development."""

from __future__ import annotations

import math
import warnings
from typing import Any

from data import error, log_loss, squared, squared_of
from development.classifiers import clusters, digits, moons, wine
from development.regressors import diabetes, friedman, wave
from problem import Config, flt, log, logint, pick, whole

from sequences import Families, part

FAMILIES = Families()


@FAMILIES.add(
    "svc",
    {"C": log(1e-3, 1e3), "gamma": log(1e-6, 1e2)},
    moons=(moons, 150, 300, 1),
    clusters=(clusters, 150, 300, 1),
    digits=(digits, 120, 300, 1),
    wine=(wine, 60, 100, 1),
)
def _(c: Config, task: Any) -> float:
    from sklearn.svm import SVC

    return error(SVC(C=c["C"], gamma=c["gamma"]), part(*task))


@FAMILIES.add(
    "ridge",
    {"alpha": log(1e-4, 1e4), "degree": whole(1, 3), "kept": whole(2, 10)},
    diabetes=(diabetes, 100, 242, 1),
    other=(diabetes, 150, 242, 2),
    friedman=(friedman, 80, 300, 1),
    more=(friedman, 200, 300, 2),
)
def _(c: Config, task: Any) -> float:
    import numpy as np
    from sklearn.preprocessing import PolynomialFeatures

    xa, ya, xb, yb = part(*task)
    powers = PolynomialFeatures(c["degree"])
    a, b = powers.fit_transform(xa[:, : c["kept"]]), powers.transform(xb[:, : c["kept"]])
    inner = a @ a.T + c["alpha"] * np.eye(len(a))
    return squared_of(b @ (a.T @ np.linalg.solve(inner, ya)), yb)


@FAMILIES.add(
    "kernel-ridge",
    {
        "kernel": pick("rbf", "laplacian", "polynomial"),
        "alpha": log(1e-6, 1e2),
        "gamma": log(1e-5, 1e1),
        "degree": whole(1, 5, "kernel", "polynomial"),
        "coef0": flt(0.0, 3.0, "kernel", "polynomial"),
    },
    friedman=(friedman, 100, 300, 1),
    more=(friedman, 200, 300, 2),
    diabetes=(diabetes, 150, 200, 1),
    wave=(wave, 150, 300, 1),
)
def _(c: Config, task: Any) -> float:
    from sklearn.kernel_ridge import KernelRidge

    options = {k: c[k] for k in ("degree", "coef0") if k in c}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = KernelRidge(kernel=c["kernel"], alpha=c["alpha"], gamma=c["gamma"], **options)
        return math.log(squared(model, part(*task)))


@FAMILIES.add(
    "tree",
    {
        "depth": whole(1, 16),
        "leaf": logint(1, 64),
        "criterion": pick("gini", "entropy"),
        "features": flt(0.05, 1.0),
        "ccp": log(1e-5, 1e-1),
    },
    clusters=(clusters, 300, 500, 1),
    fewer=(clusters, 120, 500, 2),
    moons=(moons, 200, 400, 1),
    digits=(digits, 300, 500, 1),
)
def _(c: Config, task: Any) -> float:
    from sklearn.tree import DecisionTreeClassifier

    model = DecisionTreeClassifier(
        max_depth=c["depth"], min_samples_leaf=c["leaf"], criterion=c["criterion"], max_features=c["features"],
        ccp_alpha=c["ccp"], random_state=0,
    )  # fmt: skip
    return log_loss(model, part(*task))


@FAMILIES.add(
    "sgd",
    {
        "loss": pick("log_loss", "modified_huber"),
        "penalty": pick("l2", "l1", "elasticnet"),
        "alpha": log(1e-6, 1e-1),
        "schedule": pick("optimal", "constant", "invscaling"),
        "eta0": log(1e-4, 1.0, "schedule", "constant", "invscaling"),
        "epochs": logint(1, 30),
    },
    clusters=(clusters, 200, 400, 1),
    fewer=(clusters, 100, 400, 2),
    digits=(digits, 120, 400, 1),
    moons=(moons, 150, 400, 1),
)
def _(c: Config, task: Any) -> float:
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(
        loss=c["loss"], penalty=c["penalty"], alpha=c["alpha"], learning_rate=c["schedule"], eta0=c.get("eta0", 0.01),
        max_iter=c["epochs"], tol=None, random_state=0,
    )  # fmt: skip
    return error(model, part(*task))


@FAMILIES.add(
    "svr",
    {"C": log(1e-3, 1e2), "epsilon": log(1e-3, 1.0), "gamma": log(1e-5, 1e1)},
    diabetes=(diabetes, 100, 242, 1),
    other=(diabetes, 150, 242, 2),
    friedman=(friedman, 150, 300, 1),
    wave=(wave, 120, 300, 1),
)
def _(c: Config, task: Any) -> float:
    from sklearn.svm import SVR

    return squared(SVR(C=c["C"], epsilon=c["epsilon"], gamma=c["gamma"]), part(*task))


@FAMILIES.add(
    "training",
    {
        "lr": log(1e-5, 1.0),
        "batch": logint(8, 512),
        "decay": log(1e-6, 1e-1),
        "dropout": flt(0.0, 0.7),
        "warmup": flt(0.0, 0.3),
        "optimiser": pick("sgd", "adam", "lamb"),
    },
    small=(-2.2, 0.15, 0.0, 0.2),
    medium=(-2.6, 0.25, 0.2, 0.5),
    large=(-3.1, 0.3, 0.4, 0.9),
    huge=(-3.5, 0.4, 0.5, 1.4),
)
def _(c: Config, task: Any) -> float:
    """Return the made loss of training: a valley of the learning rate that moves with the batch and the size."""
    rate, drop, shift, size = task
    best = rate + 0.5 * math.log10(c["batch"] / 64) + {"sgd": 1.0, "adam": 0.0, "lamb": 0.4}[c["optimiser"]]
    x = math.log10(c["lr"]) - best
    wall = 4 * max(0.0, x - 0.7) ** 2
    loss = 0.5 * x * x + wall + 0.15 * (math.log10(c["decay"]) + 3 + shift) ** 2 + 3 * (c["dropout"] - drop) ** 2
    loss += 2 * (c["warmup"] - 0.1 * size) ** 2 + 0.1 * abs(math.log2(c["batch"]) - 5 - size)
    return loss + {"sgd": 0.2 * size, "adam": 0.0, "lamb": 0.3}[c["optimiser"]] + 0.05 * math.sin(9 * x)


@FAMILIES.add(
    "ackley",
    {f"x{i}": flt(-5, 5) for i in range(4)},
    a=(0.4, 1.0),
    b=(0.9, 1.2),
    c=(-0.2, 0.8),
    d=(1.5, 1.1),
)
def _(c: Config, task: Any) -> float:
    shift, width = task
    x = [(c[f"x{i}"] - shift - 0.8 * i + 1) / width for i in range(4)]
    a = -20 * math.exp(-0.2 * math.sqrt(sum(v * v for v in x) / 4))
    return a - math.exp(sum(math.cos(2 * math.pi * v) for v in x) / 4)


@FAMILIES.add(
    "branin",
    {"x": flt(-5, 10), "y": flt(0, 15)},
    a=(1.0, 5.1, 6.0, 10.0),
    b=(1.2, 5.6, 5.2, 8.0),
    c=(0.8, 4.6, 6.6, 12.0),
    d=(1.0, 6.2, 6.4, 14.0),
)
def _(c: Config, task: Any) -> float:
    a, b, r, s = task
    x, y = c["x"], c["y"]
    value = a * (y - b / (4 * math.pi**2) * x * x + 5 / math.pi * x - r) ** 2
    return math.log(value + s * (1 - 1 / (8 * math.pi)) * math.cos(x) + s + 0.5)
