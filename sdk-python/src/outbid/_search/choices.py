"""Objects as values of choices: the server gets JSON for each; trials and results get the object."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from outbid._search.categories import index_of, text_of
from outbid._search.space import (
    ChoiceParameter,
    Condition,
    ConstantParameter,
    GroupParameter,
    Parameter,
    Space,
    to_value,
)
from outbid._training.config import Config


class Objects:
    """The values of choices and constants that a round trip through JSON would change, by dotted path."""

    def __init__(self) -> None:
        self._given: dict[str, list[Any]] = {}
        self._sent: dict[str, list[Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._given)

    def add(self, path: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Register values and return what is sent for them: their JSON, or a text.

        A text is used for a value that JSON cannot represent, or whose JSON is that of another value.
        """
        sent: list[Any] = []
        keys: set[str] = set()
        for value in values:
            one = _sendable(value)
            number = 1
            while _key(one) in keys:
                number += 1
                one = f"{text_of(value)} #{number}"
            keys.add(_key(one))
            sent.append(one)
        if not all(map(_is_same, values, sent)):
            self._given[path], self._sent[path] = list(values), sent
        return tuple(sent)

    def put_back(self, config: Config) -> None:
        """Replace sent values in a configuration by the original objects."""
        for path, given in self._given.items():
            *around, name = path.split(".")
            group: Any = config
            for key in around:
                group = group.get(key) if isinstance(group, Mapping) else None
            if not isinstance(group, dict) or name not in group:
                continue
            key = _key(group[name])
            for value, sent in zip(given, self._sent[path], strict=True):
                if _key(sent) == key:
                    group[name] = _as_config(value) if isinstance(sent, Mapping) else value

    def send(self, path: str, value: Any) -> Any:
        """Return what is sent for a value of the parameter at a path; unknown values are returned unchanged."""
        if path in self._given:
            found = index_of(self._given[path], self._sent[path], value)
            return value if found is None else self._sent[path][found]
        return value

    def send_all(self, config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        """Return a nested configuration with each object replaced by its JSON or text."""
        return {
            name: self.send_all(value, f"{prefix}{name}.")
            if isinstance(value, Mapping) and prefix + name not in self._given
            else self.send(prefix + name, value)
            for name, value in config.items()
        }


class Restoring:
    """A training function whose configuration contains the original objects of choices."""

    def __init__(self, func: Callable[[Any], Any], objects: Objects) -> None:
        self.func = func  # the name under which the wrapped function is found, like that of functools.partial
        self._objects = objects

    def __call__(self, trial: Any) -> Any:
        self._objects.put_back(trial.config)
        return self.func(trial)


def restoring(train: Callable[[Any], Any] | None, objects: Objects) -> Callable[[Any], Any] | None:
    """Wrap the training function if the space has objects."""
    return Restoring(train, objects) if train is not None and objects else train


def sendable(space: Space) -> tuple[dict[str, Any], Objects]:
    """Return a space in the form that is sent, and the objects in it."""
    objects = Objects()
    sent = _with_values(space, objects, "")
    return _with_conditions(sent, objects) if objects else sent, objects


def _with_values(space: Space, objects: Objects, prefix: str) -> dict[str, Any]:
    return {name: _with_value(spec, objects, f"{prefix}{name}") for name, spec in space.items()}


def _with_value(spec: Any, objects: Objects, path: str) -> Any:
    if isinstance(spec, ChoiceParameter):
        return dataclasses.replace(spec, values=objects.add(path, spec.values))
    if isinstance(spec, ConstantParameter):
        return dataclasses.replace(spec, value=objects.add(path, (spec.value,))[0])
    if isinstance(spec, GroupParameter):
        return dataclasses.replace(spec, space=_with_values(spec.space, objects, path + "."))
    if isinstance(spec, Mapping):
        return _with_values(spec, objects, path + ".")
    return objects.add(path, (spec,))[0] if type(spec) is float else spec


def _with_conditions(space: Space, objects: Objects) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, spec in space.items():
        if isinstance(spec, GroupParameter):
            spec = dataclasses.replace(spec, space=_with_conditions(spec.space, objects))
        elif isinstance(spec, Mapping):
            spec = _with_conditions(spec, objects)
        if isinstance(spec, Parameter) and (when := spec.condition) is not None:
            values = tuple(objects.send(when.param, value) for value in when.values)
            spec = dataclasses.replace(spec, condition=Condition(when.param, values))
        found[name] = spec
    return found


def _sendable(value: Any) -> Any:
    """Return a value if it can be JSON, else its text."""
    try:
        to_value(value, "")
    except (TypeError, ValueError):
        return text_of(value)
    return value


def _key(value: Any) -> str:
    """Return a key that is the same before and after JSON, in which numbers without a fraction become ints."""
    return json.dumps(_arrived(value), sort_keys=True)


def _arrived(value: Any) -> Any:
    """Return a value as it is after a round trip through JSON."""
    if callable(item := getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        value = item()
    if isinstance(value, Mapping):
        return {name: _arrived(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_arrived(inner) for inner in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if float(value).is_integer() else float(value)


def _is_same(given: Any, sent: Any) -> bool:
    """Return whether a value is unchanged by JSON."""
    return given is sent and _is_plain(given)


def _is_plain(value: Any) -> bool:
    if type(value) is list:
        return all(map(_is_plain, value))
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    if type(value) is float:
        return not value.is_integer()
    return type(value) in (bool, int, str, type(None))


def _as_config(value: Any) -> Any:
    """Return a value with its dicts as Configs."""
    return Config({k: _as_config(v) for k, v in value.items()}) if isinstance(value, Mapping) else value
