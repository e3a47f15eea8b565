"""Checks of the arguments of a Sweep."""

from __future__ import annotations

import datetime
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from outbid._core import function_pickle, validation
from outbid._search.resources import Duration, Limits, Program, duration
from outbid._search.space import Space

if TYPE_CHECKING:
    from outbid._training.trial import Trial

T = TypeVar("T")

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
NAME_LENGTH = 42  # characters of a sweep's name; the server's limit


def training_function(train: Any, program: Any) -> Callable[[Trial], Any] | None:
    """Return the training function. Raises TypeError for anything that cannot be called with a trial."""
    if train is None:
        return None
    if program is not None:
        raise TypeError("Sweep: give either a training function or a program")
    if not callable(train):
        raise TypeError(f"Sweep: train must be a function of a trial, got {type(train).__name__}: {train!r:.80}")
    if isinstance(train, type):
        raise TypeError(
            f"Sweep: train must be a function of a trial, got the class {train.__name__}; pass an instance that can "
            f"be called: {train.__name__}(...)"
        )
    name = function_pickle.name_of(train)
    if inspect.iscoroutinefunction(train) or inspect.isgeneratorfunction(train) or inspect.isasyncgenfunction(train):
        raise TypeError(f"Sweep: train must run when it is called, but {name} is async or yields; use a plain function")
    try:
        inspect.signature(train).bind(None)
    except TypeError as wrong:
        raise TypeError(
            f"Sweep: train is called with one argument, the trial, which does not suit {name}: {wrong}; "
            "functools.partial binds other arguments"
        ) from None
    except ValueError:
        pass  # a function written in C: its signature is unknown
    function: Callable[[Trial], Any] = train
    return function


def checked_program(program: Program | Sequence[str] | str | None) -> Program | None:
    """Return a program given as a Program, a list of words or a line of text."""
    if program is None:
        return None
    if isinstance(program, str):
        program = Program(shell=program)
    elif not isinstance(program, Program):
        program = Program(command=validation.several("Sweep: program", program, "a command's words, or a line of text"))
    program.to_proto()  # raises if it is invalid
    return program


def flag(name: str, value: Any) -> bool:
    """Return a flag. Raises TypeError for anything else."""
    if not isinstance(value, bool):
        raise TypeError(f"Sweep: {name} must be True or False, got {value!r:.80}")
    return value


def merged(flat: Limits, limits: Limits | None) -> Limits:
    """Return the limits, given by themselves or together."""
    if limits is None:
        return flat
    limits = instance("limits", limits, Limits)
    for field in fields(Limits):
        if getattr(flat, field.name) is not None:
            raise TypeError(f"Sweep: give {field.name} either by itself or in limits, not both")
    return limits


def instance(name: str, value: Any, kind: type[T]) -> T:
    """Return an argument that must be an instance of `kind`."""
    if value is not None and isinstance(value, type) and issubclass(value, kind):
        raise TypeError(
            f"Sweep: {name} must be an outbid {kind.__name__}, got the class: write ob.{value.__name__}(...)"
        )
    if not isinstance(value, kind):
        raise TypeError(f"Sweep: {name} must be an outbid {kind.__name__}, got {value!r:.80}")
    return value


def sweep_name(name: str) -> str:
    """Return a name. Raises ValueError for one that the server refuses."""
    if not _NAME.fullmatch(validation.text("Sweep: name", name)) or len(name) > NAME_LENGTH:
        raise ValueError(
            f"Sweep: name: {validation.quoted(name)} is not a valid name; use lower-case letters, digits and dashes, "
            f"start with a letter, end without a dash, {NAME_LENGTH} at most"
        )
    return name


def checked_space(space: Space | None) -> Space:
    """Return a search space. Raises TypeError for anything that is not a dict."""
    if space is None:
        raise TypeError('Sweep: space is missing: a dict such as {"lr": ob.loguniform(1e-4, 1e-1)}')
    if not isinstance(space, Mapping):
        raise TypeError(f"space: space must be a dict, got {type(space).__name__}")
    return space


def deadline_text(value: Duration | datetime.datetime) -> str:
    """Return a deadline as the API's text: a time, or a duration after the submission."""
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise ValueError(f"deadline: {value!r} has no time zone; give it one, such as datetime.timezone.utc")
        return value.isoformat()
    if isinstance(value, str):
        return value  # the server parses it
    return duration("deadline", value)


def lines(constraints: Sequence[str]) -> list[str]:
    """Return constraints, each a line of text."""
    such = 'conditions such as "lr * batch < 10"'
    lines = validation.several("Sweep: constraints", constraints, such)
    return [validation.text(f"Sweep: constraints[{i}]", line, f"one of the {such}") for i, line in enumerate(lines)]
