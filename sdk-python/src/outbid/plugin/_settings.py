"""Settings: the settings of a plugin in a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import struct_pb2

from outbid._core.errors import InvalidError

_MISSING: Any = object()


class Settings:
    """The sweep's settings for a plugin, read with their types and defaults.

    A wrong or missing setting raises an error that names the field. So does, after `start`, a setting that the plugin
    did not read.
    """

    def __init__(self, values: Mapping[str, Any], field: str) -> None:
        self._values = dict(values)
        self._field = field
        self._known: list[str] = []

    def __repr__(self) -> str:
        return f"<Settings {self._values}>"

    def whole(self, name: str, default: int = _MISSING, *, least: int | None = None) -> int:
        """Return a whole number, at least `least`."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(name, f"{value!r} is not a whole number")
        if least is not None and value < least:
            raise self.wrong(name, f"{value!r} is below {least}")
        return value

    def number(
        self, name: str, default: float = _MISSING, *, least: float = -math.inf, most: float = math.inf
    ) -> float:
        """Return a number from `least` to `most`."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, f"{value!r} is not a number")
        if not least <= value <= most:
            raise self.wrong(name, f"{value!r} is outside {least:g} to {most:g}")
        return float(value)

    def text(self, name: str, default: str = _MISSING, *, choices: Sequence[str] = ()) -> str:
        """Return a text, which must be one of `choices` if there are any."""
        value = self._take(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, f"{value!r} is not a text")
        if choices and value not in choices:
            raise self.wrong(name, f"{value!r} is unknown; use {' or '.join(choices)}")
        return value

    def flag(self, name: str, default: bool = _MISSING) -> bool:
        """Return True or False."""
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, f"{value!r} is neither true nor false")
        return value

    def value(self, name: str, default: Any = _MISSING) -> Any:
        """Return any JSON value."""
        return self._take(name, default)

    def wrong(self, name: str, problem: str) -> InvalidError:
        """Return an error that names the setting and its problem."""
        return InvalidError(f"{self._field}.{name}: {problem}")

    def check(self) -> None:
        """Raise an error if there is a setting that was not read."""
        for name in sorted(self._values):
            if name not in self._known:
                known = ", ".join(self._known) or "none"
                raise self.wrong(name, f"is not a setting of this plugin; it has {known}")

    def _take(self, name: str, default: Any) -> Any:
        if name not in self._known:
            self._known.append(name)
        if name in self._values:
            return self._values[name]
        if default is _MISSING:
            raise self.wrong(name, "is missing")
        return default


def plain(value: struct_pb2.Value) -> Any:
    """Return a protobuf Value as a Python value; numbers without a fraction become ints."""
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    if kind == "struct_value":
        return plain_struct(value.struct_value)
    if kind == "list_value":
        return [plain(entry) for entry in value.list_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)


def plain_struct(value: struct_pb2.Struct) -> dict[str, Any]:
    """Return a protobuf Struct as a dict."""
    return {name: plain(entry) for name, entry in value.fields.items()}
