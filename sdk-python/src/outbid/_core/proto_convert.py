"""Conversion of states and times of the API's messages."""

from __future__ import annotations

import datetime
from typing import Any

from google.protobuf import timestamp_pb2

_WORDS = {"TRIAL_STATE_STOPPED": "pruned", "TRIAL_STATE_CANCELLED": "stopped"}  # the schema has older names


def word(name: str) -> str:
    """Convert a state, such as TRIAL_STATE_RUNNING to "running"."""
    return _WORDS.get(name) or name.split("_STATE_", 1)[1].lower()


def time_of(message: Any, name: str) -> datetime.datetime | None:
    """Return a field's time, or None if it is not set."""
    if not message.HasField(name):
        return None
    stamp: timestamp_pb2.Timestamp = getattr(message, name)
    return stamp.ToDatetime(tzinfo=datetime.timezone.utc)
