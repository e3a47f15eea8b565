"""A rung, as previews and tuners of one's own tell it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rung:
    """One stage of a bracket: `trials` enter it and train until `until_step`, `steps` in all."""

    bracket: int
    until_step: int
    trials: int
    steps: int
