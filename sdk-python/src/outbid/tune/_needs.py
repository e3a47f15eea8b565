"""What a trial needs in Outbid's terms: whole devices, and cores beside them."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

from outbid._client import Client
from outbid._resources import Resources
from outbid._user_warning import warn_user
from outbid.tune._config import Placement
from outbid.tune._growth import Growth
from outbid.tune._plan import Plan
from outbid.tune.schedulers import ResourceChangingScheduler
from outbid.v1 import event_pb2
from outbid.v1 import service_pb2 as pb

_CORE = "cpu"  # the type of a device that is a CPU core


def needed(plan: Plan, client: Client) -> Resources:
    """Return what each trial of an experiment needs."""
    g = plan.growth
    _warn(plan.placement)
    if g is None:
        return _fixed(plan.placement, client)
    if g.kind == "CPU":
        return Resources(devices=(g.least, g.most), types=(_CORE,))
    return Resources(devices=(g.least, g.most), exclude_types=(_CORE,))


def growth_of(scheduler: Any, placement: Placement, client: Client) -> Growth | None:
    """Return how trials grow if a scheduler has them use what others left, and the cluster has more than they need."""
    growth = scheduler.growth(placement) if isinstance(scheduler, ResourceChangingScheduler) else None
    if growth is None:
        return None
    nodes = [
        sum((device.type == _CORE) == (growth.kind == "CPU") for device in node.info.devices)
        for node in client.rpc.list_nodes(pb.ListNodesRequest()).nodes
        if node.state == event_pb2.NODE_STATE_UP
    ]
    most = growth.bound(nodes)
    if most > growth.least:
        return replace(growth, most=most)
    what = "GPUs" if growth.kind == "GPU" else "CPU cores as devices"
    warn_user(
        f"{type(scheduler).__name__}: trials keep what they start with, {growth.least} of {growth.kind} each: the "
        f"cluster's nodes offer {nodes or 'no'} {what}, of which one trial could have {max(0, most)}",
    )
    return None


def _warn(placement: Placement) -> None:
    """Say what is asked for and cannot be."""
    wanted = placement.required_resources
    for name in wanted:
        if name not in ("CPU", "GPU", "memory", "object_store_memory") and not name.startswith("accelerator_type:"):
            warn_user(f"the resource {name!r} is unknown here and left out")
    gpus = wanted.get("GPU", 0.0)
    if gpus != int(gpus):
        warn_user(f"a device has one trial at a time: {gpus:g} GPU counts as {math.ceil(gpus)}")


def _fixed(placement: Placement, client: Client) -> Resources:
    """Return what trials need that keep what they start with."""
    wanted = placement.required_resources
    gpus, cpus = wanted.get("GPU", 0.0), wanted.get("CPU", 0.0)
    if gpus:
        return Resources(devices=math.ceil(gpus), exclude_types=(_CORE,))
    if cpus > 1 and client.local:
        most = os.cpu_count() or 1
        if cpus > most:
            warn_user(f"this machine has {most} cores: a trial that asks for {cpus:g} has {most}")
        cpus = min(cpus, most)
    return Resources(cpus=cpus if cpus > 1 else 0.0)
