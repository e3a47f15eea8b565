"""Classifiers of scikit-learn and LightGBM on digits, wine, moons and made clusters."""

from __future__ import annotations

from typing import Any

from data import error, log_loss, split
from problem import Collection, Config, flt, log, logint, pick, whole

PROBLEMS = Collection()


def digits() -> tuple[Any, Any]:
    """Return images of digits."""
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def wine() -> tuple[Any, Any]:
    """Return measurements of wines of three makers."""
    from sklearn.datasets import load_wine

    return load_wine(return_X_y=True)


def moons() -> tuple[Any, Any]:
    """Return two noisy half circles with six columns of noise."""
    import numpy as np
    from sklearn.datasets import make_moons

    x, y = make_moons(600, noise=0.3, random_state=3)
    return np.hstack([x, np.random.default_rng(3).normal(size=(600, 6))]), y


def clusters() -> tuple[Any, Any]:
    """Return four classes in twenty columns, with wrong labels."""
    from sklearn.datasets import make_classification

    return make_classification(
        900, 20, n_informative=6, n_redundant=4, n_classes=4, flip_y=0.05, class_sep=0.9, random_state=5
    )


@PROBLEMS.add(
    "svc-digits",
    {
        "kernel": pick("linear", "rbf", "poly", "sigmoid"),
        "C": log(1e-3, 1e3),
        "gamma": log(1e-6, 1e1, "kernel", "rbf", "poly", "sigmoid"),
        "degree": whole(2, 5, "kernel", "poly"),
        "coef0": flt(-1, 1, "kernel", "poly", "sigmoid"),
    },
)
def svc_digits(c: Config) -> float:
    """Return the error of a support vector machine."""
    from sklearn.svm import SVC

    options = {k: c[k] for k in ("gamma", "degree", "coef0") if k in c}
    return error(SVC(kernel=c["kernel"], C=c["C"], **options), split(digits, 200, 400))


@PROBLEMS.add("svc-moons", {"C": log(1e-3, 1e3), "gamma": log(1e-5, 1e2)})
def svc_moons(c: Config) -> float:
    """Return the error of a support vector machine with Gaussian kernel."""
    from sklearn.svm import SVC

    return error(SVC(C=c["C"], gamma=c["gamma"]), split(moons, 150, 400))


@PROBLEMS.add("logistic-digits", {"C": log(1e-5, 1e4), "tol": log(1e-5, 1e-1), "steps": logint(3, 60)})
def logistic_digits(c: Config) -> float:
    """Return the log loss of logistic regression."""
    import warnings

    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return log_loss(LogisticRegression(C=c["C"], tol=c["tol"], max_iter=c["steps"]), split(digits, 200, 400))


@PROBLEMS.add(
    "sgd-clusters",
    {
        "loss": pick("log_loss", "modified_huber"),
        "penalty": pick("l2", "l1", "elasticnet"),
        "alpha": log(1e-6, 1e-1),
        "l1": flt(0.0, 1.0, "penalty", "elasticnet"),
        "schedule": pick("optimal", "constant", "invscaling"),
        "eta0": log(1e-4, 1.0, "schedule", "constant", "invscaling"),
        "epochs": logint(1, 30),
    },
)
def sgd_clusters(c: Config) -> float:
    """Return the error of a linear model trained by stochastic gradients."""
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(
        loss=c["loss"], penalty=c["penalty"], alpha=c["alpha"], l1_ratio=c.get("l1", 0.15), learning_rate=c["schedule"],
        eta0=c.get("eta0", 0.01), max_iter=c["epochs"], tol=None, random_state=0,
    )  # fmt: skip
    return error(model, split(clusters, 300, 500))


@PROBLEMS.add(
    "mlp-moons",
    {
        "lr": log(1e-4, 1.0),
        "width": logint(2, 64),
        "depth": whole(1, 3),
        "alpha": log(1e-6, 1.0),
        "batch": logint(8, 128),
        "activation": pick("relu", "tanh", "logistic"),
        "momentum": flt(0.0, 0.99),
    },
)
def mlp_moons(c: Config) -> float:
    """Return the log loss of a small perceptron after eight epochs."""
    import warnings

    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(
        (c["width"],) * c["depth"], activation=c["activation"], alpha=c["alpha"], batch_size=c["batch"],
        learning_rate_init=c["lr"], momentum=c["momentum"], solver="sgd", max_iter=8, random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return log_loss(model, split(moons, 150, 400))
        except ValueError:  # weights that are not finite
            return 14.0


@PROBLEMS.add(
    "tree-wine",
    {
        "criterion": pick("gini", "entropy"),
        "depth": whole(1, 12),
        "leaf": whole(1, 20),
        "split": whole(2, 30),
        "features": flt(0.1, 1.0),
        "ccp": log(1e-4, 0.2),
        "splitter": pick("best", "random"),
    },
)
def tree_wine(c: Config) -> float:
    """Return the log loss of a decision tree."""
    from sklearn.tree import DecisionTreeClassifier

    model = DecisionTreeClassifier(
        criterion=c["criterion"], max_depth=c["depth"], min_samples_leaf=c["leaf"], min_samples_split=c["split"],
        max_features=c["features"], ccp_alpha=c["ccp"], splitter=c["splitter"], random_state=0,
    )  # fmt: skip
    return log_loss(model, split(wine, 90, 88))


@PROBLEMS.add(
    "forest-clusters",
    {
        "trees": logint(2, 12),
        "depth": whole(1, 14),
        "leaf": logint(1, 30),
        "features": flt(0.05, 1.0),
        "bootstrap": pick(True, False),
        "criterion": pick("gini", "entropy"),
    },
)
def forest_clusters(c: Config) -> float:
    """Return the error of a random forest."""
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(
        c["trees"], criterion=c["criterion"], max_depth=c["depth"], min_samples_leaf=c["leaf"],
        max_features=c["features"], bootstrap=c["bootstrap"], random_state=0,
    )  # fmt: skip
    return error(model, split(clusters, 250, 500))


@PROBLEMS.add(
    "neighbours-digits",
    {"k": whole(1, 30), "p": flt(1.0, 5.0), "weights": pick("uniform", "distance"), "scale": flt(0.0, 1.0)},
)
def neighbours_digits(c: Config) -> float:
    """Return the error of nearest neighbours on pixels raised to a power."""
    import numpy as np
    from sklearn.neighbors import KNeighborsClassifier

    xa, ya, xb, yb = split(digits, 150, 150, scale=False)
    power = 0.2 + 2 * c["scale"]
    model = KNeighborsClassifier(c["k"], weights=c["weights"], p=c["p"], algorithm="brute")
    return error(model, (np.power(xa / 16, power), ya, np.power(xb / 16, power), yb))


@PROBLEMS.add(
    "lightgbm-clusters",
    {
        "lr": log(1e-3, 1.0),
        "rounds": logint(2, 24),
        "leaves": logint(2, 64),
        "least": logint(1, 60),
        "columns": flt(0.2, 1.0),
        "rows": flt(0.3, 1.0),
        "l2": log(1e-4, 1e2),
        "l1": log(1e-4, 1e1),
    },
)
def lightgbm_clusters(c: Config) -> float:
    """Return the log loss of LightGBM."""
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(
        n_estimators=c["rounds"], learning_rate=c["lr"], num_leaves=c["leaves"], min_child_samples=c["least"],
        colsample_bytree=c["columns"], subsample=c["rows"], subsample_freq=1, reg_lambda=c["l2"], reg_alpha=c["l1"],
        n_jobs=1, random_state=0, verbose=-1,
    )  # fmt: skip
    xa, ya, xb, yb = split(clusters, 250, 400)
    return log_loss(model, (xa, ya == 1, xb, yb == 1))


@PROBLEMS.add(
    "pipeline-digits",
    {
        "reduce": pick("none", "pca", "select"),
        "components": logint(2, 60, "reduce", "pca"),
        "kept": logint(2, 60, "reduce", "select"),
        "model": pick("lda", "bayes", "ridge", "neighbours"),
        "shrinkage": flt(0.0, 1.0, "model", "lda"),
        "smoothing": log(1e-9, 1.0, "model", "bayes"),
        "alpha": log(1e-3, 1e4, "model", "ridge"),
        "k": whole(1, 25, "model", "neighbours"),
    },
    kinds=("conditional",),
)
def pipeline_digits(c: Config) -> float:
    """Return the error of one of four classifiers after one of three reductions."""
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.feature_selection import SelectKBest
    from sklearn.linear_model import RidgeClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier

    xa, ya, xb, yb = split(digits, 220, 400)
    if c["reduce"] != "none":
        reduce = PCA(c["components"], random_state=0) if c["reduce"] == "pca" else SelectKBest(_variances, k=c["kept"])
        xa = reduce.fit_transform(xa, ya)
        xb = reduce.transform(xb)
    model = {
        "lda": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage=c["shrinkage"]),
        "bayes": lambda: GaussianNB(var_smoothing=c["smoothing"]),
        "ridge": lambda: RidgeClassifier(c["alpha"]),
        "neighbours": lambda: KNeighborsClassifier(c["k"]),
    }[c["model"]]()
    return error(model, (xa, ya, xb, yb))


def _variances(x: Any, y: Any) -> Any:
    import warnings

    import numpy as np
    from sklearn.feature_selection import f_classif

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns that are constant
        return np.nan_to_num(f_classif(x, y)[0])
