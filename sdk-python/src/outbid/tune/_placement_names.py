"""Names of Ray's `tune.execution.placement_groups` and `tune.resources`."""

from __future__ import annotations

from outbid.tune._config import Placement as PlacementGroupFactory
from outbid.tune._config import placement_of

resource_dict_to_pg_factory = placement_of
Resources = dict

__all__ = ["PlacementGroupFactory", "Resources", "resource_dict_to_pg_factory"]
