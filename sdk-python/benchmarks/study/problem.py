"""Problems: a space, and a function from a configuration to a loss.

A space maps names to tuples: ("float", low, high, log), ("int", low, high, log) or ("choice", values). Numbers may have
a condition as an additional last element: (name of a choice, its values).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Config = Mapping[str, Any]
Space = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Problem:
    """A function to minimise.

    If `noise` is set, a trial observes the loss plus normal noise with this standard deviation.
    """

    name: str
    loss: Callable[[Config], float]
    space: Space
    noise: float = 0.0
    kinds: tuple[str, ...] = field(default=())


class Collection(dict[str, Problem]):
    """Problems by name."""

    def add(
        self, name: str, space: Space, *, noise: float = 0.0, kinds: tuple[str, ...] = ()
    ) -> Callable[[Callable[[Config], float]], Callable[[Config], float]]:
        """Return a decorator that adds a loss."""

        def added(loss: Callable[[Config], float]) -> Callable[[Config], float]:
            if name in self:
                raise ValueError(f"{name}: exists already")
            self[name] = Problem(name, loss, space, noise, kinds)
            return loss

        return added


def flt(low: float, high: float, *when: Any) -> tuple[Any, ...]:
    """Return a number; `when` is the name of a choice and the values under which the number exists."""
    return ("float", low, high, False, *_condition(when))


def log(low: float, high: float, *when: Any) -> tuple[Any, ...]:
    """Return a number on a logarithmic scale."""
    return ("float", low, high, True, *_condition(when))


def whole(low: int, high: int, *when: Any) -> tuple[Any, ...]:
    """Return a whole number."""
    return ("int", low, high, False, *_condition(when))


def logint(low: int, high: int, *when: Any) -> tuple[Any, ...]:
    """Return a whole number on a logarithmic scale."""
    return ("int", low, high, True, *_condition(when))


def pick(*values: Any) -> tuple[Any, ...]:
    """Return a choice."""
    return ("choice", list(values))


def _condition(when: tuple[Any, ...]) -> tuple[Any, ...]:
    return ((when[0], list(when[1:])),) if when else ()


def condition_of(spec: tuple[Any, ...]) -> tuple[str, list[Any]] | None:
    """Return a parameter's condition."""
    return spec[4] if spec[0] != "choice" and len(spec) > 4 else None


def active(space: Space, config: Config) -> dict[str, Any]:
    """Return a configuration without the parameters whose condition does not hold."""
    kept = {}
    for name, spec in space.items():
        when = condition_of(spec)
        if when is None or config[when[0]] in when[1]:
            kept[name] = config[name]
    return kept
