"""Simulations of other policies and weights."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from outbid._core import validation
from outbid.v1 import service_pb2 as pb


@dataclass(frozen=True)
class SimulatedSweep:
    """How a sweep fared.

    `sweep` is "" if it belongs to another tenant. `seconds` until its end is None if it did not end, and `rho`, its
    finish-time fairness, if it is unknown. With `unknown_speed` no trial has shown its speed, and a simulation only
    guesses.
    """

    sweep: str
    submitted: datetime
    seconds: float | None
    rho: float | None
    device_seconds: float
    unknown_speed: bool


@dataclass(frozen=True)
class SimulatedRun:
    """How the sweeps fared under `policy`, or in reality if that is "".

    `weight` is that of the sweep that had another, or 0. The real run has the `assumptions` of the simulations.
    """

    policy: str
    weight: float
    sweeps: tuple[SimulatedSweep, ...]
    assumptions: tuple[str, ...]


def request(
    policies: Iterable[str], sweep: str, weight: float | None, since: datetime | None, until: datetime | None
) -> pb.SimulateLedgerRequest:
    """Return the request of the API."""
    names = [validation.text("what_if: policies", name) for name in policies]
    if (sweep == "") != (weight is None):
        raise ValueError("what_if: sweep and weight must be given together")
    if not names and sweep == "":
        raise ValueError("what_if: policies must name a policy, unless sweep and weight are given")
    made = pb.SimulateLedgerRequest(policies=names, sweep=validation.text("what_if: sweep", sweep))
    if weight is not None:
        if not (math.isfinite(validation.number("what_if: weight", weight)) and weight > 0):
            raise ValueError(f"what_if: weight must be a number above 0, got {weight!r}")
        made.weight = weight
    if since is not None:
        made.since.FromDatetime(since)
    if until is not None:
        made.until.FromDatetime(until)
    return made


def runs(found: Iterable[pb.SimulateLedgerResponse]) -> list[SimulatedRun]:
    """Convert an answer of the API."""
    return [_run(piece.run) for piece in found if piece.HasField("run")]


def _run(run: pb.SimulatedRun) -> SimulatedRun:
    return SimulatedRun(run.policy, run.weight, tuple(_sweep(s) for s in run.sweeps), tuple(run.assumptions))


def _sweep(s: pb.SimulatedSweep) -> SimulatedSweep:
    return SimulatedSweep(
        sweep=s.sweep,
        submitted=s.submitted.ToDatetime(timezone.utc),
        seconds=s.seconds if s.HasField("seconds") else None,
        rho=s.rho if s.HasField("rho") else None,
        device_seconds=s.device_seconds,
        unknown_speed=s.unknown_speed,
    )
