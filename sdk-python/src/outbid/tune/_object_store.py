"""Large objects of an experiment. They are sent once, with the function; configurations contain their names."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

_objects: dict[str, Any] = {}  # objects by name, of the experiments that this process has seen
_light: ContextVar[bool] = ContextVar("light", default=False)


class Named:
    """A reference to an object: pickled with the object in a function, and as a name in a configuration."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        if _light.get() or self.name not in _objects:
            return type(self), (self.name,)
        return _whole, (type(self), self.name, _objects[self.name])

    def __deepcopy__(self, memo: Any) -> Named:
        return self

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Named) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"

    @property
    def value(self) -> Any:
        """The object."""
        if self.name not in _objects:
            raise LookupError(f"the object {self.name} is not in this process: it is sent with the training function")
        return _objects[self.name]


class ObjectRef(Named):
    """A reference as returned by `ray.put`; `ray.get` returns the object."""


class Kept(Named):
    """A large object of a parameter space. The training function gets the object itself."""


def put(value: Any) -> ObjectRef:
    """Keep an object for functions that get its reference."""
    name = uuid.uuid4().hex
    _objects[name] = value
    return ObjectRef(name)


def keep(value: Any, name: str) -> Kept:
    """Keep a large object of a parameter space under a name."""
    _objects[name] = value
    return Kept(name)


def _whole(kind: Any, name: str, value: Any) -> Any:
    _objects[name] = value
    return kind(name)


@contextlib.contextmanager
def by_name() -> Iterator[None]:
    """Within this context, pickle references as names only."""
    before = _light.set(True)
    try:
        yield
    finally:
        _light.reset(before)


def resolve(thing: Any) -> Any:
    """Return a configuration with the large objects in place of their names."""
    if isinstance(thing, Kept):
        return thing.value
    if type(thing) is dict:
        return {key: resolve(value) for key, value in thing.items()}
    if type(thing) in (list, tuple):
        return type(thing)(resolve(value) for value in thing)
    return thing
