"""Ranking of a trial's checkpoints: its directory keeps the best ones and the newest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from outbid.tune import _order
from outbid.tune._config import CheckpointConfig

T = TypeVar("T")


def score(rules: CheckpointConfig, result: Mapping[str, Any], flat: Mapping[str, Any]) -> _order.Rank:
    """Return the rank of a result's checkpoint; higher is better. Without a value it is the worst."""
    by = rules.checkpoint_score_attribute
    return _order.rank(result.get(by, flat.get(by)) if by else None, rules.checkpoint_score_order)


def best(rules: CheckpointConfig, scored: Iterable[tuple[T, _order.Rank]]) -> list[T]:
    """Return the checkpoints to keep, the best last. Of equal ones, and without a criterion, the newest are better."""
    ordered = [one for one, _ in sorted(scored, key=lambda pair: pair[1])]
    return ordered[-rules.num_to_keep :] if rules.num_to_keep else ordered
