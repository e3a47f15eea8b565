"""What scikit-learn calls parameter distributions, as a search space, and configurations as what an estimator takes."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from outbid._space import (
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

_JOIN = "__"  # as scikit-learn joins a step's name and its parameter


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Candidates that a sweep's sampler draws from `space`; `values` are those of its choices, by dotted path."""

    space: dict[str, Any]
    values: dict[str, list[Any]]
    floats: frozenset[str]

    def params(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration as the estimator takes it: with the objects that were given, and floats as floats."""
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
    """Return whether there is a parameter of Outbid's in what was given."""
    if isinstance(distributions, (Parameter, SampleFrom)):
        return True
    return isinstance(distributions, Mapping) and any(map(has_parameters, distributions.values()))


def drawn(distributions: Any) -> Drawn:
    """Return the space that parameter distributions span: Outbid's parameters, lists, and scipy's simplest ones.

    Raises TypeError, naming the parameter, for what a sampler cannot draw from.
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
        raise TypeError(f"SearchCV: {path}: ob.sample_from(...) cannot stand here; set it in the estimator")
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
    raise TypeError(f"SearchCV: {path}: expected a list, a distribution or a parameter of Outbid's, got {spec!r:.80}")


def _group(space: Mapping[str, Any], path: str, values: dict[str, list[Any]], floats: set[str]) -> dict[str, Any]:
    return {name: _parameter(spec, f"{path}.{name}", values, floats) for name, spec in space.items()}


def _plain(given: Sequence[Any]) -> bool:
    """Return whether values come back from JSON as they were: numbers without a fraction come back as ints."""
    for value in given:
        if isinstance(value, float) and (not math.isfinite(value) or value.is_integer()):
            return False
        if value is not None and type(value) not in (bool, int, float, str):
            return False
    return len({json.dumps(value) for value in given}) == len(given)


def _of_scipy(spec: Any, path: str) -> Parameter:
    """Return a frozen distribution of scipy's as a parameter."""
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
