"""Ray's tasks and actors in a script that runs on Outbid: calls run immediately in the script's process."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from outbid.tune._errors import unsupported
from outbid.tune._object_store import ObjectRef, put


class RayError(Exception):
    """Base class of the exceptions that `get` raises for a task."""


class RayTaskError(RayError):
    """A task or an actor's method failed with `cause`. It is also an instance of the cause's class if possible."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class GetTimeoutError(RayError, TimeoutError):
    """Never raised, because all calls have completed."""


class RayActorError(RayError):
    """A method of a killed actor was called."""


class _Failed:
    """The result of a failed call."""

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause

    def error(self) -> RayTaskError:
        """Return the exception that `get` raises."""
        kind = type(self.cause)
        if issubclass(kind, RayTaskError):
            return self.cause  # type: ignore[return-value]
        try:
            both = type(f"RayTaskError({kind.__name__})", (RayTaskError, kind), {"__init__": RayTaskError.__init__})
            made: RayTaskError = both(self.cause)
        except TypeError:  # the layouts of the classes differ, or the class is final
            made = RayTaskError(self.cause)
        return made


def get(refs: Any, *, timeout: float | None = None) -> Any:
    """Return the values of references. Raises the exception of a failed task."""
    if isinstance(refs, list):
        return [get(ref) for ref in refs]
    if not isinstance(refs, ObjectRef):
        raise ValueError(f"ray.get: expected an ObjectRef, or a list of them, got {refs!r:.80}")
    value = refs.value
    if isinstance(value, _Failed):
        raise value.error() from value.cause
    return value


def wait(refs: list[Any], *, num_returns: int = 1, timeout: float | None = None, **_: Any) -> tuple[Any, Any]:
    """Return the first references and the others; all are completed."""
    if not isinstance(refs, list) or not all(isinstance(ref, ObjectRef) for ref in refs):
        raise TypeError(f"ray.wait: expected a list of ObjectRefs, got {refs!r:.80}")
    if not 0 < num_returns <= len(refs):
        raise ValueError(f"ray.wait: num_returns must be from 1 to {len(refs)}, the references, got {num_returns!r}")
    return refs[:num_returns], refs[num_returns:]


def _call(function: Callable[..., Any], args: Any, kwargs: Any, num_returns: Any = 1) -> Any:
    """Call a function with the values of references; returns references to its results."""
    try:
        plain = [get(a) if isinstance(a, ObjectRef) else a for a in args]
        named = {k: get(v) if isinstance(v, ObjectRef) else v for k, v in kwargs.items()}
        made = function(*plain, **named)
        if inspect.isgenerator(made):
            made = list(made)
            if num_returns in ("streaming", "dynamic", 1):
                return iter([put(value) for value in made])
    except Exception as error:
        made = _Failed(error)
    if num_returns == 1:
        return put(made)
    return [put(made if isinstance(made, _Failed) else made[i]) for i in range(num_returns)]


class RemoteFunction:
    """A function with `ray.remote`."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"call a remote function with remote(): {self._function.__name__}.remote(...)")

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return _call(self._function, args, kwargs, self._options.get("num_returns", 1))

    def options(self, **options: Any) -> RemoteFunction:
        """Return the function with other options; only num_returns has an effect."""
        return RemoteFunction(self._function, {**self._options, **options})


class ActorClass:
    """A class with `ray.remote`."""

    def __init__(self, kind: type, options: dict[str, Any]) -> None:
        self._kind, self._options = kind, options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"create an actor with remote(): {self._kind.__name__}.remote(...)")

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        """Create an actor."""
        name = self._options.get("name")
        if name is not None and name in _actors and self._options.get("get_if_exists"):
            return _actors[name]
        if name in _actors:
            raise ValueError(f"ray.remote: there is an actor named {name!r} already")
        handle = ActorHandle(_call(self._kind, args, kwargs), self._kind.__name__)
        if name is not None:
            _actors[name] = handle
        return handle

    def options(self, **options: Any) -> ActorClass:
        """Return the class with other options; only the actor's name has an effect."""
        return ActorClass(self._kind, {**self._options, **options})


_actors: dict[str, ActorHandle] = {}
"""Named actors."""


class ActorHandle:
    """An actor. It is in the script's process and cannot be used in a trial's process."""

    def __init__(self, made: ObjectRef, kind: str) -> None:
        self._made, self._kind, self._alive = made, kind, True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Method(self, name)

    def __reduce__(self) -> Any:
        unsupported(
            f"actor ({self._kind}) that trials share",
            "a trial is a separate process, on any machine: report its values, or run the script with Ray and start "
            "Outbid on the Ray cluster with outbid.ray.up()",
        )

    def __repr__(self) -> str:
        return f"Actor({self._kind})"


class _Method:
    def __init__(self, actor: ActorHandle, name: str, num_returns: Any = 1) -> None:
        self._actor, self._name, self._returns = actor, name, num_returns

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method."""
        return _call(self._run, args, kwargs, self._returns)

    def options(self, **options: Any) -> _Method:
        """Return the method with other options; only num_returns has an effect."""
        return _Method(self._actor, self._name, options.get("num_returns", self._returns))

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if not self._actor._alive:
            raise RayActorError(f"the actor {self._actor!r} was killed")
        return getattr(get(self._actor._made), self._name)(*args, **kwargs)


def remote(*args: Any, **options: Any) -> Any:
    """Add `remote()` to a function or a class; with options, return a decorator that does so."""
    if not args:
        return functools.partial(_remote, options=options)
    if len(args) > 1 or not callable(args[0]):
        raise TypeError("ray.remote: expected only a function or a class; give options by name")
    return _remote(args[0], options)


def _remote(thing: Any, options: dict[str, Any]) -> Any:
    """Add `remote()` to a function or a class."""
    return ActorClass(thing, options) if inspect.isclass(thing) else RemoteFunction(thing, options)


def method(**options: Any) -> Callable[[Any], Any]:
    """Return an actor's method unchanged."""
    return lambda function: function


def kill(actor: ActorHandle, *, no_restart: bool = True) -> None:
    """Kill an actor."""
    actor._alive = False
    for name in [n for n, a in _actors.items() if a is actor]:
        del _actors[name]


def get_actor(name: str, namespace: str | None = None) -> ActorHandle:
    """Return the actor with a name."""
    if name not in _actors:
        raise ValueError(f"ray.get_actor: there is no actor named {name!r}")
    return _actors[name]


def cancel(ref: Any, **_: Any) -> None:
    """Do nothing, because the call has completed."""
