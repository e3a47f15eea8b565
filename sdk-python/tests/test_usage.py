"""The request and the answer of `Client.usage`."""

from datetime import datetime, timedelta, timezone

import pytest

from outbid._client import usage
from outbid.v1 import usage_pb2


def test_request() -> None:
    east = timezone(timedelta(hours=2))
    made = usage.request(("tenant", "label.x"), datetime(2026, 11, 1, 2, tzinfo=east), None, {"h100": 2.5})
    assert list(made.by) == ["tenant", "label.x"]
    assert made.since.ToJsonString() == "2026-11-01T00:00:00Z"
    assert not made.HasField("until")
    assert dict(made.prices) == {"h100": 2.5}


def test_answer() -> None:
    found = usage_pb2.GetUsageResponse(by=["tenant"], currency="EUR")
    found.until.FromJsonString("2026-11-02T00:00:00Z")
    found.rows.add(values=["vision"], device_seconds=7200, cost=3)
    found.total.device_seconds = 7200
    got = usage.usage(found)
    assert got.until == datetime(2026, 11, 2)
    assert got.rows == (usage.UsageRow({"tenant": "vision"}, 7200, 3),)
    assert got.rows[0].device_hours == pytest.approx(2)
    assert got.total.cost is None
