"""Ray 1.x: tune.run with keywords, checkpoint_dir, a reporter with columns, and an analysis."""

import os

from outbid.tune.suggest.basic_variant import BasicVariantGenerator

from outbid import tune
from outbid.tune import CLIReporter
from outbid.tune.schedulers import AsyncHyperBandScheduler


def train(config, checkpoint_dir=None, data=None):
    """Report by keywords."""
    for i in range(4):
        with tune.checkpoint_dir(step=i) as place:
            with open(os.path.join(place, "checkpoint"), "w") as file:
                file.write(str(i))
        tune.report(mean_loss=config["lr"] * sum(data) / (i + 1), iterations=i)


analysis = tune.run(
    tune.with_parameters(train, data=[1, 2, 3]),
    name="old",
    config={"lr": tune.grid_search([0.1, 0.2, 0.4]), "drop": tune.uniform(0, 1)},
    metric="mean_loss",
    mode="min",
    num_samples=1,
    search_alg=BasicVariantGenerator(),
    resources_per_trial={"cpu": 1, "gpu": 0},
    scheduler=AsyncHyperBandScheduler(max_t=4, grace_period=4),
    progress_reporter=CLIReporter(metric_columns=["mean_loss", "training_iteration"]),
    stop=lambda trial_id, result: result["mean_loss"] < 0.16,
    keep_checkpoints_num=1,
    checkpoint_score_attr="min-mean_loss",
    verbose=0,
)
assert analysis.best_config["lr"] == 0.1
assert abs(analysis.best_result["mean_loss"] - 0.15) < 1e-9
assert analysis.get_best_trial("mean_loss", "min", "all").config["lr"] == 0.1
with analysis.best_checkpoint.as_directory() as place:
    assert open(os.path.join(place, "checkpoint")).read() == "3"
assert len(analysis.dataframe()) == 3 and os.path.isdir(analysis.best_logdir)


def fails(config):
    """Fail in one of two trials."""
    if config["x"]:
        raise RuntimeError("this one fails")
    return {"y": 1}


try:
    tune.run(fails, config={"x": tune.grid_search([0, 1])}, name="fails", verbose=0)
except tune.TuneError as error:
    assert "this one fails" in str(error), error
else:
    raise AssertionError("no TuneError")
kept = tune.run(fails, config={"x": tune.grid_search([0, 1])}, name="kept", raise_on_failed_trial=False, verbose=0)
assert [t.status for t in kept.trials] == ["TERMINATED", "ERROR"]
print("passed")
