"""Names of Ray's `tune.trainable`."""

from __future__ import annotations

from typing import Any

from outbid.tune._errors import unsupported
from outbid.tune._trainable import Trainable, with_parameters, with_resources


class FunctionTrainable(Trainable):
    """Ray's class for a training function; Outbid runs the function as it is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        unsupported("instances of FunctionTrainable", "give the training function itself, or write a tune.Trainable")


def wrap_function(train_func: Any, name: str | None = None) -> Any:
    """Return the function, because Outbid runs it as it is."""
    return train_func


__all__ = ["FunctionTrainable", "Trainable", "with_parameters", "with_resources", "wrap_function"]
