"""Checks of tuners' settings by their descriptions, which are options of the proto fields."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from outbid._core import validation
from outbid.v1 import options_pb2

_WHOLE = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)


def fill(tuner: object, message: Message, sampler: Callable[[str, Any, list[str]], str]) -> None:
    """Check a tuner's attributes and write them into the message of the same fields.

    `sampler` returns the server's word for a sampler, of the name, the value and the server's words.
    """
    message.SetInParent()
    for field in message.DESCRIPTOR.fields:
        about = field.GetOptions().Extensions[options_pb2.setting]
        name = f"{type(tuner).__name__}: {field.name}"
        value = getattr(tuner, field.name)
        if field.name == "sampler":
            setattr(message, field.name, sampler(name, value, list(about.words)))
        elif about.words:
            setattr(message, field.name, one_of(name, value, list(about.words)))
        elif field.cpp_type in _WHOLE:
            setattr(message, field.name, _steps(tuner, about, name, value))
        elif not isinstance(getattr(message, field.name), (bool, int, float, str)):
            values = [validation.number(name, v) for v in validation.several(name, value, "numbers")]
            if not all(_within(about, v) for v in values):
                raise ValueError(f"{name} must be {_bounds(about)}, got {list(value)!r}")
            getattr(message, field.name).extend(values)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
            if not _within(about, validation.number(name, value)):
                raise ValueError(f"{name} must be {_bounds(about)}, got {value!r}")
            setattr(message, field.name, value)
        else:
            setattr(message, field.name, value)


def count(tuner: object, name: str, value: Any, least: int) -> int:
    """Return an attribute of a tuner as a whole number that is at least `least`."""
    number = validation.whole(f"{type(tuner).__name__}: {name}", value)
    if number < least:
        raise ValueError(f"{type(tuner).__name__}: {name} must be at least {least}, got {number}")
    return number


def one_of(name: str, value: str, allowed: list[str]) -> str:
    """Return one of the allowed words."""
    if value not in allowed:
        words = " or ".join(repr(word) for word in allowed)
        raise ValueError(f"{name} must be {words}, got {value!r}")
    return value


def _steps(tuner: object, about: options_pb2.Setting, name: str, value: Any) -> int:
    least = 1 if about.required else math.ceil(about.min) if about.HasField("min") else 0
    number = count(tuner, name.rpartition(" ")[2], value, 0 if about.zero or about.part else least)
    if about.HasField("max") and number > about.max:
        raise ValueError(f"{name} must be at most {about.max:.0f}, got {number}")
    if about.at_most and number > getattr(tuner, about.at_most):
        limit = getattr(tuner, about.at_most)
        raise ValueError(f"{name} must not be above {about.at_most}, got {number} and {limit}")
    return number


def _within(about: options_pb2.Setting, value: float) -> bool:
    return (
        math.isfinite(value)
        and (not about.HasField("min") or value >= about.min)
        and (not about.HasField("max") or value <= about.max)
        and (not about.HasField("above") or value > about.above)
        and (not about.HasField("below") or value < about.below)
    )


def _bounds(about: options_pb2.Setting) -> str:
    if about.HasField("min") and about.HasField("max"):
        return f"from {about.min:g} to {about.max:g}"
    low = f"at least {about.min:g}" if about.HasField("min") else f"above {about.above:g}"
    high = f"at most {about.max:g}" if about.HasField("max") else f"below {about.below:g}"
    parts = [low] if about.HasField("min") or about.HasField("above") else []
    parts += [high] if about.HasField("max") or about.HasField("below") else []
    return " and ".join(parts)
