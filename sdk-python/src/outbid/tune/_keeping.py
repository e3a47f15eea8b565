"""Which checkpoints of a trial are its best: those stay in its directory, and the newest beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from outbid.tune._config import CheckpointConfig

T = TypeVar("T")


def score(rules: CheckpointConfig, result: Mapping[str, Any], flat: Mapping[str, Any]) -> float:
    """Return how good the checkpoint of a result is, more being better; without a value to go by it is the worst."""
    by = rules.checkpoint_score_attribute
    if not by:
        return 0.0
    value = result.get(by, flat.get(by))
    if value is None or math.isnan(value):
        return -math.inf
    return float(value) if rules.checkpoint_score_order == "max" else -float(value)


def best(rules: CheckpointConfig, scored: Iterable[tuple[T, float]]) -> list[T]:
    """Return as many as are to be kept, the best last; of equals, and where nothing is to go by, the newest."""
    ordered = [one for one, _ in sorted(scored, key=lambda pair: pair[1])]
    return ordered[-rules.num_to_keep :] if rules.num_to_keep else ordered
