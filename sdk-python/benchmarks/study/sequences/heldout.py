"""Families of related tasks that no sampler was given before the comparison."""

from __future__ import annotations

import math
import warnings
from typing import Any

from data import error, log_loss, squared
from heldout.classifiers import cancer, iris, pixels, shells
from heldout.regressors import friedman3, roll, sparse
from problem import Config, flt, log, logint, pick, whole

from sequences import Families, part

FAMILIES = Families()


@FAMILIES.add(
    "nusvc",
    {"nu": flt(0.01, 0.6), "gamma": log(1e-5, 1e1), "kernel": pick("rbf", "sigmoid"), "tol": log(1e-4, 1e-1)},
    cancer=(cancer, 100, 300, 1),
    fewer=(cancer, 50, 300, 2),
    pixels=(pixels, 120, 300, 1),
    shells=(shells, 150, 300, 1),
)
def _(c: Config, task: Any) -> float:
    from sklearn.svm import NuSVC

    return error(NuSVC(nu=c["nu"], gamma=c["gamma"], kernel=c["kernel"], tol=c["tol"]), part(*task))


@FAMILIES.add(
    "neighbours",
    {"k": logint(1, 80), "p": flt(1, 5), "weights": pick("uniform", "distance"), "leaf": logint(5, 100)},
    cancer=(cancer, 150, 300, 1),
    pixels=(pixels, 200, 300, 1),
    shells=(shells, 200, 300, 1),
    more=(shells, 400, 300, 2),
)
def _(c: Config, task: Any) -> float:
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(c["k"], p=c["p"], weights=c["weights"], leaf_size=c["leaf"])
    return log_loss(model, part(*task))


@FAMILIES.add(
    "elastic",
    {"alpha": log(1e-5, 1e1), "l1": flt(0.0, 1.0), "steps": logint(1, 200), "selection": pick("cyclic", "random")},
    sparse=(sparse, 80, 200, 1),
    fewer=(sparse, 40, 200, 2),
    friedman=(friedman3, 100, 300, 1),
    roll=(roll, 100, 300, 1),
)
def _(c: Config, task: Any) -> float:
    from sklearn.linear_model import ElasticNet

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ElasticNet(
            alpha=c["alpha"], l1_ratio=c["l1"], max_iter=c["steps"], selection=c["selection"], random_state=0
        )
        return squared(model, part(*task))


@FAMILIES.add(
    "extra-tree",
    {
        "depth": whole(1, 20),
        "leaf": logint(1, 50),
        "split": logint(2, 60),
        "features": flt(0.1, 1.0),
        "criterion": pick("squared_error", "friedman_mse"),
    },
    friedman=(friedman3, 300, 300, 1),
    fewer=(friedman3, 120, 300, 2),
    roll=(roll, 200, 300, 1),
    sparse=(sparse, 100, 200, 1),
)
def _(c: Config, task: Any) -> float:
    from sklearn.tree import ExtraTreeRegressor

    model = ExtraTreeRegressor(
        max_depth=c["depth"], min_samples_leaf=c["leaf"], min_samples_split=c["split"], max_features=c["features"],
        criterion=c["criterion"], random_state=0,
    )  # fmt: skip
    return squared(model, part(*task))


@FAMILIES.add(
    "perceptron",
    {
        "lr": log(1e-4, 1.0),
        "width": logint(2, 32),
        "alpha": log(1e-6, 1.0),
        "momentum": flt(0.0, 0.98),
        "activation": pick("relu", "tanh", "logistic"),
    },
    cancer=(cancer, 80, 300, 1),
    iris=(iris, 50, 40, 1),
    shells=(shells, 100, 300, 1),
    pixels=(pixels, 100, 300, 1),
)
def _(c: Config, task: Any) -> float:
    from sklearn.neural_network import MLPClassifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MLPClassifier(
            (c["width"],), activation=c["activation"], solver="sgd", alpha=c["alpha"], learning_rate_init=c["lr"],
            momentum=c["momentum"], max_iter=8, batch_size=32, random_state=0,
        )  # fmt: skip
        return log_loss(model, part(*task))


@FAMILIES.add(
    "bayesian-ridge",
    {"a1": log(1e-8, 1e3), "a2": log(1e-8, 1e3), "l1": log(1e-8, 1e3), "l2": log(1e-8, 1e3), "steps": logint(1, 50)},
    sparse=(sparse, 60, 200, 1),
    fewer=(sparse, 45, 200, 2),
    friedman=(friedman3, 60, 300, 1),
    roll=(roll, 60, 300, 1),
)
def _(c: Config, task: Any) -> float:
    from sklearn.linear_model import BayesianRidge

    model = BayesianRidge(max_iter=c["steps"], alpha_1=c["a1"], alpha_2=c["a2"], lambda_1=c["l1"], lambda_2=c["l2"])
    return squared(model, part(*task))


@FAMILIES.add(
    "levy",
    {f"x{i}": flt(-10, 10) for i in range(5)},
    a=(0.5, 1.0),
    b=(1.2, 0.9),
    c=(-0.4, 1.15),
    d=(2.5, 1.0),
)
def _(c: Config, task: Any) -> float:
    shift, width = task
    w = [1 + (c[f"x{i}"] - 1 - shift - 0.6 * i) / 4 / width for i in range(5)]
    value = math.sin(math.pi * w[0]) ** 2
    value += sum((v - 1) ** 2 * (1 + 10 * math.sin(math.pi * v + 1) ** 2) for v in w[:-1])
    return value + (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)


@FAMILIES.add(
    "service",
    {
        "workers": logint(1, 128),
        "batch": logint(1, 256),
        "wait": log(1e-4, 1.0),
        "cache": flt(0.0, 0.9),
        "codec": pick("none", "fast", "small"),
    },
    day=(40.0, 0.01, 0.3),
    night=(8.0, 0.01, 0.3),
    heavy=(40.0, 0.04, 0.2),
    cached=(60.0, 0.02, 0.6),
)
def _(c: Config, task: Any) -> float:
    """Return the logarithm of a made service's cost: delay, processors and memory."""
    rate, work, hits = task
    codec = {"none": (1.0, 1.5), "fast": (1.1, 1.1), "small": (1.5, 0.9)}[c["codec"]]
    missed = 1 - hits * (1 - math.exp(-5 * c["cache"]))
    served = c["workers"] * c["batch"] / (work * codec[0] * (2 + c["batch"]) + 1e-3 * c["workers"])
    load = rate * missed / served
    delay = c["wait"] * (1 - math.exp(-rate * c["wait"])) + c["batch"] / rate * 0.02
    delay += work * codec[1] * (1 + (load / (1 - load) if load < 0.95 else 20 * load))
    return math.log(30 * delay + 0.01 * c["workers"] + 0.4 * c["cache"] ** 2 + 0.02 * math.log(c["batch"]))
