"""Define-by-run: a number of layers, and parameters of the chosen optimizer only."""

import optuna

optuna.logging.set_verbosity(optuna.logging.WARNING)


def create_optimizer(trial):
    """Suggest the parameters of one of three optimizers."""
    name = trial.suggest_categorical("optimizer", ["RMSprop", "Adam", "SGD"])
    kwargs = {}
    if name == "RMSprop":
        kwargs["learning_rate"] = trial.suggest_float("rmsprop_learning_rate", 1e-5, 1e-1, log=True)
        kwargs["decay"] = trial.suggest_float("rmsprop_decay", 0.85, 0.99)
    elif name == "Adam":
        kwargs["learning_rate"] = trial.suggest_float("adam_learning_rate", 1e-5, 1e-1, log=True)
    else:
        kwargs["learning_rate"] = trial.suggest_float("sgd_opt_learning_rate", 1e-5, 1e-1, log=True)
        kwargs["momentum"] = trial.suggest_float("sgd_opt_momentum", 1e-5, 1e-1, log=True)
    return name, kwargs


def objective(trial):
    """Return a loss that prefers two layers of 64 units, and Adam."""
    n_layers = trial.suggest_int("n_layers", 1, 3)
    units = [trial.suggest_int(f"n_units_l{i}", 4, 128, log=True) for i in range(n_layers)]
    dropout = [trial.suggest_float(f"dropout_l{i}", 0.2, 0.5, step=0.1) for i in range(n_layers)]
    name, kwargs = create_optimizer(trial)
    return abs(n_layers - 2) + sum(abs(u - 64) for u in units) / 64 + sum(dropout) + (name != "Adam") + len(kwargs) / 10


study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1, multivariate=True, group=True))
study.optimize(objective, n_trials=40)
best = study.best_params
print("= trials", len(study.trials), {t.state.name for t in study.trials})
layers = [k for k in best if k.startswith("n_units_l")]
print("= layers fit", len(layers) == best["n_layers"], "near", study.best_value < 3)
own = {"RMSprop": "rmsprop", "Adam": "adam", "SGD": "sgd"}
print("= own", all(any(k.startswith(own[t.params["optimizer"]]) for k in t.params) for t in study.trials))
print("= none else", all(sum("learning_rate" in k for k in t.params) == 1 for t in study.trials))
print("= types", sorted({type(v).__name__ for t in study.trials for v in t.params.values()}))
steps = {round(v / 0.1, 6) for t in study.trials for k, v in t.params.items() if k.startswith("dropout")}
print("= steps", steps <= {2, 3, 4, 5})
print("= distribution", study.trials[0].distributions["n_layers"])
