"""Converts scikit-learn's parameter distributions to a search space, and configurations to estimator parameters."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from outbid._search.space import (
    ChoiceParameter,
    FloatParameter,
    GroupParameter,
    NormalParameter,
    Parameter,
    SampleFrom,
    choice,
    integer,
    loguniform,
    uniform,
)

_JOIN = "__"  # scikit-learn's separator between a step's name and its parameter


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Candidates that a sweep's sampler draws from `space`. `values` are the values of its choices, by dotted path."""

    space: dict[str, Any]
    values: dict[str, list[Any]]
    floats: frozenset[str]

    def params(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration as the estimator's parameters, with the original objects, and floats as floats."""
        return dict(self._params(config, ""))

    def _params(self, config: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        for name, value in config.items():
            path = prefix + name
            if path in self.values:
                value = self.values[path][int(value)]
            elif path in self.floats:
                value = float(value)
            elif isinstance(value, Mapping):
                found += [(name + _JOIN + inner, v) for inner, v in self._params(value, path + ".")]
                continue
            found.append((name, value))
        return found


def has_parameters(distributions: Any) -> bool:
    """Return whether the distributions contain an Outbid parameter."""
    if isinstance(distributions, (Parameter, SampleFrom)):
        return True
    return isinstance(distributions, Mapping) and any(map(has_parameters, distributions.values()))


def drawn(distributions: Any) -> Drawn:
    """Convert parameter distributions to a search space: Outbid's parameters, lists, and simple scipy distributions.

    Raises TypeError, naming the parameter, for distributions that a sampler cannot draw from.
    """
    if not isinstance(distributions, Mapping):
        raise TypeError(
            "SearchCV: a sampler draws from one dict of param_distributions, got a list of them; put their "
            'differences under conditions: {"C": ob.when(ob.loguniform(0.1, 10), "kernel", in_=["rbf"])}'
        )
    values: dict[str, list[Any]] = {}
    floats: set[str] = set()
    space = {name: _parameter(spec, str(name), values, floats) for name, spec in distributions.items()}
    return Drawn(space, values, frozenset(floats))


def _parameter(spec: Any, path: str, values: dict[str, list[Any]], floats: set[str]) -> Any:
    if isinstance(spec, SampleFrom):
        raise TypeError(f"SearchCV: {path}: ob.sample_from(...) is not allowed here; set the value in the estimator")
    if isinstance(spec, GroupParameter):
        return dataclasses.replace(spec, space=_group(spec.space, path, values, floats))
    if isinstance(spec, Parameter):
        if isinstance(spec, (FloatParameter, NormalParameter)):
            floats.add(path)
        if isinstance(spec, ChoiceParameter) and not _plain(spec.values):
            values[path] = list(spec.values)
            return dataclasses.replace(spec, values=tuple(range(len(spec.values))))
        return spec
    if isinstance(spec, Mapping):
        return _group(spec, path, values, floats)
    if hasattr(spec, "rvs"):
        made = _of_scipy(spec, path)
        if isinstance(made, FloatParameter):
            floats.add(path)
        return made
    if (isinstance(spec, Sequence) and not isinstance(spec, str)) or hasattr(spec, "__array__"):
        given = list(spec)
        if _plain(given):
            return choice(given)
        values[path] = given
        return choice(range(len(given)))
    raise TypeError(f"SearchCV: {path}: expected a list, a distribution or an Outbid parameter, got {spec!r:.80}")


def _group(space: Mapping[str, Any], path: str, values: dict[str, list[Any]], floats: set[str]) -> dict[str, Any]:
    return {name: _parameter(spec, f"{path}.{name}", values, floats) for name, spec in space.items()}


def _plain(given: Sequence[Any]) -> bool:
    """Return whether values are unchanged by JSON, in which numbers without a fraction become ints."""
    for value in given:
        if isinstance(value, float) and (not math.isfinite(value) or value.is_integer()):
            return False
        if value is not None and type(value) not in (bool, int, float, str):
            return False
    return len({json.dumps(value) for value in given}) == len(given)


def _of_scipy(spec: Any, path: str) -> Parameter:
    """Convert a frozen scipy distribution to a parameter."""
    name = getattr(getattr(spec, "dist", None), "name", type(spec).__name__)
    low, high = (float(end) for end in spec.support())
    if name == "randint":
        return integer(int(low), int(high))
    if name == "uniform":
        return uniform(low, high)
    if name in ("loguniform", "reciprocal"):
        return loguniform(low, high)
    raise TypeError(
        f"SearchCV: {path}: a sampler cannot draw from scipy's {name!r}; give uniform, loguniform, randint, a list, "
        "or a parameter such as ob.normal(0, 1)"
    )
