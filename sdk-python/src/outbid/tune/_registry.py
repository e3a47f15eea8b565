"""Trainables and environments by name."""

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
    """Let a trainable be named by a string."""
    if not callable(trainable):
        raise TypeError(f"register_trainable: expected a function or a class, got {trainable!r:.80}")
    _trainables[name] = trainable


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Note an environment, which RLlib would look up; Outbid has no RLlib."""
    if not callable(env_creator):
        raise TypeError(f"register_env: expected a function, got {env_creator!r:.80}")
    _environments[name] = env_creator


def get_trainable_cls(name: str) -> Any:
    """Return what is registered under a name: the class, or the function itself."""
    return find_trainable(str(name))


def validate_trainable(trainable_name: str) -> None:
    """Raise UnknownTrainableError, a TuneError, for a name that is not registered."""
    find_trainable(str(trainable_name))


def is_function_trainable(trainable: Any) -> bool:
    """Return whether what is to be trained is a function, by itself or by its name."""
    return not inspect.isclass(unwrapped(find_trainable(trainable)))


def find_trainable(trainable: Any) -> Any:
    """Return what is to be trained: a function of a config, or a class."""
    if isinstance(trainable, str):
        if trainable not in _trainables:
            known = ", ".join(sorted(_trainables)) or "none"
            raise UnknownTrainableError(
                f"there is no trainable {trainable!r}; registered are {known}. RLlib's algorithms by name are not "
                "here: write a Trainable that builds the algorithm in setup() and returns what it trains in step()"
            )
        return find_trainable(_trainables[trainable])
    inner = unwrapped(trainable)
    if inspect.isclass(inner):
        if not issubclass(inner, Trainable) and not hasattr(inner, "step"):
            raise TypeError(f"{inner.__name__} is no tune.Trainable: it has no step()")
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
    """Refuse a function that cannot be called with a configuration alone, before any trial fails of it."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of C
        return
    given = {name: None for name in ("checkpoint_dir", "reporter") if name in signature.parameters}
    try:
        signature.bind({}, **given)
    except TypeError as error:
        raise ValueError(
            f"the training function {getattr(inner, '__name__', inner)}{signature} must take the configuration, and "
            f"no more ({error}); tune.with_parameters binds the others"
        ) from None


def __getattr__(name: str) -> Any:
    absent(__name__, name)
