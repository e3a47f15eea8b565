"""Tables and best results of an experiment, in all scopes."""

import os

from ray import tune

CURVES = {"a": [5, 1, 3], "b": [4, 4, 2], "c": [9, 8, 7]}


def train(config):
    """Report a curve."""
    for value in CURVES[config["name"]]:
        tune.report({"loss": value, "nested": {"acc": 10 - value}, "tag": config["name"] * 2, "list": [value, 1]})


grid = tune.Tuner(
    train,
    param_space={"name": tune.grid_search(["a", "b", "c"]), "fixed": {"lr": 0.1, "sizes": [1, 2]}},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=tune.RunConfig(name="frames", verbose=0),
).fit()
frame = grid.get_dataframe()
print("= columns", sorted(frame.columns))
print("= last", frame[["config/name", "loss", "nested/acc", "tag"]].values.tolist())
least = grid.get_dataframe(filter_metric="loss", filter_mode="min")
print("= least", least[["config/name", "loss", "training_iteration"]].values.tolist())
most = grid.get_dataframe(filter_metric="nested/acc", filter_mode="max")
print("= most", most[["config/name", "loss"]].values.tolist())
for scope in ("last", "avg", "last-5-avg", "all"):
    for mode in ("min", "max"):
        print("= best", scope, mode, grid.get_best_result(metric="loss", mode=mode, scope=scope).config["name"])
print("= nested", grid.get_best_result("nested/acc", "max").config["name"])
result = grid[0]
rows = result.metrics_dataframe
print("= rows", sorted(c for c in rows.columns if not c.startswith(("time", "date", "node", "host", "pid"))))
print("= values", rows["loss"].tolist(), rows["training_iteration"].tolist(), rows["nested/acc"].tolist())
print("= result", result.config, result.error, result.checkpoint, os.path.basename(result.path)[:6])
print("= metrics", sorted(k for k in result.metrics))
print("= paths", os.path.basename(grid.experiment_path), len(grid), [r.metrics["loss"] for r in grid])
try:
    grid.get_best_result(metric="missing", mode="max")
except RuntimeError as error:
    print("= missing", type(error).__name__)
try:
    grid.get_best_result(metric="loss", mode="minimum")
except Exception as error:
    print("= mode", type(error).__name__)
