"""Parameters computed by functions of the others, in the trial's process and before its training code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from outbid._search.space import GroupParameter, SampleFrom, Space
from outbid._training.config import Config
from outbid._training.notes import drawn, put


class Drawing:
    """A training function whose configuration contains the computed parameters."""

    def __init__(self, func: Callable[[Any], Any], functions: Mapping[str, Callable[[Config], Any]]) -> None:
        self.func = func  # the name under which the wrapped function is found, like that of functools.partial
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
    """Split a space into one without functions, and the functions by dotted path, in their order."""
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
            if inside or not found:  # a group of functions only is not sent to the server
                rest[name] = inside
            continue
        rest[name] = spec
    return rest, functions


def drawing(
    train: Callable[[Any], Any] | None, functions: Mapping[str, Callable[[Config], Any]]
) -> Callable[[Any], Any] | None:
    """Wrap the training function if a space has functions."""
    if not functions:
        return train
    if train is None:
        raise TypeError(
            f"space: {next(iter(functions))}: ob.sample_from(...) needs a training function; a program or your own "
            "loop must compute such values itself"
        )
    return Drawing(train, functions)
