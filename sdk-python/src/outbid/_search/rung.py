"""Rung: a stage of a bracket, in previews and custom tuners."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rung:
    """One stage of a bracket: `trials` enter it and train until `until_step`, with `steps` steps in total."""

    bracket: int
    until_step: int
    trials: int
    steps: int
