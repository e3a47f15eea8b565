"""Loggers: a sweep's trials in TensorBoard, MLflow or Weights & Biases.

    sweep.run(loggers=[ob.loggers.TensorBoard("runs"), ob.loggers.MLflow("http://127.0.0.1:5000")])

They run in the program that waits for the sweep. `ob.attach("digits-1").wait(loggers=[...])` logs an existing sweep,
running or ended, from its beginning, without duplicates of earlier logging. A logger that fails warns once and stops
logging; the sweep continues.
"""

from __future__ import annotations

from outbid.integrations.loggers import Logger, MLflow, TensorBoard, WandB

__all__ = ["Logger", "MLflow", "TensorBoard", "WandB"]
