"""Tuner.restore: of a finished experiment, and of failed trials that start again or continue."""

import os
import tempfile

from ray import tune
from ray.tune import Checkpoint

FLAG = os.path.join(tempfile.mkdtemp(), "mended")


def train(config, flag=None):
    """Fail for odd x until the flag is there."""
    start = 0
    if checkpoint := tune.get_checkpoint():
        with open(os.path.join(checkpoint.path, "n")) as file:
            start = int(file.read())
    for step in range(start + 1, 4):
        if config["x"] % 2 and step == 3 and not os.path.exists(flag):
            raise RuntimeError("odd")
        with tempfile.TemporaryDirectory() as place:
            with open(os.path.join(place, "n"), "w") as file:
                file.write(str(step))
            tune.report({"score": config["x"] * step, "start": start}, checkpoint=Checkpoint.from_directory(place))


def show(what, grid):
    """Print the results."""
    print("=", what, len(grid), grid.num_errors, grid.num_terminated)
    for r in sorted(grid, key=lambda r: r.config["x"]):  # restored results come in any order
        rows = r.metrics_dataframe["score"].tolist()
        print("=", r.config["x"], r.metrics["score"], r.metrics["start"], r.metrics["training_iteration"], rows)


trainable = tune.with_parameters(train, flag=FLAG)
for how in ("resume_errored", "restart_errored"):
    if os.path.exists(FLAG):
        os.remove(FLAG)
    tuner = tune.Tuner(
        trainable,
        param_space={"x": tune.grid_search([1, 2, 3, 4])},
        tune_config=tune.TuneConfig(metric="score", mode="max"),
        run_config=tune.RunConfig(name=how, verbose=0),
    )
    first = tuner.fit()
    show("first", first)
    print("= can", tune.Tuner.can_restore(first.experiment_path), tune.Tuner.can_restore(first.experiment_path + "x"))
    seen = tune.Tuner.restore(first.experiment_path, trainable=trainable)
    show("seen", seen.get_results())
    with open(FLAG, "w") as file:
        file.write("yes")
    again = tune.Tuner.restore(first.experiment_path, trainable=trainable, **{how: True})
    show(how, again.fit())
done = tune.Tuner.restore(first.experiment_path, trainable=trainable).fit()
show("done", done)
print("= best", done.get_best_result().config)
