"""Which checkpoints of a trial are its best: those stay in its directory, and the newest beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from outbid.tune import _order
from outbid.tune._config import CheckpointConfig

T = TypeVar("T")


def score(rules: CheckpointConfig, result: Mapping[str, Any], flat: Mapping[str, Any]) -> _order.Rank:
    """Return how good the checkpoint of a result is, more being better; without a value to go by it is the worst."""
    by = rules.checkpoint_score_attribute
    return _order.rank(result.get(by, flat.get(by)) if by else None, rules.checkpoint_score_order)


def best(rules: CheckpointConfig, scored: Iterable[tuple[T, _order.Rank]]) -> list[T]:
    """Return as many as are to be kept, the best last; of equals, and where nothing is to go by, the newest."""
    ordered = [one for one, _ in sorted(scored, key=lambda pair: pair[1])]
    return ordered[-rules.num_to_keep :] if rules.num_to_keep else ordered
