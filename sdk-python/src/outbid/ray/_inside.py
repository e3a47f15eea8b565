"""Ray inside a trial that runs on a worker of `up`."""

from __future__ import annotations

import os
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from outbid.ray._setup import BUNDLE


def connect(**options: Any) -> Any:
    """Connect a trial to the cluster of Ray's that its worker runs in; returns the scheduling strategy of its bundle.

        there = outbid.ray.connect()
        ray.get(shard.options(scheduling_strategy=there).remote(0))

    `options` go to `ray.init`; in a process that is connected already they do nothing.
    """
    strategy = bundle()
    if not ray.is_initialized():
        ray.init(**{"log_to_driver": False, **options})
    return strategy


def bundle() -> Any:
    """Return the scheduling strategy that puts tasks and actors on the trial's bundle, and theirs after them."""
    named = os.environ.get(BUNDLE)
    if not named:
        raise RuntimeError("outbid.ray.bundle: this is no trial on a worker that outbid.ray.up started")
    group, _, index = named.partition(":")
    return PlacementGroupSchedulingStrategy(
        PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group))),
        placement_group_bundle_index=int(index),
        placement_group_capture_child_tasks=True,
    )
