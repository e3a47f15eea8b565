"""Utilities of Ray Tune."""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Callable
from typing import Any

from outbid.tune._dicts import (
    deep_update,
    flatten_dict,
    merge_dicts,
    unflatten_dict,
    unflatten_list_dict,
    unflattened_lookup,
)
from outbid.tune._errors import UnsupportedError, unsupported
from outbid.tune._validate import diagnose_serialization, validate_save_restore

_ELSEWHERE = {
    "Tee": "RunConfig(log_to_file=True) writes what trials print into files",
    "retry_fn": "FailureConfig(max_failures=3) restarts a trial; call your function in a loop",
    "validate_warmstart": "OptunaSearch(points_to_evaluate=, evaluated_rewards=) checks its arguments itself",
    "get_current_node_resource_key": "tune.get_context().get_trial_resources() says what a trial has",
}
"""Ray's names that Outbid does not have, with alternatives."""


class UtilMonitor:
    """Not supported: it monitors a machine in a thread."""

    def __init__(self, start: bool = True, delay: float = 0.7) -> None:
        unsupported("UtilMonitor", "report values of psutil, such as psutil.cpu_percent(), in the training function")


class warn_if_slow:
    """Warns if a block takes longer than `threshold` seconds."""

    def __init__(
        self, name: str, threshold: float | None = None, message: str | None = None, disable: bool = False
    ) -> None:
        self.name, self.threshold = name, 0.5 if threshold is None else threshold
        self.message = message or "The `{name}` operation took {duration:.3f} s, which may be a performance bottleneck."
        self.disable, self.too_slow = disable, False

    def __enter__(self) -> None:
        self.start = time.time()

    def __exit__(self, *error: object) -> None:
        took = time.time() - self.start
        self.too_slow = not self.disable and took > self.threshold
        if self.too_slow:
            logging.getLogger(__name__).warning(self.message.format(name=self.name, duration=took))


def wait_for_gpu(*args: Any, **kwargs: Any) -> bool:
    """Return at once, because a trial does not share its devices."""
    return True


def date_str() -> str:
    """Return the current time as text."""
    return time.strftime("%Y-%m-%d_%H-%M-%S")


def is_nan(value: Any) -> bool:
    """Return whether a value is NaN."""
    return bool(math.isnan(value))


def is_nan_or_inf(value: Any) -> bool:
    """Return whether a value is NaN or infinite."""
    return not math.isfinite(value)


def _detect_config_single(func: Callable[..., Any]) -> bool:
    """Return whether a function takes only a configuration."""
    try:
        inspect.signature(func).bind({})
    except (TypeError, ValueError):
        return False
    return True


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        raise UnsupportedError(f"outbid.tune.utils has no {name}: {_ELSEWHERE[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "UtilMonitor",
    "date_str",
    "deep_update",
    "diagnose_serialization",
    "flatten_dict",
    "is_nan",
    "is_nan_or_inf",
    "merge_dicts",
    "unflatten_dict",
    "unflatten_list_dict",
    "unflattened_lookup",
    "validate_save_restore",
    "wait_for_gpu",
    "warn_if_slow",
]
