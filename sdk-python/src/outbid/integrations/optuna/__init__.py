"""Optuna's objectives and studies on Outbid."""
