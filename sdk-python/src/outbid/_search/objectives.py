"""Several objectives: the fields of the spec, and the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from outbid._core.limits import check_name
from outbid._core.name_hints import METRIC_MISSING, mode_meant
from outbid._core.validation import quoted
from outbid._results.model import TrialResult
from outbid.v1 import sweep_pb2 as pb


def fill_objectives(spec: pb.SweepSpec, metric: str | Sequence[str], mode: str | Sequence[str]) -> None:
    """Write the metrics and their modes into a spec."""
    metrics = _list("metric", metric)
    modes = _list("mode", mode)
    if len(modes) != len(metrics):
        raise ValueError(f"Sweep: give a mode for each metric: {len(metrics)} metrics, {len(modes)} modes")
    for name, way in zip(metrics, modes, strict=True):
        if name == "":
            raise ValueError(f"Sweep: {METRIC_MISSING}")
        if not isinstance(name, str):
            raise TypeError(f"Sweep: metric must be the name of a reported metric, got {name!r}")
        check_name("Sweep", "metric", name)
        if way not in ("max", "min"):
            raise ValueError(f"Sweep: mode: {quoted(way)} is unknown; use {mode_meant(way)}")
    if len(set(metrics)) < len(metrics):
        raise ValueError(f"Sweep: metric must not have duplicates, got {metrics!r}")
    spec.metric, spec.mode = metrics[0], modes[0]
    for name, way in zip(metrics[1:], modes[1:], strict=True):
        spec.objectives.add(metric=name, mode=way)


def values(trial: TrialResult, objectives: Iterable[tuple[str, str]]) -> tuple[float, ...] | None:
    """Return a trial's last values of the objectives; None if one is missing or not finite."""
    found = tuple(trial.metrics.get(metric, math.nan) for metric, _ in objectives)
    return found if all(map(math.isfinite, found)) else None


def front(trials: Iterable[TrialResult], objectives: Sequence[tuple[str, str]]) -> list[TrialResult]:
    """Return the trials that no other trial dominates, sorted by the first objective, the best first."""
    signs = [1.0 if mode == "min" else -1.0 for _, mode in objectives]
    costs = [
        (tuple(sign * v for sign, v in zip(signs, found, strict=True)), trial.number, trial)
        for trial in trials
        if trial.state != "failed" and (found := values(trial, objectives)) is not None
    ]
    # A trial sorts before those that it dominates, so comparing with the front so far is enough.
    kept: list[tuple[tuple[float, ...], TrialResult]] = []
    for cost, _, trial in sorted(costs, key=lambda c: c[:2]):
        if not any(_better(other, cost) for other, _ in kept):
            kept.append((cost, trial))
    return [trial for _, trial in kept]


def _better(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def _list(name: str, value: Any) -> list[Any]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Sequence) or not value:
        raise TypeError(
            "Sweep: metric must be the name of a reported metric, or a list of them, got " + repr(value)
            if name == "metric"
            else f"Sweep: mode must be 'max' or 'min', or a list of them, got {value!r}"
        )
    return list(value)
