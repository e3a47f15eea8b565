"""How a trial that may have more devices than it starts with counts what it has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from outbid.tune._config import Placement


@dataclass(frozen=True)
class Growth:
    """What trials start with, and what they are given more of: GPUs where they have any, CPU cores otherwise."""

    base: Placement
    step: Mapping[str, float]
    """What is added at a time."""
    times: int = 0
    """How often it is added at the most; 0 for any number of times."""
    add_bundles: bool = False
    reserved: Mapping[str, float] | None = None
    """What no trial is given beyond its start."""
    most: int = 0
    """The most devices of a trial, once the cluster is known."""

    @property
    def kind(self) -> str:
        """What a device counts as."""
        return "GPU" if self.base.required_resources.get("GPU") else "CPU"

    @property
    def least(self) -> int:
        """The devices that a trial starts with at least."""
        return max(1, math.ceil(self.base.required_resources.get(self.kind, 0.0)))

    def bound(self, nodes: list[int]) -> int:
        """Return the most devices of a trial, one process on one node, where nodes have so many each."""
        kept = (self.reserved or {}).get(self.kind, 0.0)
        most = min(max(nodes, default=0), math.floor(sum(nodes) - kept))
        if self.times > 0:
            most = min(most, math.floor(self.least + self.times * self.step[self.kind]))
        return most

    def has(self, devices: int) -> Placement:
        """Return what a trial has that was given so many devices."""
        own = self.base.required_resources.get(self.kind, 0.0)
        more = devices - own
        if devices <= self.least or more <= 0:
            return self.base
        bundles = [dict(bundle) for bundle in self.base.bundles]
        whole, rest = divmod(more, self.step[self.kind])
        if self.add_bundles:
            bundles += [dict(self.step) for _ in range(int(whole))] + [{self.kind: rest}] * bool(rest)
        else:
            for name, n in self.step.items():
                bundles[0][name] = bundles[0].get(name, 0.0) + (more if name == self.kind else whole * n)
        return Placement(bundles, self.base.strategy, **self.base.options)
