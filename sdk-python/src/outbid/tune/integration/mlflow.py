"""MLflow under the module name of Ray 1: the callback and the function of `outbid.air.integrations`."""

from __future__ import annotations

from typing import Any

from outbid.air.integrations.mlflow import MLflowLoggerCallback, setup_mlflow
from outbid.tune._absent_names import absent


def __getattr__(name: str) -> Any:
    absent(__name__, name)


__all__ = ["MLflowLoggerCallback", "setup_mlflow"]
