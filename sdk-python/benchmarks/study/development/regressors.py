"""Regressors of scikit-learn and XGBoost on the diabetes data and two made functions."""

from __future__ import annotations

from typing import Any

from data import split, squared, squared_of
from problem import Collection, Config, flt, log, logint, pick, whole

PROBLEMS = Collection()


def diabetes() -> tuple[Any, Any]:
    """Return the progress of a disease."""
    from sklearn.datasets import load_diabetes

    return load_diabetes(return_X_y=True)


def friedman() -> tuple[Any, Any]:
    """Return Friedman's first function with noise."""
    from sklearn.datasets import make_friedman1

    return make_friedman1(700, 10, noise=1.0, random_state=7)


def wave() -> tuple[Any, Any]:
    """Return a noisy wave whose frequency grows."""
    import numpy as np

    draw = np.random.default_rng(11)
    x = draw.uniform(0, 1, (500, 1))
    return x, np.sin(18 * x[:, 0] ** 2) + 0.4 * x[:, 0] + draw.normal(scale=0.25, size=500)


@PROBLEMS.add("ridge-diabetes", {"alpha": log(1e-4, 1e4), "degree": whole(1, 3), "kept": whole(2, 10)})
def ridge_diabetes(c: Config) -> float:
    """Return the error of a ridge regression on powers of the first columns."""
    import numpy as np
    from sklearn.preprocessing import PolynomialFeatures

    xa, ya, xb, yb = split(diabetes, 200, 242)
    powers = PolynomialFeatures(c["degree"])
    a, b = powers.fit_transform(xa[:, : c["kept"]]), powers.transform(xb[:, : c["kept"]])
    inner = a @ a.T + c["alpha"] * np.eye(len(a))
    return squared_of(b @ (a.T @ np.linalg.solve(inner, ya)), yb)


@PROBLEMS.add("elastic-diabetes", {"alpha": log(1e-4, 1e1), "l1": flt(0.0, 1.0), "steps": logint(1, 100)})
def elastic_diabetes(c: Config) -> float:
    """Return the error of an elastic net on all products of two columns."""
    import warnings

    from sklearn.linear_model import ElasticNet
    from sklearn.preprocessing import PolynomialFeatures

    xa, ya, xb, yb = split(diabetes, 200, 242)
    powers = PolynomialFeatures(2, include_bias=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ElasticNet(alpha=c["alpha"], l1_ratio=c["l1"], max_iter=c["steps"], tol=1e-3)
        return squared(model, (powers.fit_transform(xa), ya, powers.transform(xb), yb))


@PROBLEMS.add(
    "kernel-ridge-friedman",
    {
        "kernel": pick("rbf", "laplacian", "polynomial"),
        "alpha": log(1e-6, 1e2),
        "gamma": log(1e-5, 1e1),
        "degree": whole(1, 5, "kernel", "polynomial"),
        "coef0": flt(0.0, 3.0, "kernel", "polynomial"),
    },
    kinds=("conditional",),
)
def kernel_ridge_friedman(c: Config) -> float:
    """Return the error of kernel ridge regression."""
    import warnings

    from sklearn.kernel_ridge import KernelRidge

    model = KernelRidge(
        alpha=c["alpha"], kernel=c["kernel"], gamma=c["gamma"], degree=c.get("degree", 3), coef0=c.get("coef0", 1)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return squared(model, split(friedman, 150, 400))


@PROBLEMS.add("svr-diabetes", {"C": log(1e-3, 1e2), "epsilon": log(1e-3, 1.0), "gamma": log(1e-5, 1e1)})
def svr_diabetes(c: Config) -> float:
    """Return the error of support vector regression."""
    from sklearn.svm import SVR

    model = SVR(C=c["C"], epsilon=c["epsilon"], gamma=c["gamma"])
    return squared(model, split(diabetes, 200, 242))


@PROBLEMS.add(
    "process-wave",
    {
        "length": log(1e-3, 1e1),
        "noise": log(1e-6, 1e1),
        "mix": flt(0.0, 1.0),
        "slope": log(1e-4, 1e2),
        "kernel": pick("rbf", "matern", "exponential"),
    },
)
def process_wave(c: Config) -> float:
    """Return the error of a Gaussian process with a given kernel."""
    import numpy as np

    xa, ya, xb, yb = split(wave, 80, 400, scale=False)

    def kernel(p: Any, q: Any) -> Any:
        d = np.abs(p - q.T) / c["length"]
        if c["kernel"] == "rbf":
            k = np.exp(-d * d / 2)
        elif c["kernel"] == "matern":
            k = (1 + np.sqrt(3) * d) * np.exp(-np.sqrt(3) * d)
        else:
            k = np.exp(-d)
        return (1 - c["mix"]) * k + c["mix"] * c["slope"] * (p @ q.T)

    weights = np.linalg.solve(kernel(xa, xa) + (c["noise"] + 1e-9) * np.eye(len(xa)), ya)
    return squared_of(kernel(xb, xa) @ weights, yb)


@PROBLEMS.add(
    "trees-diabetes",
    {
        "trees": logint(2, 32),
        "depth": whole(1, 16),
        "leaf": logint(1, 40),
        "features": flt(0.1, 1.0),
        "bootstrap": pick(True, False),
    },
)
def trees_diabetes(c: Config) -> float:
    """Return the error of extremely randomised trees."""
    from sklearn.ensemble import ExtraTreesRegressor

    model = ExtraTreesRegressor(
        c["trees"], max_depth=c["depth"], min_samples_leaf=c["leaf"], max_features=c["features"],
        bootstrap=c["bootstrap"], random_state=0,
    )  # fmt: skip
    return squared(model, split(diabetes, 200, 242))


@PROBLEMS.add(
    "boosting-friedman",
    {
        "loss": pick("squared_error", "absolute_error", "huber"),
        "alpha": flt(0.5, 0.99, "loss", "huber"),
        "lr": log(1e-3, 1.0),
        "trees": logint(2, 40),
        "depth": whole(1, 6),
        "rows": flt(0.3, 1.0),
        "leaf": logint(1, 30),
    },
)
def boosting_friedman(c: Config) -> float:
    """Return the error of gradient boosting."""
    from sklearn.ensemble import GradientBoostingRegressor

    model = GradientBoostingRegressor(
        loss=c["loss"], alpha=c.get("alpha", 0.9), learning_rate=c["lr"], n_estimators=c["trees"], max_depth=c["depth"],
        subsample=c["rows"], min_samples_leaf=c["leaf"], random_state=0,
    )  # fmt: skip
    return squared(model, split(friedman, 150, 400))


@PROBLEMS.add(
    "xgboost-diabetes",
    {
        "eta": log(1e-3, 1.0),
        "rounds": logint(2, 60),
        "depth": whole(1, 8),
        "child": log(0.5, 50),
        "rows": flt(0.3, 1.0),
        "columns": flt(0.2, 1.0),
        "lambda": log(1e-3, 1e3),
        "gamma": log(1e-4, 1e1),
    },
)
def xgboost_diabetes(c: Config) -> float:
    """Return the error of XGBoost."""
    from xgboost import XGBRegressor

    model = XGBRegressor(
        n_estimators=c["rounds"], learning_rate=c["eta"], max_depth=c["depth"], min_child_weight=c["child"],
        subsample=c["rows"], colsample_bytree=c["columns"], reg_lambda=c["lambda"], gamma=c["gamma"], n_jobs=1,
        random_state=0,
    )  # fmt: skip
    return squared(model, split(diabetes, 200, 242))


@PROBLEMS.add(
    "neighbours-friedman",
    {"k": logint(1, 60), "p": flt(1.0, 4.0), "weights": pick("uniform", "distance")}
    | {f"w{i}": flt(0.0, 1.0) for i in range(6)},
)
def neighbours_friedman(c: Config) -> float:
    """Return the error of nearest neighbours with a weight for each of six columns; the last is noise."""
    import numpy as np
    from sklearn.neighbors import KNeighborsRegressor

    xa, ya, xb, yb = split(friedman, 200, 300)
    w = np.array([c[f"w{i}"] for i in range(6)])
    model = KNeighborsRegressor(c["k"], weights=c["weights"], p=c["p"], algorithm="brute")
    return squared(model, (xa[:, :6] * w, ya, xb[:, :6] * w, yb))


@PROBLEMS.add(
    "mlp-wave",
    {
        "lr": log(1e-4, 1.0),
        "width": logint(2, 64),
        "steps": logint(10, 200),
        "decay": log(1e-7, 1e-1),
        "spread": log(0.1, 30.0),
        "momentum": flt(0.0, 0.99),
    },
)
def mlp_wave(c: Config) -> float:
    """Return the error of a perceptron with one hidden layer trained on all rows at once."""
    import numpy as np

    xa, ya, xb, yb = split(wave, 60, 400, scale=False)
    draw = np.random.default_rng(0)
    w, b = draw.normal(size=c["width"]) * c["spread"], draw.normal(size=c["width"]) * c["spread"] / 2
    v = draw.normal(size=c["width"]) / np.sqrt(c["width"])
    parts = [w, b, v]
    speed = [np.zeros_like(p) for p in parts]
    with np.errstate(all="ignore"):
        for _ in range(c["steps"]):
            h = np.tanh(xa * parts[0] + parts[1])
            residual = (h @ parts[2] - ya) / len(ya)
            inner = residual[:, None] * parts[2] * (1 - h * h)
            grads = [(inner * xa).sum(0), inner.sum(0), h.T @ residual]
            for k in range(3):
                speed[k] = c["momentum"] * speed[k] - c["lr"] * (grads[k] + c["decay"] * parts[k])
                parts[k] = parts[k] + speed[k]
        return squared_of(np.tanh(xb * parts[0] + parts[1]) @ parts[2], yb)
