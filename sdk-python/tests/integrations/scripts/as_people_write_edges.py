"""Reading experiments with failures or without reports, and the files that they leave."""

import csv
import json
import sys
import warnings
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from outbid import tune
from outbid.tune import CLIReporter, FailureConfig, RunConfig, TuneConfig
from outbid.tune.logger import TBXLoggerCallback


def silent(config):
    """Report or fail once, depending on the configuration."""
    seen = Path(config["seen"])
    if config["how"] == "fails" and not seen.exists():
        seen.touch()
        raise ValueError("once")
    if config["how"] != "nothing":
        for i in range(3):
            tune.report({"score": i, "deep": {"a": 2.0 * i}, "text": "t", "flag": True, "last": config["how"]})


ended = []


class Notes(tune.Callback):
    """Records how trials end."""

    def on_trial_complete(self, iteration, trials, trial, **info):
        """Record one end."""
        ended.append(trial.config["how"])


def main():
    """Run the experiment and check it."""
    reporter = CLIReporter(metric_columns={"score": "S"}, parameter_columns=["how"])
    tuner = tune.Tuner(
        silent,
        param_space={"how": tune.grid_search(["nothing", "reports", "fails"]), "seen": str(Path("seen").absolute())},
        tune_config=TuneConfig(metric="score", mode="max"),
        run_config=RunConfig(
            name="edges",
            stop={"scor": 1},
            failure_config=FailureConfig(max_failures=1),
            callbacks=[TBXLoggerCallback(), Notes()],
            progress_reporter=reporter,
        ),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        grid = tuner.fit()
    assert sum("'scor' was never reported" in str(w.message) for w in caught) == 1
    assert grid.num_errors == 0 and grid.num_terminated == 3
    nothing, reports, fails = grid
    assert nothing.metrics["done"] and "score" not in nothing.metrics and nothing.config["how"] == "nothing"
    assert nothing.metrics_dataframe is None and nothing.error is None
    assert grid.get_best_result().config["how"] == "reports" and sorted(ended) == ["fails", "nothing", "reports"]
    assert fails.metrics["score"] == 2

    folder = Path(reports.path)
    with (folder / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = list(rows[0])
    assert names[:4] == ["score", "text", "flag", "last"] and names[-1] == "deep/a", names
    assert not any(n.startswith("config") for n in names) and [r["deep/a"] for r in rows] == ["0.0", "2.0", "4.0"]
    assert json.loads((folder / "params.json").read_text())["how"] == "reports"
    assert [path for path in folder.iterdir() if path.is_dir()] == []
    assert len(list(folder.glob("events*"))) == 1
    events = EventAccumulator(str(folder))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("ray/tune/deep/a")] == [(1, 0.0), (2, 2.0), (3, 4.0)]
    assert "_hparams_/session_start_info" in events.summary_metadata
    assert not {"ray/tune/pid", "ray/tune/training_iteration"} & set(events.Tags()["scalars"])

    analysis = tune.ExperimentAnalysis(grid.experiment_path)
    assert sorted(t.num_failures for t in analysis.trials) == [0, 0, 1]
    assert analysis.trial_dataframes[reports.metrics["trial_id"]]["score"].tolist() == [0, 1, 2]


if __name__ == "__main__":
    main()
    print("passed", file=sys.stdout)
