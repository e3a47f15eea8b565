"""The search space of a sweep for plugins: a flat list of dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from outbid._core.errors import InvalidError
from outbid.plugin._settings import plain
from outbid.v1 import sweep_pb2 as pb

_ABSENT: Any = object()


@dataclass(frozen=True)
class Dimension:
    """One parameter of a space. `path` is dotted for parameters in groups.

    A "float" or "int" is from `low` to `high`, both included, log-uniform if `log`, in steps of `quantum` from `low`
    unless that is 0. If `unbounded` it is normally distributed: `low` and `high` are three standard deviations from the
    mean, and values beyond are possible. A "choice" is one of `values`, and a "constant" the first of them.
    """

    path: str
    kind: Literal["float", "int", "choice", "constant"]
    low: float = 0
    high: float = 0
    log: bool = False
    quantum: float = 0
    values: tuple[Any, ...] = ()
    unbounded: bool = False
    when: tuple[tuple[str, tuple[Any, ...]], ...] = field(default=(), repr=False)

    @property
    def count(self) -> int:
        """The number of values; 0 for a float without a quantum."""
        if self.values:
            return len(self.values)
        if not self.quantum:
            return 0
        if self.kind == "int":
            return int((self.high - self.low) // self.quantum) + 1
        steps = (self.high - self.low) / self.quantum
        whole = round(steps)
        # A last value that differs from high only by rounding still counts.
        return (whole if whole - steps <= min(1e-6, 1e-9 + 1e-12 * steps) else math.floor(steps)) + 1

    def nth(self, k: int) -> Any:
        """Return the value with index `k`, from 0, of a dimension with a count."""
        k = min(max(k, 0), self.count - 1)
        if self.values:
            return self.values[k]
        if self.kind == "int":
            return int(self.low) + k * int(self.quantum)
        digits = max(_decimals(self.low), _decimals(self.quantum))
        return min(max(round(self.low + k * self.quantum, digits), self.low), self.high)

    def at(self, share: float) -> Any:
        """Return the value at a share of the dimension, from 0 to 1. Evenly spread shares give evenly spread values."""
        if self.values or (self.quantum and not self.log):
            return self.nth(int(share * self.count))
        if not self.log:
            return self.nearest(self.low + share * (self.high - self.low))
        low, high = self.low, self.high
        if self.quantum:  # so that the first and the last value get the same share as the others
            low, high = max(low - self.quantum / 2, low / 2), self.nth(self.count - 1) + self.quantum / 2
        if share in (0, 1):  # without rounding errors
            return self.nearest(high if share else low)
        return self.nearest(math.exp(math.log(low) + share * (math.log(high) - math.log(low))))

    def nearest(self, value: Any) -> Any:
        """Return the value of the dimension nearest to a number; a choice must be one of its values."""
        if self.values:
            for mine in self.values:
                if _same(mine, value):
                    return mine
            raise InvalidError(f"{self.path}: {value!r} is not one of its values")
        if self.unbounded:
            return float(round(value / self.quantum) * self.quantum if self.quantum else value)
        if self.quantum:
            return self.nth(round((value - self.low) / self.quantum))
        return min(max(float(value), self.low), self.high)

    def holds(self, value: Any) -> bool:
        """Return whether the dimension has a value, apart from rounding."""
        if self.values:
            return any(_same(mine, value) for mine in self.values)
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not (self.unbounded or self.low <= value <= self.high):
            return False
        return not self.quantum or math.isclose(self.nearest(value), value, rel_tol=1e-9, abs_tol=1e-9 * self.quantum)


class Space:
    """A search space. Iteration yields its dimensions, each after those that its conditions refer to."""

    def __init__(self, space: Mapping[str, pb.Parameter]) -> None:
        self._groups: list[Dimension] = []
        found = {d.path: d for d in self._walk(space, "", ())}
        self._dimensions: dict[str, Dimension] = {}
        for path in sorted(found):
            self._put(found, path)

    def __iter__(self) -> Iterator[Dimension]:
        return iter(self._dimensions.values())

    def __len__(self) -> int:
        return len(self._dimensions)

    def __getitem__(self, path: str) -> Dimension:
        return self._dimensions[path]

    def configuration(self, draw: Callable[[Dimension], Any]) -> dict[str, Any]:
        """Return a configuration: `draw` returns the value of each dimension whose conditions hold.

        The value is moved to the nearest one in the dimension. Constants are not drawn.
        """
        flat: dict[str, Any] = {}
        for d in self:
            if _holds(d, flat):
                flat[d.path] = d.values[0] if d.kind == "constant" else d.nearest(draw(d))
        config: dict[str, Any] = {}
        for group in self._groups:
            if _holds(group, flat):
                _put(config, group.path, {})
        for path in sorted(flat):
            _put(config, path, flat[path])
        return config

    def at(self, shares: float | Mapping[str, float]) -> dict[str, Any]:
        """Return the configuration at a share of every dimension, from 0 to 1: one share for all, or shares by path."""
        return self.configuration(lambda d: d.at(shares[d.path] if isinstance(shares, Mapping) else shares))

    def _walk(
        self, space: Mapping[str, pb.Parameter], around: str, when: tuple[tuple[str, tuple[Any, ...]], ...]
    ) -> Iterator[Dimension]:
        for name in sorted(space):
            p, path, own = space[name], around + name, when
            if p.HasField("when"):
                own = (*when, (p.when.param, tuple(plain(v) for v in getattr(p.when, "in"))))
            kind = p.WhichOneof("kind")
            if kind == "group":
                self._groups.append(Dimension(path, "constant", when=own))
                yield from self._walk(p.group.space, path + ".", own)
            elif kind == "float":
                f = p.float
                yield Dimension(path, "float", f.low, f.high, f.log, f.quantum, when=own)
            elif kind == "normal":
                n = p.normal
                low, high = n.mean - 3 * n.sd, n.mean + 3 * n.sd
                if n.quantum:
                    low, high = math.floor(low / n.quantum) * n.quantum, math.ceil(high / n.quantum) * n.quantum
                yield Dimension(path, "float", low, high, False, n.quantum, unbounded=True, when=own)
            elif kind == "int":
                i = p.int
                yield Dimension(path, "int", i.low, i.high, i.log, i.quantum or 1, when=own)
            elif kind == "choice":
                yield Dimension(path, "choice", values=tuple(plain(v) for v in p.choice.values), when=own)
            else:
                yield Dimension(path, "constant", values=(plain(p.constant),), when=own)

    def _put(self, found: Mapping[str, Dimension], path: str) -> None:
        """Add a dimension after those that it depends on. The server has checked that they have no cycle."""
        if path in self._dimensions:
            return
        for param, _ in found[path].when:
            self._put(found, param)
        self._dimensions[path] = found[path]


def flatten(config: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """Return a configuration's values by the paths of the dimensions that it has."""
    flat = {}
    for d in space:
        value: Any = config
        for key in d.path.split("."):
            value = value.get(key, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        if value is not _ABSENT:
            flat[d.path] = value
    return flat


def _holds(dimension: Dimension, flat: Mapping[str, Any]) -> bool:
    return all(any(_same(flat.get(param, _ABSENT), v) for v in values) for param, values in dimension.when)


def _same(a: Any, b: Any) -> bool:
    """Compare like JSON: 1 equals 1.0, but True does not equal 1."""
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    *around, name = path.split(".")
    for key in around:
        config = config.setdefault(key, {})
    config.setdefault(name, value)


def _decimals(number: float) -> int:
    """Return the number of decimal digits in a number's shortest form."""
    exponent = Decimal(repr(number)).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0
