"""Names of Ray's `tune.execution.placement_groups` and `tune.resources`."""

from __future__ import annotations

from typing import Any

from outbid.tune._absent_names import absent
from outbid.tune._config import Placement as PlacementGroupFactory
from outbid.tune._config import placement_of

resource_dict_to_pg_factory = placement_of
Resources = dict


def __getattr__(name: str) -> Any:
    absent(__name__, name)


__all__ = ["PlacementGroupFactory", "Resources", "resource_dict_to_pg_factory"]
