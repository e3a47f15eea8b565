"""A typical Optuna script: a scikit-learn model that is trained in passes, with pruning."""

import optuna
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split


def objective(trial):
    X, X_valid, y, y_valid = train_test_split(*load_digits(return_X_y=True), random_state=0)
    model = SGDClassifier(
        loss=trial.suggest_categorical("loss", ["hinge", "log_loss"]),
        alpha=trial.suggest_float("alpha", 1e-6, 1e-1, log=True),
        random_state=0,
    )
    for step in range(5):
        model.partial_fit(X / 16, y, classes=range(10))
        accuracy = model.score(X_valid / 16, y_valid)
        trial.report(accuracy, step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return accuracy


def main():
    sampler = optuna.samplers.TPESampler(seed=1)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=optuna.pruners.MedianPruner())
    study.optimize(objective, n_trials=12)
    print("best:", study.best_params)


if __name__ == "__main__":
    main()
