"""The use of devices over a period, for chargeback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from outbid.v1 import usage_pb2


@dataclass(frozen=True)
class UsageRow:
    """The use of devices by the sweeps with equal `values`, by column.

    `cost` is None if the price of one of the device types is not known.
    """

    values: Mapping[str, str]
    device_seconds: float
    cost: float | None

    @property
    def device_hours(self) -> float:
        """The device time in hours."""
        return self.device_seconds / 3600


@dataclass(frozen=True)
class Usage:
    """The use of devices until `until`: rows, sorted by their values, and their sum."""

    until: datetime
    rows: tuple[UsageRow, ...]
    total: UsageRow
    currency: str


def request(
    by: tuple[str, ...], since: datetime | None, until: datetime | None, prices: Mapping[str, float] | None
) -> usage_pb2.GetUsageRequest:
    """Return the request of the API."""
    made = usage_pb2.GetUsageRequest(by=by, prices=prices or {})
    if since is not None:
        made.since.FromDatetime(since)
    if until is not None:
        made.until.FromDatetime(until)
    return made


def usage(found: usage_pb2.GetUsageResponse) -> Usage:
    """Convert an answer of the API."""
    by = tuple(found.by)
    return Usage(
        until=found.until.ToDatetime(),
        rows=tuple(_row(row, by) for row in found.rows),
        total=_row(found.total, ()),
        currency=found.currency,
    )


def _row(row: usage_pb2.UsageRow, by: tuple[str, ...]) -> UsageRow:
    return UsageRow(
        values=dict(zip(by, row.values, strict=True)),
        device_seconds=row.device_seconds,
        cost=row.cost if row.HasField("cost") else None,
    )
