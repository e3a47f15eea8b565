"""Tables of a study, importances, and figures."""

import optuna
from optuna.importance import MeanDecreaseImpurityImportanceEvaluator, get_param_importances

optuna.logging.set_verbosity(optuna.logging.ERROR)


def objective(trial):
    """Fail, prune or return."""
    x = trial.suggest_float("x", -1, 1)
    y = trial.suggest_int("y", 0, 3)
    trial.set_user_attr("sum", x + y)
    for step in range(3):
        trial.report(x * x + step, step)
    if y == 3:
        raise optuna.TrialPruned
    if y == 2:
        raise ArithmeticError("two")
    return x * x + 0.01 * y


study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=5))
for number in range(16):
    study.enqueue_trial({"x": number / 8 - 1, "y": number % 4})
study.optimize(objective, n_trials=16, catch=(ArithmeticError,))
frame = study.trials_dataframe()
print("= columns", [c for c in frame.columns if not c.endswith("outbid")])
print("= states", frame.state.value_counts().to_dict())
print("= types", {c: str(t) for c, t in frame.dtypes.items() if not c.endswith("outbid") and "datetime" not in c})
print("= rows", frame.sort_values("params_x")[["params_x", "params_y", "value", "user_attrs_sum"]].values.tolist())
deep = study.trials_dataframe(attrs=("number", "value", "params"), multi_index=True)
print("= deep", list(deep.columns))
importances = get_param_importances(study, evaluator=MeanDecreaseImpurityImportanceEvaluator(seed=0))
print("= important", next(iter(importances)), abs(sum(importances.values()) - 1) < 1e-9)
plots = optuna.visualization
for plot in ("optimization_history", "intermediate_values", "slice", "parallel_coordinate", "contour", "timeline"):
    print("= plot", plot, len(getattr(plots, f"plot_{plot}")(study).data) > 0)
