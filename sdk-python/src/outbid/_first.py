"""What a sweep begins with: configurations to try first, and what earlier sweeps have found."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from outbid._handle import SweepHandle
from outbid._result import Result
from outbid._space import to_value
from outbid._tuners import known_trials
from outbid.plugin._space import Space as Known
from outbid.v1 import sweep_pb2 as pb

WarmStart: TypeAlias = Result | SweepHandle | str | Sequence[Result | SweepHandle | str]
"""Earlier sweeps: results, handles or ids."""

_BEST = 3  # configurations of an earlier sweep that are tried again


def fill_points(spec: pb.SweepSpec, points: Sequence[Mapping[str, Any]]) -> None:
    """Put configurations to try first into a spec. The server says what is wrong with their values."""
    if isinstance(points, (str, bytes, Mapping)) or not hasattr(points, "__iter__"):
        raise TypeError(f'points must be a list of configurations such as {{"lr": 0.1}}, got {points!r:.80}')
    for i, point in enumerate(points):
        if not isinstance(point, Mapping):
            raise TypeError(f'points[{i}] must be a configuration such as {{"lr": 0.1}}, got {point!r:.80}')
        spec.tuner.points.add().CopyFrom(to_value(dict(point), f"points[{i}]").struct_value)


def check_earlier(earlier: Any) -> None:
    """Raise TypeError if this is nothing to start from."""
    for one in _several(earlier):
        if not isinstance(one, (Result, SweepHandle, str)):
            raise TypeError(f"warm_start must be a result, a handle or the id of a sweep, or several, got {one!r:.80}")


def start_warm(spec: pb.SweepSpec, earlier: WarmStart, load: Callable[[str], Result]) -> None:
    """Put the best configurations of earlier sweeps first, and tell a sampler that learns of all their trials.

    What of a configuration the space does not hold is left out, and those of which nothing is left.
    """
    space = Known(spec.space)
    plugin = spec.tuner.plugin if spec.tuner.WhichOneof("kind") == "plugin" else None
    for one in _several(earlier):
        result = one if isinstance(one, Result) else one.result() if isinstance(one, SweepHandle) else load(one)
        if (result.sweep.metric, result.sweep.mode) != (spec.metric, spec.mode):
            raise ValueError(
                f"warm_start: {result.sweep.id} is about {result.sweep.mode} {result.sweep.metric}, "
                f"this sweep about {spec.mode} {spec.metric}"
            )
        known = known_trials(result)
        sign = 1 if spec.mode == "min" else -1
        ranked = sorted((t for t in known if math.isfinite(t["value"])), key=lambda t: sign * float(t["value"]))
        for trial in ranked[:_BEST]:
            if point := fitting(space, trial["params"]):
                spec.tuner.points.add().CopyFrom(to_value(point, "warm_start").struct_value)
        if plugin is not None and plugin.HasField("rule"):
            values = plugin.settings.fields["prior"].list_value.values
            values.extend(to_value(trial, "warm_start") for trial in known)


def fitting(space: Known, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a flat configuration lies in a space, nested."""
    found: dict[str, Any] = {}
    for d in space:
        if d.kind == "constant" or d.path not in params or not d.holds(params[d.path]):
            continue
        *around, name = d.path.split(".")
        inside = found
        for key in around:
            inside = inside.setdefault(key, {})
        inside[name] = params[d.path]
    return found


def _several(earlier: Any) -> list[Any]:
    if isinstance(earlier, (Result, SweepHandle, str)) or not isinstance(earlier, Sequence):
        return [earlier]
    return list(earlier)
