"""Names of Ray's `tune.trainable`."""

from __future__ import annotations

from typing import Any

from outbid.tune._trainable import Trainable, with_parameters, with_resources


def wrap_function(train_func: Any, name: str | None = None) -> Any:
    """Return the function: Outbid runs it as it is."""
    return train_func


__all__ = ["Trainable", "with_parameters", "with_resources", "wrap_function"]
