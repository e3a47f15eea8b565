"""Names of Ray's `tune.experiment`."""

from __future__ import annotations

from outbid.tune._run import Experiment
from outbid.tune._trial import Trial


class ExportFormat:
    """Names of model formats. Models are not exported: save them in a checkpoint."""

    CHECKPOINT = "checkpoint"
    MODEL = "model"
    ONNX = "onnx"
    H5 = "h5"


__all__ = ["Experiment", "ExportFormat", "Trial"]
