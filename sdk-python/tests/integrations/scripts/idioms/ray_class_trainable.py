"""A class with setup, step, checkpoints as dicts, a reset and a cleanup."""

import os

from ray import tune


class Trainable(tune.Trainable):
    """Adds its rate in each step."""

    def setup(self, config):
        """Read the configuration."""
        self.total = config.get("start", 0)
        self.resets = 0
        self.place = self.logdir

    def step(self):
        """Add."""
        self.total += self.config["rate"]
        done = self.total >= 10
        return {
            "total": self.total,
            "resets": self.resets,
            "iteration": self.iteration,
            "in": os.path.isdir(self.place),
            "done": done,
            "id": len(self.trial_id) > 4,
        }

    def save_checkpoint(self, checkpoint_dir):
        """Write the total."""
        with open(os.path.join(checkpoint_dir, "total"), "w") as file:
            file.write(str(self.total))

    def load_checkpoint(self, checkpoint_dir):
        """Read the total."""
        with open(os.path.join(checkpoint_dir, "total")) as file:
            self.total = int(file.read())

    def reset_config(self, new_config):
        """Begin with another configuration."""
        self.config, self.total, self.resets = new_config, new_config.get("start", 0), self.resets + 1
        return True

    def cleanup(self):
        """Leave a file."""
        with open(os.path.join(self.place, "cleaned"), "w") as file:
            file.write("yes")


grid = tune.Tuner(
    Trainable,
    param_space={"rate": tune.grid_search([1, 2, 5]), "start": 0},
    tune_config=tune.TuneConfig(metric="total", mode="max", max_concurrent_trials=1),
    run_config=tune.RunConfig(
        name="class",
        stop={"training_iteration": 6},
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2, num_to_keep=2, checkpoint_at_end=True),
        verbose=0,
    ),
).fit()
for result in grid:
    metrics = result.metrics
    kept = {k: metrics[k] for k in ("total", "resets", "iteration", "in", "id", "done", "training_iteration")}
    print("=", result.config["rate"], kept)
    print("= checkpoints", [m["total"] for _, m in result.best_checkpoints])
    with open(os.path.join(result.checkpoint.path, "total")) as file:
        print("= saved", file.read())
alone = Trainable(config={"rate": 3})
print("= alone", [alone.train()["total"] for _ in range(2)], alone.iteration)
path = alone.save()
other = Trainable(config={"rate": 4})
other.restore(path)
print("= restored", other.train()["total"], other.iteration)
