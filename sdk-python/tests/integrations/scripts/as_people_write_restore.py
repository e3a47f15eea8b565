"""An experiment with failures that is restored, by Tuner and by tune.run."""

import os
import tempfile
from pathlib import Path

from outbid import tune

FIXED = Path(tempfile.mkdtemp()) / "fixed"


def train(config, fixed):
    """Fail halfway until the file `fixed` exists."""
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        start = int(Path(checkpoint.path, "n").read_text()) + 1
    for i in range(start, 4):
        if i == 2 and config["bad"] and not os.path.exists(fixed):
            raise RuntimeError("not yet")
        with tempfile.TemporaryDirectory() as place:
            Path(place, "n").write_text(str(i))
            tune.report({"i": i, "began": start}, checkpoint=tune.Checkpoint.from_directory(place))


tuner = tune.Tuner(
    tune.with_parameters(train, fixed=str(FIXED)),
    param_space={"bad": tune.grid_search([False, True]), "x": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(metric="i", mode="max"),
    run_config=tune.RunConfig(name="restored", verbose=0),
)
first = tuner.fit()
assert first.num_errors == 1 and "not yet" in str(first.errors[0]), first
path = first.experiment_path
assert tune.Tuner.can_restore(path) and not tune.Tuner.can_restore(path + "-not")
FIXED.touch()
seen = tune.Tuner.restore(path, trainable=train).get_results()
assert seen.num_errors == 1
for wrong, error in (
    (lambda: tune.Tuner.restore(path, trainable=print), ValueError),
    (lambda: tune.Tuner.restore(path + "-not", trainable=train), FileNotFoundError),
):
    try:
        wrong()
    except error as refused:
        print(refused)
    else:
        raise AssertionError("it was taken")
again = tune.Tuner.restore(path, trainable=tune.with_parameters(train, fixed=str(FIXED)), resume_errored=True).fit()
assert again.num_errors == 0, again.errors
assert [r.config for r in again] == [r.config for r in first]
assert again[1].metrics["i"] == 3 and again[1].metrics["began"] == 2, again[1].metrics
assert again[1].metrics["training_iteration"] == 4
assert list(again[1].metrics_dataframe["i"]) == [0, 1, 2, 3]
assert again[0].metrics["began"] == 0
print("passed")
