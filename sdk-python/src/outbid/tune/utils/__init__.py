"""Helpers of Ray Tune's."""

from __future__ import annotations

import time
from typing import Any

from outbid.tune._trial import flatten as flatten_dict
from outbid.tune._validate import diagnose_serialization, validate_save_restore


def wait_for_gpu(*args: Any, **kwargs: Any) -> bool:
    """Return at once: a trial's devices are its own."""
    return True


def date_str() -> str:
    """Return the time as text."""
    return time.strftime("%Y-%m-%d_%H-%M-%S")


__all__ = ["date_str", "diagnose_serialization", "flatten_dict", "validate_save_restore", "wait_for_gpu"]
