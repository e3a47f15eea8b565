"""Run an experiment with Ray or Outbid: `same.py ray 7` and `same.py outbid 7` print the same lines with a =."""

from __future__ import annotations

import os
import sys
from typing import Any

if sys.argv[1] == "ray":
    import ray
    from ray import tune
    from ray.tune.search.basic_variant import BasicVariantGenerator

    ray.init(address="local", num_cpus=2, include_dashboard=False)
else:
    from outbid.tune.search.basic_variant import BasicVariantGenerator

    from outbid import tune


def train(config: dict[str, Any]) -> None:
    """Report a curve; one of the trials fails."""
    for step in range(4):
        if config["layers"] == 2 and config["w"] == 1.0 and step == 2:
            raise ValueError("too deep")
        tune.report({"loss": (config["x"] - 0.5) ** 2 / (step + 1) + config["w"], "nest": {"step": step}})


tuner = tune.Tuner(
    train,
    param_space={
        "x": tune.uniform(0, 1),
        "w": tune.grid_search([0.0, 1.0]),
        "layers": tune.grid_search([1, 2]),
        "deep": {"n": tune.randint(0, 100), "twice": tune.sample_from(lambda spec: 2 * spec.config.deep.n)},
    },
    tune_config=tune.TuneConfig(
        metric="loss", mode="min", num_samples=2, search_alg=BasicVariantGenerator(random_state=int(sys.argv[2]))
    ),
    run_config=tune.RunConfig(
        name="same", storage_path=os.environ["RESULTS"], stop={"training_iteration": 3}, verbose=0
    ),
)
grid = tuner.fit()
print("= trials", len(grid), "errors", grid.num_errors, "terminated", grid.num_terminated)
for result in grid:
    metrics = result.metrics or {}
    kept = {k: metrics.get(k) for k in ("loss", "nest", "training_iteration", "done", "config")}
    print("=", kept, type(result.error).__name__ == "NoneType", metrics["trial_id"][-5:])
    if result.metrics_dataframe is not None:
        print("= rows", list(result.metrics_dataframe["loss"]), list(result.metrics_dataframe["nest/step"]))
best = grid.get_best_result()
print("= best", best.config, best.metrics["loss"])
frame = grid.get_dataframe()
print("= frame", sorted(c for c in frame.columns if c.startswith(("config/", "nest"))), list(frame["loss"]))
