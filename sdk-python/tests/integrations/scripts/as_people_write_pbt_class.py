"""A class with PBT: checkpoints are copied from the best to the worst, with changed configurations."""

from pathlib import Path

from outbid import air, tune
from outbid.tune.schedulers import PopulationBasedTraining


class Learner(tune.Trainable):
    """Adds its learning rate in each step."""

    def setup(self, config):
        """Begin."""
        self.total = 0.0

    def step(self):
        """Add."""
        self.total += self.config["lr"]
        return {"total": self.total, "lr": self.config["lr"]}

    def save_checkpoint(self, checkpoint_dir):
        """Write the total."""
        Path(checkpoint_dir, "total").write_text(repr(self.total))

    def load_checkpoint(self, checkpoint_dir):
        """Read the total."""
        self.total = float(Path(checkpoint_dir, "total").read_text())

    def reset_config(self, new_config):
        """Use another configuration."""
        self.config = new_config
        return True

    def cleanup(self):
        """End."""
        Path("cleaned").touch()


grid = tune.Tuner(
    Learner,
    param_space={"lr": tune.grid_search([0.001, 0.01, 0.1, 1.0])},
    tune_config=tune.TuneConfig(
        metric="total",
        mode="max",
        scheduler=PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=3,
            hyperparam_mutations={"lr": tune.uniform(0.5, 2)},
            synch=True,
        ),
        reuse_actors=True,
    ),
    run_config=air.RunConfig(
        name="pbt",
        verbose=0,
        stop={"training_iteration": 15},
        checkpoint_config=air.CheckpointConfig(checkpoint_frequency=3, checkpoint_at_end=True, num_to_keep=2),
    ),
).fit()
assert grid.num_errors == 0, grid.errors
assert all(r.metrics["training_iteration"] == 15 for r in grid)
# Alone the worst would reach 0.015.
assert min(r.metrics["total"] for r in grid) > 0.1, [r.metrics["total"] for r in grid]
assert all(len(r.best_checkpoints) <= 2 and r.checkpoint for r in grid)
assert all((Path(r.path) / "cleaned").exists() for r in grid)
assert Path(grid.experiment_path, "pbt_global.txt").read_text().count("\n") >= 1
print("passed")
