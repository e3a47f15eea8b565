"""A typical Optuna script: a scikit-learn model that is trained in passes, with pruning."""

import outbid as ob
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split


def objective(trial):
    X, X_valid, y, y_valid = train_test_split(*load_digits(return_X_y=True), random_state=0)
    model = SGDClassifier(
        loss=trial.config.loss,
        alpha=trial.config.alpha,
        random_state=0,
    )
    for _ in trial.steps():
        model.partial_fit(X / 16, y, classes=range(10))
        accuracy = model.score(X_valid / 16, y_valid)
        trial.report(accuracy=accuracy)


def main():
    space = {"loss": ob.choice(["hinge", "log_loss"]), "alpha": ob.loguniform(1e-6, 1e-1)}
    tuner = ob.Median(max_steps=5, sampler=ob.TPE(), seed=1)
    sweep = ob.Sweep(objective, space, metric="accuracy", mode="max", tuner=tuner, trials=12)
    print("best:", sweep.run().best.config)


if __name__ == "__main__":
    main()
