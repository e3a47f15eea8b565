"""A mistake has one wording: the SDK's own checks raise the errors that the server returns for a YAML file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import json_format

import outbid as ob
from outbid.errors import InvalidError
from outbid.v1 import sweep_pb2 as pb

GOOD: dict[str, Any] = {
    "name": "x",
    "metric": "loss",
    "mode": "min",
    "space": {"a": {"float": {"low": 0, "high": 1}}},
    "tuner": {"random": {}},
    "limits": {"trials": 2},
    "program": {"shell": "true"},
}


def sweep(**changes: Any) -> Callable[[], Any]:
    given: dict[str, Any] = {"space": {"a": ob.uniform(0, 1)}, "metric": "loss", "mode": "min", "trials": 2}
    return lambda: ob.Sweep(print, **{**given, **changes}).preview()


def number(low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"space": {"a": {"float": {"low": low, "high": high, **more}}}}


def whole(low: int, high: int, **more: Any) -> dict[str, Any]:
    return {"space": {"a": {"int": {"low": low, "high": high, **more}}}}


MISTAKES: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
    "mode of another library": ({"mode": "minimize"}, sweep(mode="minimize")),
    "unknown mode": ({"mode": "up"}, sweep(mode="up")),
    "no metric": ({"metric": ""}, sweep(metric="")),
    "low above high": (number(2, 1), lambda: ob.uniform(2, 1)),
    "whole low above high": (whole(3, 1), lambda: ob.integer(3, 1)),
    "logarithm of 0": (number(0, 1, log=True), lambda: ob.loguniform(0, 1)),
    "logarithm of a whole 0": (whole(0, 8, log=True), lambda: ob.integer(0, 8, log=True)),
    "empty choice": ({"space": {"a": {"choice": {"values": []}}}}, lambda: ob.choice([])),
    "name of a parameter": ({"space": {"l r": {"int": {"low": 1, "high": 2}}}}, sweep(space={"l r": ob.integer(1, 2)})),
    "empty space": ({"space": {}}, sweep(space={})),
    "name of the sweep": ({"name": "My Sweep"}, sweep(name="My Sweep")),
    "no limit": ({"limits": {}}, sweep(trials=None, tuner=ob.Random())),
    "limit of time": ({"limits": {"wall_time": "soon"}}, sweep(wall_time="soon")),
    "limit of device-hours": (
        {"limits": {"trials": 1, "device_hours": -1}},
        sweep(trials=None, limits=ob.Limits(trials=1, device_hours=-1)),
    ),
    "limit of the cost": (
        {"limits": {"trials": 1, "cost": -1}},
        sweep(trials=None, limits=ob.Limits(trials=1, cost=-1)),
    ),
    "hang_timeout": ({"hang_timeout": "soon"}, sweep(hang_timeout="soon")),
    "deadline": ({"deadline": "soon"}, sweep(deadline="soon")),
    "max_restarts": ({"max_restarts": -1}, sweep(max_restarts=-1)),
    "cores": ({"resources": {"cpus": -1}}, sweep(resources=ob.Resources(cpus=-1))),
    "memory": ({"resources": {"memory": "lots"}}, sweep(resources=ob.Resources(memory="lots"))),
    "condition": ({"constraints": ["a <"]}, sweep(constraints=["a <"])),
    "point": ({"tuner": {"random": {}, "points": [{"b": 1}]}}, sweep(points=[{"b": 1}])),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_mistake_has_one_wording(real: ob.Client, mistake: str) -> None:
    spec, make = MISTAKES[mistake]
    with pytest.raises(InvalidError) as refused:
        real.preview_spec(json_format.ParseDict({**GOOD, **spec}, pb.SweepSpec()))
    with pytest.raises((ValueError, InvalidError)) as raised:
        make()
    _, _, words = str(refused.value).partition(": ")
    assert words and str(raised.value).endswith(words), (str(refused.value), str(raised.value))
