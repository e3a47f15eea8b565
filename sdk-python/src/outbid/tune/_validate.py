"""Checks of a trainable before it is tuned."""

from __future__ import annotations

import inspect
import tempfile
from typing import Any

from outbid._core.errors import FunctionError


def validate_save_restore(trainable_cls: Any, config: dict[str, Any] | None = None, num_gpus: int = 0) -> bool:
    """Train an iteration, save, restore into another instance, and train it further. Raises on any error."""
    first = trainable_cls(dict(config or {}))
    first.train()
    second = trainable_cls(dict(config or {}))
    with tempfile.TemporaryDirectory(prefix="checkpoint_") as place:
        second.restore(first.save(place))
        done = second.train()["training_iteration"]
        for one in (first, second):
            one.stop()
    if done != 2:
        raise RuntimeError(f"after a restore the iteration must be 2, got {done}")
    return True


def diagnose_serialization(trainable: Any) -> bool | set[str]:
    """Return True if a trainable can be sent to workers, otherwise the names of things it uses that cannot."""
    import cloudpickle

    from outbid._core import function_pickle

    try:
        function_pickle.dump(trainable)
        return True
    except FunctionError as error:
        print(error)
    try:
        used = inspect.getclosurevars(trainable)
    except TypeError:  # a class or a callable object
        return set()
    wrong = set()
    for name, value in {**used.globals, **used.nonlocals}.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            print(f"  {name} = {value!r:.80}: {type(error).__name__}: {error}")
            wrong.add(name)
    return wrong
