"""The leases of a trial, and the fork slots in which several forks train it."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from outbid._core.proto_convert import time_of
from outbid.v1 import event_pb2, service_pb2


@dataclass(frozen=True)
class Place:
    """A lease's share of one node. `type` is the devices' type, or "" if they have different ones."""

    node: str
    devices: tuple[int, ...]
    type: str
    ended: bool


@dataclass(frozen=True)
class Lease:
    """A trial's lease of devices, for one of its processes or one gang.

    `holder` is workers, or client for a trial given to a program by `ask`. `state` is starting, running, pausing or
    stopping. `places` are its nodes in the order of ranks. The trial started at `from_step` and is at `step`.
    """

    lease_id: int
    holder: str
    client: str
    state: str
    places: tuple[Place, ...]
    since: datetime.datetime | None
    term_end: datetime.datetime | None
    from_step: int
    step: int


@dataclass(frozen=True)
class ForkPart:
    """One fork's part of a fork slot; see `Trial.fork`.

    `share` is the number of steps that the fork should do, and `steps` those done; after its end, those saved.
    `counted` are the steps in its newest checkpoint during the slot, and those that entered the average afterwards.
    `steps_per_second` was measured in this slot, `forecast` is the speed that its share was computed from; 0 if
    unknown. `state` is starting, running, pausing, stopping or ended.
    """

    lease_id: int
    places: tuple[Place, ...]
    state: str
    share: int
    steps: int
    counted: int
    steps_per_second: float
    forecast: float


@dataclass(frozen=True)
class ForkRound:
    """A fork slot, in which several forks train a trial.

    All forks began at `from_step`. `ends` is the end of the slot. `consolidates_on` is the node that averages their
    checkpoints, or "" while they train.
    """

    from_step: int
    began: datetime.datetime | None
    ends: datetime.datetime | None
    forks: tuple[ForkPart, ...]
    consolidates_on: str


@dataclass(frozen=True)
class Merge:
    """A fork slot that has ended; the trial continued from `step`.

    `round` counts the trial's slots from 1. `averaged_on` is the node that averaged the checkpoints of the forks, or ""
    if the trial continued from one fork's checkpoint or from `from_step`; `reason` says why. If `forks_merge` is best,
    `verdict` is "pending", "kept" or "dropped", `metric` is the average's first reported value, and `best_metric` the
    best fork's; otherwise these are "" and None.
    """

    round: int
    from_step: int
    step: int
    began: datetime.datetime | None
    time: datetime.datetime | None
    forks: tuple[ForkPart, ...]
    averaged_on: str
    reason: str
    verdict: str = ""
    metric: float | None = None
    best_metric: float | None = None


def fork_facts(now: ForkRound | None, merges: tuple[Merge, ...]) -> list[tuple[str, str]]:
    """Return table rows about a trial's forks: those that train it, and the newest fork slot that has ended."""
    rows = []
    for i, fork in enumerate(now.forks if now else ()):
        where = ", ".join(f"{p.node} ({p.type})" if p.type else p.node for p in fork.places)
        pace = f", {fork.steps_per_second:.3g} steps/s" if fork.steps_per_second else ""
        rows.append((f"fork {i}", f"{fork.state} on {where}: {fork.steps} of {fork.share} steps{pace}"))
    if merges:
        last = merges[-1]
        how = f"averaged on {last.averaged_on}" if last.averaged_on else last.reason
        how += f", {last.verdict}" if last.verdict else ""
        rows.append((f"round {last.round}", f"step {last.from_step} to {last.step}, {how}"))
    return rows


def fork_round(now: service_pb2.TrialRound) -> ForkRound:
    """Convert a fork slot of the API."""
    return ForkRound(
        from_step=now.from_step,
        began=time_of(now, "began"),
        ends=time_of(now, "ends"),
        forks=tuple(_fork(fork) for fork in now.forks),
        consolidates_on=now.consolidates_on,
    )


_VERDICTS = {
    event_pb2.MERGE_VERDICT_PENDING: "pending",
    event_pb2.MERGE_VERDICT_KEPT: "kept",
    event_pb2.MERGE_VERDICT_DROPPED: "dropped",
}


def merge_info(merge: service_pb2.TrialMerge) -> Merge:
    """Convert an average of the API."""
    return Merge(
        round=merge.round,
        from_step=merge.from_step,
        step=merge.step,
        began=time_of(merge, "began"),
        time=time_of(merge, "time"),
        forks=tuple(_fork(fork) for fork in merge.forks),
        averaged_on=merge.averaged_on,
        reason=merge.reason,
        verdict=_VERDICTS.get(merge.verdict, ""),
        metric=merge.metric if merge.HasField("metric") else None,
        best_metric=merge.best_metric if merge.HasField("best_metric") else None,
    )


def _fork(fork: service_pb2.TrialFork) -> ForkPart:
    return ForkPart(
        lease_id=fork.lease_id,
        places=_places(fork.places),
        state=fork.state,
        share=fork.share,
        steps=fork.steps,
        counted=fork.counted,
        steps_per_second=fork.steps_per_second,
        forecast=fork.forecast_steps_per_second,
    )


def _places(places: Iterable[service_pb2.TrialPlace]) -> tuple[Place, ...]:
    return tuple(Place(p.node, tuple(p.devices), p.type, p.ended) for p in places)


def lease_info(lease: service_pb2.TrialLease) -> Lease:
    """Convert a lease of the API."""
    return Lease(
        lease_id=lease.lease_id,
        holder=lease.holder,
        client=lease.client,
        state=lease.state,
        places=_places(lease.places),
        since=time_of(lease, "since"),
        term_end=time_of(lease, "term_end"),
        from_step=lease.from_step,
        step=lease.step,
    )
