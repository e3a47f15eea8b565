"""Classifiers on breast cancer, irises, pixels of photographs, made Gaussians and two surveys."""

from __future__ import annotations

from typing import Any

from data import error, log_loss, split
from problem import Collection, Config, flt, log, logint, pick, whole

PROBLEMS = Collection()


def cancer() -> tuple[Any, Any]:
    """Return measurements of tumours."""
    from sklearn.datasets import load_breast_cancer

    return load_breast_cancer(return_X_y=True)


def iris() -> tuple[Any, Any]:
    """Return irises of two kinds that overlap, with four columns of noise."""
    import numpy as np
    from sklearn.datasets import load_iris

    x, y = load_iris(return_X_y=True)
    x, y = x[y > 0], y[y > 0]
    return np.hstack([x, np.random.default_rng(1).normal(size=(len(x), 4))]), y


def pixels() -> tuple[Any, Any]:
    """Return patches of two photographs, to be distinguished."""
    import numpy as np
    from sklearn.datasets import load_sample_image

    draw = np.random.default_rng(2)
    rows, labels = [], []
    for label, name in enumerate(("china.jpg", "flower.jpg")):
        image = load_sample_image(name).mean(2) / 255
        for _ in range(400):
            i, j = draw.integers(0, image.shape[0] - 6), draw.integers(0, image.shape[1] - 6)
            patch = image[i : i + 6, j : j + 6]
            rows.append((patch - patch.mean()).ravel())
            labels.append(label)
    return np.array(rows), np.array(labels)


def shells() -> tuple[Any, Any]:
    """Return three nested shells in six dimensions."""
    from sklearn.datasets import make_gaussian_quantiles

    return make_gaussian_quantiles(n_samples=700, n_features=6, n_classes=3, random_state=9)


def affairs() -> tuple[Any, Any]:
    """Return a survey of marriages."""
    import statsmodels.api as sm

    table = sm.datasets.fair.load_pandas().data
    return table.drop(columns="affairs").to_numpy(), (table["affairs"] > 0).to_numpy().astype(int)


def voters() -> tuple[Any, Any]:
    """Return a survey of voters, by party in three groups."""
    import numpy as np
    import statsmodels.api as sm

    table = sm.datasets.anes96.load_pandas().data
    return table.drop(columns=["PID", "vote"]).to_numpy(), np.digitize(table["PID"].to_numpy(), [2, 5])


@PROBLEMS.add(
    "nusvc-cancer",
    {
        "nu": flt(0.01, 0.6),
        "gamma": log(1e-5, 1e1),
        "kernel": pick("rbf", "poly", "sigmoid"),
        "degree": whole(2, 6, "kernel", "poly"),
        "coef0": flt(-2, 2, "kernel", "poly", "sigmoid"),
        "components": whole(2, 30),
    },
)
def nusvc_cancer(c: Config) -> float:
    """Return the error of a nu support vector machine on principal components."""
    import numpy as np
    from sklearn.svm import NuSVC

    xa, ya, xb, yb = split(cancer, 180, 300)
    _, _, axes = np.linalg.svd(xa, full_matrices=False)
    axes = axes[: c["components"]].T
    options = {k: c[k] for k in ("degree", "coef0") if k in c}
    model = NuSVC(nu=c["nu"], gamma=c["gamma"], kernel=c["kernel"], max_iter=5000, **options)
    return error(model, (xa @ axes, ya, xb @ axes, yb))


@PROBLEMS.add(
    "histogram-affairs",
    {
        "lr": log(5e-3, 1.0),
        "rounds": logint(2, 20),
        "leaves": logint(2, 40),
        "least": logint(2, 100),
        "l2": log(1e-4, 1e2),
        "bins": logint(3, 100),
    },
)
def histogram_affairs(c: Config) -> float:
    """Return the log loss of gradient boosting on histograms."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        learning_rate=c["lr"], max_iter=c["rounds"], max_leaf_nodes=c["leaves"], min_samples_leaf=c["least"],
        l2_regularization=c["l2"], max_bins=c["bins"], random_state=0,
    )  # fmt: skip
    return log_loss(model, split(affairs, 400, 1000))


@PROBLEMS.add(
    "xgboost-shells",
    {
        "booster": pick("gbtree", "dart"),
        "eta": log(1e-2, 1.0),
        "rounds": logint(2, 20),
        "grow": pick("depthwise", "lossguide"),
        "depth": whole(1, 7, "grow", "depthwise"),
        "leaves": logint(2, 64, "grow", "lossguide"),
        "alpha": log(1e-4, 1e1),
        "lambda": log(1e-3, 1e2),
        "drop": flt(0.0, 0.6, "booster", "dart"),
    },
)
def xgboost_shells(c: Config) -> float:
    """Return the log loss of XGBoost with trees that may be dropped."""
    from xgboost import XGBClassifier

    model = XGBClassifier(
        booster=c["booster"], learning_rate=c["eta"], n_estimators=c["rounds"], grow_policy=c["grow"],
        tree_method="hist", max_depth=c.get("depth", 0), max_leaves=c.get("leaves", 0), reg_alpha=c["alpha"],
        reg_lambda=c["lambda"], rate_drop=c.get("drop") if c["booster"] == "dart" else None, n_jobs=1, random_state=0,
    )  # fmt: skip
    return log_loss(model, split(shells, 250, 400))


@PROBLEMS.add(
    "quadratic-voters", {"reg": flt(0.0, 1.0), "power": flt(0.2, 3.0), "kept": whole(1, 8), "tol": log(1e-6, 1)}
)
def quadratic_voters(c: Config) -> float:
    """Return the log loss of quadratic discriminant analysis."""
    import warnings

    import numpy as np
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

    xa, ya, xb, yb = split(voters, 300, 500)

    def bent(x: Any) -> Any:
        return np.sign(x[:, : c["kept"]]) * np.abs(x[:, : c["kept"]]) ** c["power"]

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model = QuadraticDiscriminantAnalysis(reg_param=c["reg"], tol=c["tol"])
            return log_loss(model, (bent(xa), ya, bent(xb), yb))
        except (ValueError, np.linalg.LinAlgError):  # a singular covariance
            return 14.0


@PROBLEMS.add(
    "adaboost-cancer",
    {
        "trees": logint(1, 20),
        "lr": log(1e-2, 5.0),
        "depth": whole(1, 6),
        "leaf": logint(1, 40),
        "features": flt(0.05, 1.0),
        "balance": pick("none", "balanced"),
    },
)
def adaboost_cancer(c: Config) -> float:
    """Return the log loss of boosted trees by reweighting."""
    from sklearn.ensemble import AdaBoostClassifier
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(
        max_depth=c["depth"], min_samples_leaf=c["leaf"], max_features=c["features"],
        class_weight=None if c["balance"] == "none" else "balanced", random_state=0,
    )  # fmt: skip
    return log_loss(
        AdaBoostClassifier(tree, n_estimators=c["trees"], learning_rate=c["lr"], random_state=0),
        split(cancer, 200, 300),
    )


@PROBLEMS.add(
    "labels-shells", {"gamma": log(1e-3, 1e2), "alpha": flt(0.01, 0.99), "steps": logint(1, 40), "known": pick(8, 12)}
)
def labels_shells(c: Config) -> float:
    """Return the error of labels spread from few rows to their neighbours."""
    import warnings

    import numpy as np
    from sklearn.semi_supervised import LabelSpreading

    xa, ya, xb, yb = split(shells, 200, 400)
    y = np.where(np.arange(len(ya)) % 20 < c["known"], ya, -1)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return error(LabelSpreading(gamma=c["gamma"], alpha=c["alpha"], max_iter=c["steps"]), (xa, y, xb, yb))


@PROBLEMS.add(
    "perceptron-pixels",
    {
        "lr": log(1e-4, 3.0),
        "hidden": logint(2, 48),
        "epochs": logint(5, 120),
        "decay": log(1e-6, 1.0),
        "optimizer": pick("plain", "nesterov", "adam"),
        "momentum": flt(0.0, 0.99, "optimizer", "nesterov"),
        "beta2": flt(0.8, 0.9999, "optimizer", "adam"),
        "start": log(1e-2, 3.0),
    },
)
def perceptron_pixels(c: Config) -> float:
    """Return the log loss of a perceptron with one hidden layer and a choice of three optimisers."""
    import numpy as np

    xa, ya, xb, yb = split(pixels, 200, 400)
    draw = np.random.default_rng(0)
    parts = [draw.normal(size=(36, c["hidden"])) * c["start"] / 6, draw.normal(size=c["hidden"]) * c["start"]]
    first, second = [np.zeros_like(p) for p in parts], [np.zeros_like(p) for p in parts]
    with np.errstate(all="ignore"):
        for t in range(1, c["epochs"] + 1):
            h = np.maximum(xa @ parts[0], 0)
            residual = (1 / (1 + np.exp(-(h @ parts[1]))) - ya) / len(ya)
            grads = [xa.T @ (residual[:, None] * parts[1] * (h > 0)), h.T @ residual]
            for k in range(2):
                g = grads[k] + c["decay"] * parts[k]
                if c["optimizer"] == "adam":
                    first[k] = 0.9 * first[k] + 0.1 * g
                    second[k] = c["beta2"] * second[k] + (1 - c["beta2"]) * g * g
                    size = np.sqrt(second[k] / (1 - c["beta2"] ** t)) + 1e-8
                    parts[k] = parts[k] - c["lr"] * first[k] / (1 - 0.9**t) / size
                else:
                    first[k] = c.get("momentum", 0.0) * first[k] + g
                    parts[k] = parts[k] - c["lr"] * (g + c.get("momentum", 0.0) * first[k])
        chance = np.clip(1 / (1 + np.exp(-(np.maximum(xb @ parts[0], 0) @ parts[1]))), 1e-6, 1 - 1e-6)
        value = float(-np.where(yb == 1, np.log(chance), np.log(1 - chance)).mean())
    return value if np.isfinite(value) else 14.0


@PROBLEMS.add(
    "bagging-iris",
    {
        "trees": logint(1, 8),
        "rows": flt(0.1, 1.0),
        "columns": flt(0.15, 1.0),
        "depth": whole(1, 8),
        "leaf": whole(1, 15),
    },
)
def bagging_iris(c: Config) -> float:
    """Return the log loss of bagged trees."""
    from sklearn.ensemble import BaggingClassifier
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=c["depth"], min_samples_leaf=c["leaf"], random_state=0)
    model = BaggingClassifier(tree, c["trees"], max_samples=c["rows"], max_features=c["columns"], random_state=0)
    return log_loss(model, split(iris, 50, 50))
