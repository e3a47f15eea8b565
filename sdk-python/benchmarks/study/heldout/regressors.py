"""Regressors on exercises, sunspots, temperatures of the sea, school districts and made functions."""

from __future__ import annotations

from typing import Any

from data import split, squared, squared_of
from problem import Collection, Config, flt, log, logint, pick, whole

PROBLEMS = Collection()


def _lagged(series: Any, lags: int) -> tuple[Any, Any]:
    import numpy as np

    series = np.asarray(series, float)
    rows = [series[i : i + lags] for i in range(len(series) - lags)]
    return np.array(rows), series[lags:]


def sunspots() -> tuple[Any, Any]:
    """Return the sunspots of a year by those of the twelve years before."""
    import statsmodels.api as sm

    return _lagged(sm.datasets.sunspots.load_pandas().data["SUNACTIVITY"], 12)


def sea() -> tuple[Any, Any]:
    """Return a month's temperature of the sea by those of the fourteen months before."""
    import statsmodels.api as sm

    return _lagged(sm.datasets.elnino.load_pandas().data.iloc[:, 1:].to_numpy().ravel(), 14)


def schools() -> tuple[Any, Any]:
    """Return the share of pupils above the median in mathematics."""
    import statsmodels.api as sm

    table = sm.datasets.star98.load_pandas().data
    share = table["NABOVE"] / (table["NABOVE"] + table["NBELOW"])
    return table.drop(columns=["NABOVE", "NBELOW"]).to_numpy(), share.to_numpy()


def friedman3() -> tuple[Any, Any]:
    """Return Friedman's third function with noise."""
    from sklearn.datasets import make_friedman3

    return make_friedman3(700, noise=0.15, random_state=4)


def roll() -> tuple[Any, Any]:
    """Return the position on a rolled sheet."""
    from sklearn.datasets import make_swiss_roll

    x, y = make_swiss_roll(800, noise=0.6, random_state=6)
    return x, y


def sparse() -> tuple[Any, Any]:
    """Return a line in forty columns; eight matter."""
    from sklearn.datasets import make_regression

    return make_regression(500, 40, n_informative=8, effective_rank=15, noise=2.0, random_state=8)


@PROBLEMS.add(
    "features-roll",
    {"gamma": log(1e-4, 1e2), "count": logint(4, 256), "alpha": log(1e-8, 1e2), "map": pick("fourier", "nystroem")},
)
def features_roll(c: Config) -> float:
    """Return the error of a ridge regression on random features."""
    import warnings

    import numpy as np
    from sklearn.kernel_approximation import Nystroem, RBFSampler

    xa, ya, xb, yb = split(roll, 260, 400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        maker = RBFSampler if c["map"] == "fourier" else Nystroem
        features = maker(gamma=c["gamma"], n_components=c["count"], random_state=0).fit(xa)
        a, b = features.transform(xa), features.transform(xb)
    return squared_of(b @ np.linalg.solve(a.T @ a + c["alpha"] * np.eye(a.shape[1]), a.T @ ya), yb)


@PROBLEMS.add(
    "lasso-sparse", {"alpha": log(1e-4, 1e1), "power": flt(0.0, 3.0), "tol": log(1e-5, 1e-1), "ridge": log(1e-4, 1e2)}
)
def lasso_sparse(c: Config) -> float:
    """Return the error of an adaptive lasso, whose penalties follow from a ridge regression."""
    import numpy as np
    from sklearn.linear_model import Lasso

    xa, ya, xb, yb = split(sparse, 150, 300)
    first = np.linalg.solve(xa.T @ xa + c["ridge"] * np.eye(xa.shape[1]), xa.T @ ya)
    weights = np.abs(first) ** c["power"] + 1e-6
    return squared(Lasso(alpha=c["alpha"], tol=c["tol"], max_iter=300), (xa * weights, ya, xb * weights, yb))


@PROBLEMS.add(
    "partial-schools",
    {"parts": whole(1, 12), "power": flt(0.3, 2.0), "steps": logint(1, 100), "scale": pick(True, False)},
)
def partial_schools(c: Config) -> float:
    """Return the error of partial least squares."""
    import warnings

    import numpy as np
    from sklearn.cross_decomposition import PLSRegression

    xa, ya, xb, yb = split(schools, 150, 150)
    parts = tuple(np.sign(x) * np.abs(x) ** c["power"] for x in (xa, xb))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return squared(PLSRegression(c["parts"], scale=c["scale"], max_iter=c["steps"]), (parts[0], ya, parts[1], yb))


@PROBLEMS.add(
    "huber-sea", {"epsilon": flt(1.0, 3.0), "alpha": log(1e-6, 1e3), "lags": whole(1, 14), "steps": logint(5, 100)}
)
def huber_sea(c: Config) -> float:
    """Return the error of a robust linear regression on the last months."""
    import warnings

    from sklearn.linear_model import HuberRegressor

    xa, ya, xb, yb = split(sea, 250, 400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = HuberRegressor(epsilon=c["epsilon"], alpha=c["alpha"], max_iter=c["steps"])
            return squared(model, (xa[:, -c["lags"] :], ya, xb[:, -c["lags"] :], yb))
        except ValueError:  # it did not converge
            return 1.0


@PROBLEMS.add(
    "lightgbm-schools",
    {
        "lr": log(1e-2, 1.0),
        "rounds": logint(2, 40),
        "leaves": logint(2, 32),
        "least": logint(1, 40),
        "objective": pick("regression", "huber", "quantile"),
        "alpha": flt(0.1, 0.9, "objective", "huber", "quantile"),
        "linear": pick(True, False),
        "bins": logint(8, 255),
    },
)
def lightgbm_schools(c: Config) -> float:
    """Return the error of LightGBM with one of three losses."""
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(
        n_estimators=c["rounds"], learning_rate=c["lr"], num_leaves=c["leaves"], min_child_samples=c["least"],
        objective=c["objective"], alpha=c.get("alpha", 0.5), linear_tree=c["linear"] and c["objective"] == "regression",
        max_bin=c["bins"], n_jobs=1, random_state=0, verbose=-1,
    )  # fmt: skip
    return squared(model, split(schools, 150, 150))


@PROBLEMS.add(
    "process-friedman3",
    {f"length{i}": log(1e-2, 1e2) for i in range(4)} | {"noise": log(1e-5, 1e1), "order": pick(0.5, 1.5, 2.5)},
)
def process_friedman3(c: Config) -> float:
    """Return the negative log likelihood of a Gaussian process with a length for each column."""
    import numpy as np

    xa, ya, xb, yb = split(friedman3, 70, 300)
    lengths = np.array([c[f"length{i}"] for i in range(4)])

    def kernel(p: Any, q: Any) -> Any:
        d = np.sqrt((((p[:, None] - q[None]) / lengths) ** 2).sum(2) * 2 * c["order"])
        bend = {0.5: 1.0, 1.5: 1 + d, 2.5: 1 + d + d * d / 3}[c["order"]]
        return bend * np.exp(-d)

    inverse = np.linalg.inv(kernel(xa, xa) + (c["noise"] + 1e-8) * np.eye(len(xa)))
    cross = kernel(xb, xa)
    variance = np.maximum(1 + c["noise"] - ((cross @ inverse) * cross).sum(1), 1e-9)
    return float((0.5 * np.log(variance) + 0.5 * (cross @ inverse @ ya - yb) ** 2 / variance).mean())


@PROBLEMS.add(
    "smooth-sunspots",
    {
        "level": flt(0.01, 0.99),
        "trend": flt(0.0, 0.99),
        "season": flt(0.0, 0.99),
        "period": whole(2, 24),
        "damping": flt(0.5, 1.0),
    },
)
def smooth_sunspots(c: Config) -> float:
    """Return the error of forecasts one year ahead by exponential smoothing with a season."""
    import numpy as np
    import statsmodels.api as sm

    series = np.asarray(sm.datasets.sunspots.load_pandas().data["SUNACTIVITY"], float)[-160:] / 50
    level, trend, season, total = series[0], 0.0, [0.0] * c["period"], 0.0
    for t, y in enumerate(series[1:]):
        k = t % c["period"]
        forecast = level + c["damping"] * trend + season[k]
        total += (y - forecast) ** 2
        before = level
        level = c["level"] * (y - season[k]) + (1 - c["level"]) * (level + c["damping"] * trend)
        trend = c["trend"] * (level - before) + (1 - c["trend"]) * c["damping"] * trend
        season[k] = c["season"] * (y - level) + (1 - c["season"]) * season[k]
    return float(min(total / len(series), 1e6))


@PROBLEMS.add(
    "tree-sunspots",
    {
        "depth": whole(1, 12),
        "leaf": logint(1, 40),
        "lags": whole(1, 12),
        "impurity": log(1e-5, 1e-1),
        "criterion": pick("squared_error", "absolute_error", "friedman_mse"),
    },
)
def tree_sunspots(c: Config) -> float:
    """Return the error of a regression tree on the last years."""
    import warnings

    from sklearn.tree import DecisionTreeRegressor

    xa, ya, xb, yb = split(sunspots, 140, 150)
    model = DecisionTreeRegressor(
        max_depth=c["depth"], min_samples_leaf=c["leaf"], min_impurity_decrease=c["impurity"], criterion=c["criterion"],
        random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return squared(model, (xa[:, -c["lags"] :], ya, xb[:, -c["lags"] :], yb))
