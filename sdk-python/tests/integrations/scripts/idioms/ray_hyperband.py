"""HyperBand, the median rule, and Ray's plain scheduler over the same curves."""

from ray import tune
from ray.tune.schedulers import FIFOScheduler, HyperBandScheduler, MedianStoppingRule


class Curve(tune.Trainable):
    """A curve that rises with the width."""

    def setup(self, config):
        """Begin."""
        self.n = 0

    def step(self):
        """Rise."""
        self.n += 1
        return {"score": self.config["width"] * self.n}

    def save_checkpoint(self, checkpoint_dir):
        """Return a dict."""
        return {"n": self.n}

    def load_checkpoint(self, checkpoint):
        """Read a dict."""
        self.n = checkpoint["n"]


SCHEDULERS = {
    "hyperband": HyperBandScheduler(time_attr="training_iteration", max_t=9, reduction_factor=3),
    "median": MedianStoppingRule(time_attr="training_iteration", grace_period=2, min_samples_required=2),
    "fifo": FIFOScheduler(),
}
for name, scheduler in SCHEDULERS.items():
    grid = tune.Tuner(
        Curve,
        param_space={"width": tune.grid_search([4, 3, 2, 1, 5])},
        tune_config=tune.TuneConfig(
            metric="score", mode="max", scheduler=scheduler, max_concurrent_trials=None if name == "hyperband" else 1
        ),
        run_config=tune.RunConfig(name=name, stop={"training_iteration": 9}, verbose=0),
    ).fit()
    best = grid.get_best_result()
    print("=", name, best.config["width"], best.metrics["score"], grid.num_errors)
    iterations = sorted(r.metrics["training_iteration"] for r in grid)
    print("= iterations", iterations if name != "hyperband" else (iterations[0] <= 9, iterations[-1]))
