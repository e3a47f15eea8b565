"""scikit-learn's randomized search as sweeps: the same candidates, a sampler that learns, and early stopping."""

import outbid as ob
from scipy.stats import loguniform
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC


def main() -> None:
    """Search three times."""
    X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
    model = make_pipeline(StandardScaler(), SVC())

    # Before: RandomizedSearchCV(model, ...). The candidates are the same.
    space = {"svc__C": loguniform(1e-2, 1e2), "svc__gamma": loguniform(1e-4, 1e-1)}
    search = ob.SearchCV(model, space, n_iter=12, cv=3, random_state=0).fit(X, y)
    print(f"random: {search.best_score_:.4f} in three folds, {search.score(X_test, y_test):.4f} on held-out digits")

    # TPE learns from earlier candidates; gamma is only drawn for kernels that have one.
    space = {
        "svc": {
            "kernel": ob.choice(["linear", "rbf"]),
            "C": ob.loguniform(1e-2, 1e2),
            "gamma": ob.when(ob.loguniform(1e-4, 1e-1), "svc.kernel", in_=["rbf"]),
        }
    }
    search = ob.SearchCV(model, space, n_iter=24, cv=3, random_state=0, tuner=ob.TPE()).fit(X, y)
    print(f"TPE: {search.best_score_:.4f} in three folds, {search.score(X_test, y_test):.4f} on held-out digits")

    # ASHA: every candidate starts with four trees, the best third continues with twelve, and the best of these with 36.
    space = {"max_depth": [4, 8, 16, None], "max_features": [2, 4, 8, 16, 32]}
    tuner = ob.ASHA(max_steps=36, min_steps=4)
    search = ob.SearchCV(
        RandomForestClassifier(random_state=0),
        space,
        n_iter=18,
        cv=3,
        random_state=0,
        tuner=tuner,
        resource="n_estimators",
    ).fit(X, y)
    trees = search.cv_results_["n_resources"]
    print(f"ASHA: {search.best_score_:.4f} in three folds; {(trees == 36).sum()} of {len(trees)} were given all trees")


if __name__ == "__main__":
    main()
