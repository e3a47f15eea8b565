"""Converts the resources of trials to Outbid's: whole devices, and cores for them."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

from outbid._client.client import Client
from outbid._core.user_warning import warn_user
from outbid._search.resources import Resources
from outbid.tune._config import Placement
from outbid.tune._elastic import Growth
from outbid.tune._plan import Plan
from outbid.tune.schedulers import ResourceChangingScheduler
from outbid.v1 import event_pb2
from outbid.v1 import service_pb2 as pb

_CORE = "cpu"  # the type of a device that is a CPU core


def needed(plan: Plan, client: Client) -> Resources:
    """Return the resources of each trial of an experiment."""
    g = plan.growth
    _warn(plan.placement)
    if g is None:
        return _fixed(plan.placement, client)
    if g.kind == "CPU":
        return Resources(devices=(g.least, g.most), types=(_CORE,))
    return Resources(devices=(g.least, g.most), exclude_types=(_CORE,))


def growth_of(scheduler: Any, placement: Placement, client: Client) -> Growth | None:
    """Return how trials grow, or None if the scheduler does not let them or the cluster has too few devices."""
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
        f"{type(scheduler).__name__}: trials keep their initial resources, {growth.least} {growth.kind} each: the "
        f"cluster's nodes have {nodes or 'no'} {what}, and one trial could use at most {max(0, most)}",
    )
    return None


def _warn(placement: Placement) -> None:
    """Warn about resources that are not supported."""
    wanted = placement.required_resources
    for name in wanted:
        if name not in ("CPU", "GPU", "memory", "object_store_memory") and not name.startswith("accelerator_type:"):
            warn_user(f"the resource {name!r} is not supported and is ignored")
    gpus = wanted.get("GPU", 0.0)
    if gpus != int(gpus):
        warn_user(f"devices are not shared by trials: {gpus:g} GPU counts as {math.ceil(gpus)}")


def _fixed(placement: Placement, client: Client) -> Resources:
    """Return the resources of trials that keep their initial resources."""
    wanted = placement.required_resources
    gpus, cpus = wanted.get("GPU", 0.0), wanted.get("CPU", 0.0)
    if gpus:
        return Resources(devices=math.ceil(gpus), exclude_types=(_CORE,))
    if cpus > 1 and client.local:
        most = os.cpu_count() or 1
        if cpus > most:
            warn_user(f"this machine has {most} cores: a trial that requests {cpus:g} gets {most}")
        cpus = min(cpus, most)
    return Resources(cpus=cpus if cpus > 1 else 0.0)
