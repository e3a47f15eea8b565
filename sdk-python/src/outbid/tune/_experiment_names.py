"""Names of Ray's `tune.experiment`."""

from __future__ import annotations

from outbid.tune._run import Experiment
from outbid.tune._trial import Trial


class ExportFormat:
    """Names of formats of models. Models are not exported: what is to be kept is saved in a checkpoint."""

    CHECKPOINT = "checkpoint"
    MODEL = "model"
    ONNX = "onnx"
    H5 = "h5"


__all__ = ["Experiment", "ExportFormat", "Trial"]
