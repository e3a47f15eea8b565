"""Growth: the resources of a trial that may get more devices than it starts with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from outbid.tune._config import Placement


@dataclass(frozen=True)
class Growth:
    """The initial resources of trials, and their increments: GPUs if they have any, otherwise CPU cores."""

    base: Placement
    step: Mapping[str, float]
    """The increment."""
    times: int = 0
    """The maximum number of increments; 0 for no limit."""
    add_bundles: bool = False
    reserved: Mapping[str, float] | None = None
    """Resources that increments never use."""
    most: int = 0
    """The maximum devices of a trial, when the cluster is known."""

    @property
    def kind(self) -> str:
        """The resource that a device counts as."""
        return "GPU" if self.base.required_resources.get("GPU") else "CPU"

    @property
    def least(self) -> int:
        """The minimum number of devices of a trial."""
        return max(1, math.ceil(self.base.required_resources.get(self.kind, 0.0)))

    def bound(self, nodes: list[int]) -> int:
        """Return the maximum devices of a trial. It is one process on one node; `nodes` are their device counts."""
        kept = (self.reserved or {}).get(self.kind, 0.0)
        most = min(max(nodes, default=0), math.floor(sum(nodes) - kept))
        if self.times > 0:
            most = min(most, math.floor(self.least + self.times * self.step[self.kind]))
        return most

    def has(self, devices: int) -> Placement:
        """Return the resources of a trial with a number of devices."""
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
