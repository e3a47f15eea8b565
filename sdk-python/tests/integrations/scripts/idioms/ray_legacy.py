"""Ray 1.x: tune.run, its analysis, and experiments by name."""

import os

from ray import tune


def train(config, reporter=None):
    """Report by position of the old interface."""
    for step in range(5):
        tune.report({"mean_accuracy": config["alpha"] * step, "neg": -step})


def named(trial):
    """Return a name."""
    return f"trial-{trial.config['alpha']}"


analysis = tune.run(
    train,
    name="legacy",
    config={"alpha": tune.grid_search([0.5, 2.0, 1.0]), "beta": tune.choice([1, 2, 3])},
    stop={"mean_accuracy": 5, "training_iteration": 4},
    num_samples=2,
    resources_per_trial={"cpu": 1},
    metric="mean_accuracy",
    mode="max",
    trial_name_creator=named,
    trial_dirname_creator=named,
    verbose=0,
)
print("= best", analysis.best_config["alpha"], analysis.best_result["mean_accuracy"], str(analysis.best_trial))
print("= statuses", [t.status for t in analysis.trials], sorted({str(t) for t in analysis.trials}))
print("= frame", sorted(analysis.dataframe(metric="mean_accuracy", mode="max")["mean_accuracy"].tolist()))
print("= results", sorted(r["neg"] for r in analysis.results.values()), len(analysis.trial_dataframes))
print("= config", analysis.get_best_config("neg", "min")["alpha"] in (0.5, 1.0, 2.0), len(analysis.get_all_configs()))
where = os.path.basename(analysis.best_trial.local_path)
print("= where", where.startswith("trial-2.0"), os.path.isdir(analysis.best_trial.local_path))
print("= last", [t.last_result["training_iteration"] for t in analysis.trials])
print("= series", analysis.results_df["mean_accuracy"].max(), len(analysis.results_df))

tune.register_trainable("mine", train)
trials = tune.run_experiments(
    {"first": {"run": "mine", "stop": {"training_iteration": 2}, "config": {"alpha": tune.grid_search([1, 2])}}},
    verbose=0,
)
print("= experiments", [(t.trainable_name, t.config["alpha"], t.last_result["training_iteration"]) for t in trials])
again = tune.ExperimentAnalysis(analysis.experiment_path, default_metric="mean_accuracy", default_mode="max")
print("= again", again.best_config["alpha"], len(again.trials))
