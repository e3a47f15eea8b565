"""Stored objects of a sweep: its trials' checkpoints, and soups made of them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

from outbid._core.proto_convert import time_of
from outbid.v1 import event_pb2


@dataclass(frozen=True)
class Checkpoint:
    """A stored checkpoint. `size` is in bytes; `metric` is the value of the sweep's metric when it was saved.

    `shards` is the number of its shards, or 0 if it was saved as one file. Then `sha256` is that of their manifest.
    """

    step: int
    size: int
    sha256: str
    metric: float | None
    key: str
    shards: int = 0


@dataclass(frozen=True)
class Ingredient:
    """A trial that was considered for a soup.

    `metric` is its best value. `soup` is the value of the mean with it, or None without `evaluate`. `note` says why it
    could not be averaged.
    """

    trial: int
    metric: float
    soup: float | None
    kept: bool
    note: str = ""


@dataclass(frozen=True)
class SoupInfo:
    """A soup that a sweep keeps: an average of its checkpoints.

    `size` is in bytes; `ingredients` are sorted best first.

    `metric` is its value on held-out data, or None if it was not evaluated.
    """

    number: int
    metric: float | None
    size: int
    sha256: str
    key: str
    time: datetime.datetime | None
    actor: str
    ingredients: tuple[Ingredient, ...] = field(repr=False)


def checkpoint_info(checkpoint: event_pb2.Checkpoint) -> Checkpoint:
    """Convert a checkpoint of the API."""
    return Checkpoint(
        step=checkpoint.step,
        size=checkpoint.bytes + checkpoint.shard_bytes,
        shards=checkpoint.shards,
        sha256=checkpoint.sha256,
        metric=checkpoint.metric if checkpoint.HasField("metric") else None,
        key=checkpoint.key,
    )


def soup_info(soup: event_pb2.Soup) -> SoupInfo:
    """Convert a soup of the API."""
    return SoupInfo(
        number=soup.number,
        metric=soup.metric if soup.HasField("metric") else None,
        size=soup.bytes,
        sha256=soup.sha256,
        key=soup.key,
        time=time_of(soup, "time"),
        actor=soup.actor,
        ingredients=tuple(
            Ingredient(p.trial, p.metric, p.soup if p.HasField("soup") else None, p.kept, p.note) for p in soup.parts
        ),
    )
