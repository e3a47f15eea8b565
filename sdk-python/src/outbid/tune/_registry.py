"""Registry of trainables and environments by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from outbid.tune._absent_names import absent
from outbid.tune._errors import UnknownTrainableError, unsupported
from outbid.tune._trainable import Trainable, unwrapped

_trainables: dict[str, Any] = {}
_environments: dict[str, Callable[..., Any]] = {}


def register_trainable(name: str, trainable: Any, warn: bool = True) -> None:
    """Register a trainable under a name."""
    if not callable(trainable):
        raise TypeError(f"register_trainable: expected a function or a class, got {trainable!r:.80}")
    _trainables[name] = trainable


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Register an environment for RLlib, which Outbid does not have."""
    if not callable(env_creator):
        raise TypeError(f"register_env: expected a function, got {env_creator!r:.80}")
    _environments[name] = env_creator


def get_trainable_cls(name: str) -> Any:
    """Return the class or function that is registered under a name."""
    return find_trainable(str(name))


def validate_trainable(trainable_name: str) -> None:
    """Raise UnknownTrainableError, a TuneError, for a name that is not registered."""
    find_trainable(str(trainable_name))


def is_function_trainable(trainable: Any) -> bool:
    """Return whether a trainable, given by itself or by name, is a function."""
    return not inspect.isclass(unwrapped(find_trainable(trainable)))


def find_trainable(trainable: Any) -> Any:
    """Return a trainable by itself or by name: a function of a config, or a class."""
    if isinstance(trainable, str):
        if trainable not in _trainables:
            known = ", ".join(sorted(_trainables)) or "none"
            raise UnknownTrainableError(
                f"there is no trainable {trainable!r}; registered are {known}. RLlib's algorithms are not supported by "
                "name: write a Trainable that builds the algorithm in setup() and trains it in step()"
            )
        return find_trainable(_trainables[trainable])
    inner = unwrapped(trainable)
    if inspect.isclass(inner):
        if not issubclass(inner, Trainable) and not hasattr(inner, "step"):
            raise TypeError(f"{inner.__name__} is not a tune.Trainable: it has no step()")
        return trainable
    if type(inner).__name__.endswith("Trainer") and hasattr(inner, "fit"):
        unsupported(
            f"Ray Train's {type(inner).__name__}",
            "tune a function that trains on the devices of its trial; outbid.Resources(devices=, processes=) has gangs",
        )
    if not callable(inner):
        raise TypeError(f"expected a training function or a tune.Trainable, got {inner!r:.80}")
    _check_arguments(trainable, inner)
    return trainable


def _check_arguments(function: Any, inner: Any) -> None:
    """Raise ValueError for a function that cannot be called with a configuration only, before any trial fails."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return
    given = {name: None for name in ("checkpoint_dir", "reporter") if name in signature.parameters}
    try:
        signature.bind({}, **given)
    except TypeError as error:
        raise ValueError(
            f"the training function {getattr(inner, '__name__', inner)}{signature} must take the configuration as its "
            f"only argument ({error}); bind others with tune.with_parameters"
        ) from None


def __getattr__(name: str) -> Any:
    absent(__name__, name)
