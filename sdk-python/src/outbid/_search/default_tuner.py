"""The default tuner of a sweep, which the server chooses."""

from __future__ import annotations

from outbid.v1 import sweep_pb2 as pb


def reason(spec: pb.SweepSpec) -> str:
    """Say which tuner a sweep that sets none has, and why, as `outbid run` does."""
    kind = spec.tuner.WhichOneof("kind")
    if kind == "auto":
        return (
            "tuner: auto, because the sweep sets none: Bayesian search that stops trials with little chance early; "
            "with 'bayes' all trials train to the end"
        )
    if kind == "bayes":
        return (
            "tuner: bayes, because the sweep sets none and has several objectives: Bayesian search along their Pareto "
            "front; all trials train to the end"
        )
    return (
        f"tuner: {kind}, because the sweep sets none and has more parameters than Bayesian search takes; "
        "all trials train to the end"
    )
