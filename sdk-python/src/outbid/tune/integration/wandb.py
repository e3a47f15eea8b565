"""Weights & Biases under the module name of Ray 1: the names of `outbid.air.integrations`."""

from __future__ import annotations

from typing import Any

from outbid.air.integrations.wandb import WandbLoggerCallback, setup_wandb
from outbid.tune._absent_names import absent


def __getattr__(name: str) -> Any:
    absent(__name__, name)


__all__ = ["WandbLoggerCallback", "setup_wandb"]
