"""A logger with its own files, failures that it reads, a trainable by name, and modules by attribute."""

import os

from outbid import tune
from outbid.tune.logger import LoggerCallback


class Lines(LoggerCallback):
    """Keeps a file in each trial's directory, and records calls."""

    def __init__(self) -> None:
        self.about, self.errors = {}, []

    def setup(self, **info):
        """Record the arguments before the first trial."""
        self.about = info

    def log_trial_start(self, trial):
        """Begin like in Ray's guide."""
        trial.init_local_path()
        with open(os.path.join(trial.local_path, "lines"), "w") as file:
            file.write("began\n")

    def log_trial_end(self, trial, failed=False):
        """Record failures."""
        if failed:
            with open(trial.error_file) as file:
                self.errors.append((type(trial.get_error()).__name__, "too large" in file.read()))


def train(config):
    """Fail in one of two trials; `late` is only reported at the end."""
    if config["x"] == 2:
        raise ValueError("too large")
    for i in range(3):
        tune.report({"y": i} if i < 2 else {"y": i, "late": 1})


tune.register_trainable("by_name", train)
lines = Lines()
analysis = tune.run(
    "by_name",
    name="loggers",
    config={"x": tune.grid_search([1, 2])},
    num_samples=2,
    stop={"late": 1},
    callbacks=[lines],
    metric="y",
    mode="max",
    raise_on_failed_trial=False,
    verbose=0,
)
assert lines.about["total_num_samples"] == 4 and lines.about["num_samples"] == 2, lines.about
assert lines.about["stop"] == {"late": 1} and lines.about["time_budget_s"] is None, lines.about
assert lines.errors == [("ValueError", True)] * 2, lines.errors
assert all(str(t).startswith("by_name_") and t.trainable_name == "by_name" for t in analysis.trials)
assert [t.status for t in analysis.trials] == ["TERMINATED", "ERROR"] * 2
assert [t.error_file is None for t in analysis.trials] == [True, False] * 2
assert all(open(os.path.join(t.local_path, "lines")).read() == "began\n" for t in analysis.trials)
assert analysis.best_result[tune.result.TRAINING_ITERATION] == 3
assert list(analysis.best_result_df.index) == [analysis.best_trial.trial_id]
print("passed")
