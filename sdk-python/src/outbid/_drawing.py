"""Parameters that are functions of the others: drawn where the trial is trained, before its training code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from outbid._attributes import drawn, put
from outbid._config import Config
from outbid._space import GroupParameter, SampleFrom, Space


class Drawing:
    """A training function that is given a configuration with the values of functions in it."""

    def __init__(self, func: Callable[[Any], Any], functions: Mapping[str, Callable[[Config], Any]]) -> None:
        self.func = func  # by this name the function itself is found, as that of functools.partial
        self._functions = dict(functions)

    def __call__(self, trial: Any) -> Any:
        values = {}
        for path, function in self._functions.items():
            values[path] = function(trial.config)
            put(trial.config, path, values[path])
        if noted := drawn(values):
            trial.note(noted)
        return self.func(trial)


def split(space: Space, prefix: str = "") -> tuple[dict[str, Any], dict[str, Callable[[Config], Any]]]:
    """Return a space without its functions, and these by dotted path, in their order."""
    rest: dict[str, Any] = {}
    functions: dict[str, Callable[[Config], Any]] = {}
    for name, spec in space.items():
        path = f"{prefix}{name}"
        if isinstance(spec, SampleFrom):
            functions[path] = spec.function
            continue
        if isinstance(spec, GroupParameter) and split(spec.space, path + ".")[1]:
            raise TypeError(f"space: {path}: a group under a condition cannot hold ob.sample_from(...)")
        if isinstance(spec, Mapping):
            inside, found = split(spec, path + ".")
            functions.update(found)
            if inside or not found:  # a group of functions alone is no group of the server's
                rest[name] = inside
            continue
        rest[name] = spec
    return rest, functions


def drawing(
    train: Callable[[Any], Any] | None, functions: Mapping[str, Callable[[Config], Any]]
) -> Callable[[Any], Any] | None:
    """Return the training function with what a space's functions give."""
    if not functions:
        return train
    if train is None:
        raise TypeError(
            f"space: {next(iter(functions))}: ob.sample_from(...) is for a training function: a program, or a loop of "
            "your own, computes such values itself"
        )
    return Drawing(train, functions)
