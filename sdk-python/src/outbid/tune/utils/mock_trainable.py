"""A trainable that does not learn, for tests."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from outbid.tune._absent_names import absent
from outbid.tune._trainable import Trainable


class MyTrainableClass(Trainable):
    """Reports a curve whose height and width are in the configuration."""

    def setup(self, config: dict[str, Any]) -> None:
        """Set the step to 0."""
        self.timestep = 0

    def step(self) -> dict[str, Any]:
        """Advance one step along the curve."""
        self.timestep += 1
        v = self.timestep / float(self.config.get("width", 1))
        return {"episode_reward_mean": (v**2 / (1 + v**2)) * self.config.get("height", 1) + random.random()}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the step."""
        Path(checkpoint_dir, "checkpoint").write_text(json.dumps({"timestep": self.timestep}))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Read the step."""
        self.timestep = json.loads(Path(checkpoint, "checkpoint").read_text())["timestep"]


def __getattr__(name: str) -> Any:
    absent(__name__, name)
