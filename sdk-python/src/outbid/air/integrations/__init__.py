"""Loggers of experiments: MLflow and Weights & Biases."""
