"""Initial configurations of a sweep, and the results of earlier sweeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from outbid._client.handle import SweepHandle
from outbid._results.result import Result
from outbid._search.space import to_value
from outbid._search.tuners import is_study, known_trials
from outbid.plugin._space import Space as Known
from outbid.v1 import sweep_pb2 as pb

if TYPE_CHECKING:
    import optuna

Earlier: TypeAlias = Union[Result, SweepHandle, str, "optuna.Study"]
WarmStart: TypeAlias = Earlier | Sequence[Earlier]
"""Earlier sweeps: results, handles or ids; or Optuna studies."""

_BEST = 3  # number of configurations of an earlier sweep that are tried again


def fill_points(
    spec: pb.SweepSpec,
    points: Sequence[Mapping[str, Any]],
    send: Callable[[Mapping[str, Any]], dict[str, Any]] = dict,
) -> None:
    """Add the first configurations to try to a spec. `send` returns what is sent for one.

    The server checks their values.
    """
    points = _rows(points)
    if isinstance(points, (str, bytes, Mapping)) or not hasattr(points, "__iter__"):
        raise TypeError(f'points must be a list of configurations such as {{"lr": 0.1}}, got {points!r:.80}')
    for i, point in enumerate(points):
        if not isinstance(point, Mapping):
            raise TypeError(f'points[{i}] must be a configuration such as {{"lr": 0.1}}, got {point!r:.80}')
        spec.tuner.points.add().CopyFrom(to_value(send(point), f"points[{i}]").struct_value)


def _rows(points: Any) -> Any:
    """Return the rows of a pandas DataFrame as configurations.

    Missing values are left out, so that they are sampled.
    """
    if isinstance(points, Mapping) and points and all(isinstance(column, (list, tuple)) for column in points.values()):
        raise TypeError(
            'points must be a list of configurations such as {"lr": 0.1}, got a dict of lists, '
            f"{points!r:.80}: give pandas.DataFrame(points), or a dict for each"
        )
    if not (hasattr(points, "columns") and hasattr(points, "to_dict")):
        return points
    filled = points.notna().to_dict("records")
    return [
        {name: value for name, value in row.items() if there[name]}
        for row, there in zip(points.to_dict("records"), filled, strict=True)
    ]


def check_earlier(earlier: Any) -> None:
    """Raise TypeError for an invalid `warm_start`."""
    for one in _several(earlier):
        if not isinstance(one, (Result, SweepHandle, str)) and not is_study(one):
            raise TypeError(
                "warm_start must be a result, a handle or the id of a sweep, an Optuna study, several of these, "
                f"or True, got {one!r:.80}"
            )


def start_warm(spec: pb.SweepSpec, earlier: WarmStart, load: Callable[[str], Result]) -> None:
    """Add the best configurations of earlier sweeps first, and pass all their trials to a sampler that learns.

    Parameters that do not fit into the space are left out, and so are configurations without any that fits.
    """
    space = Known(spec.space)
    plugin = spec.tuner.plugin if spec.tuner.WhichOneof("kind") == "plugin" else None
    for one in _several(earlier):
        known = known_trials(_earlier(one, spec, load))
        sign = 1 if spec.mode == "min" else -1
        ranked = sorted((t for t in known if math.isfinite(t["value"])), key=lambda t: sign * float(t["value"]))
        for trial in ranked[:_BEST]:
            if point := fitting(space, trial["params"]):
                spec.tuner.points.add().CopyFrom(to_value(point, "warm_start").struct_value)
        if plugin is not None and plugin.HasField("rule"):
            values = plugin.settings.fields["prior"].list_value.values
            values.extend(to_value(trial, "warm_start") for trial in known)


def _earlier(one: Any, spec: pb.SweepSpec, load: Callable[[str], Result]) -> Any:
    """Return a study or the result of an earlier sweep. Raises ValueError if its metric or mode differs."""
    if is_study(one):
        if len(one.directions) != 1:
            raise ValueError(f"warm_start: the study {one.study_name!r} has {len(one.directions)} objectives, not one")
        mode = "max" if one.direction.name == "MAXIMIZE" else "min"
        if mode != spec.mode:
            raise ValueError(f"warm_start: the study {one.study_name!r} has mode {mode}, this sweep {spec.mode}")
        return one
    result = one if isinstance(one, Result) else one.result() if isinstance(one, SweepHandle) else load(one)
    if (result.sweep.metric, result.sweep.mode) != (spec.metric, spec.mode):
        raise ValueError(
            f"warm_start: {result.sweep.id} optimises {result.sweep.mode} {result.sweep.metric}, "
            f"but this sweep {spec.mode} {spec.metric}"
        )
    return result


def fitting(space: Known, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a flat configuration that fits into a space, nested."""
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
