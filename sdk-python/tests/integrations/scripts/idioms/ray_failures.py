"""Trials that fail once, always, and by their return value."""

import os
import tempfile

from ray import tune
from ray.tune import Checkpoint

PLACE = tempfile.mkdtemp()


def train(config):
    """Fail at step 2: once, or always."""
    start = 0
    if checkpoint := tune.get_checkpoint():
        with open(os.path.join(checkpoint.path, "n")) as file:
            start = int(file.read())
    for step in range(start + 1, 5):
        failed = os.path.join(config["place"], f"{config['kind']}")
        if step == 3 and config["kind"] != "good" and (config["kind"] == "always" or not os.path.exists(failed)):
            with open(failed, "a") as file:
                file.write("x")
            raise ValueError(f"failed {config['kind']}")
        with tempfile.TemporaryDirectory() as place:
            with open(os.path.join(place, "n"), "w") as file:
                file.write(str(step))
            tune.report({"step": step, "start": start}, checkpoint=Checkpoint.from_directory(place))


grid = tune.Tuner(
    train,
    param_space={"kind": tune.grid_search(["good", "once", "always"]), "place": PLACE},
    tune_config=tune.TuneConfig(metric="step", mode="max"),
    run_config=tune.RunConfig(name="failures", failure_config=tune.FailureConfig(max_failures=2), verbose=0),
).fit()
print("= grid", len(grid), grid.num_errors, grid.num_terminated)
for result in grid:
    print(
        "=",
        result.config["kind"],
        result.metrics["step"],
        result.metrics["start"],
        "ValueError" in type(result.error).__name__,
    )
    print("= rows", [(int(s), int(b)) for s, b in result.metrics_dataframe[["step", "start"]].values])
print("= attempts", len(open(os.path.join(PLACE, "always")).read()) >= 2, len(open(os.path.join(PLACE, "once")).read()))
print("= message", "failed always" in str(grid.errors[0]))
print("= best", grid.get_best_result().metrics["step"])


def silly(config):
    """Return something other than a result."""
    return config["what"]


for what in (3.5, {"loss": 1}, None):
    done = tune.Tuner(
        silly, param_space={"what": what}, run_config=tune.RunConfig(name=f"silly{what is None}", verbose=0)
    ).fit()
    metrics = done[0].metrics or {}
    print("= returned", what, done.num_errors, {k: metrics.get(k) for k in ("_metric", "loss", "training_iteration")})
