"""Ray inside a trial that runs on a worker of `up`."""

from __future__ import annotations

import os
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from outbid.ray._setup import BUNDLE


def connect(**options: Any) -> Any:
    """Connect a trial to the Ray cluster of its worker; returns the scheduling strategy of its bundle.

        there = outbid.ray.connect()
        ray.get(shard.options(scheduling_strategy=there).remote(0))

    `options` are passed to `ray.init`; they have no effect in a process that is already connected.
    """
    strategy = bundle()
    if not ray.is_initialized():
        ray.init(**{"log_to_driver": False, **options})
    return strategy


def bundle() -> Any:
    """Return the scheduling strategy that runs tasks, actors and their children in the trial's bundle."""
    named = os.environ.get(BUNDLE)
    if not named:
        raise RuntimeError("outbid.ray.bundle: must be called in a trial on a worker that outbid.ray.up started")
    group, _, index = named.partition(":")
    return PlacementGroupSchedulingStrategy(
        PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group))),
        placement_group_bundle_index=int(index),
        placement_group_capture_child_tasks=True,
    )
