"""Configurations of a space: the product of its grids, and drawn values, in Ray's order."""

from __future__ import annotations

import copy
import itertools
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from outbid.tune._object_store import Kept, resolve
from outbid.tune._sample import Categorical, Domain, Function, Rng

Path: TypeAlias = tuple[Any, ...]
Variant: TypeAlias = tuple[dict[Path, Any], dict[str, Any]]
"""The drawn values, by path, and the whole configuration."""

_PASSES = 20  # maximum passes over parameters that depend on each other


class Unresolved(RuntimeError):
    """A function used a parameter that is not drawn yet."""


class Spec(dict[str, Any]):
    """The argument of a `sample_from` function. Entries are attributes; those not drawn yet raise Unresolved."""

    def __getattribute__(self, name: str) -> Any:
        if dict.__contains__(self, name):
            return self[name]
        return super().__getattribute__(name)

    def __getitem__(self, name: Any) -> Any:
        value = super().__getitem__(name)
        if unresolved(value) is not None:
            raise Unresolved(f"{name!r} is not drawn yet")
        value = resolve(value) if isinstance(value, Kept) else value
        return Spec(value) if isinstance(value, dict) else value


class _Seen(Spec):
    """A spec that also finds the configuration's entries without `config`."""

    def __missing__(self, name: Any) -> Any:
        return Spec(dict.__getitem__(self, "config"))[name]


def unresolved(value: Any) -> Domain | None:
    """Return the domain in place of a value, or None for a value."""
    if isinstance(value, Domain):
        return value
    if isinstance(value, dict) and len(value) == 1:
        if "grid_search" in value:
            return Categorical(value["grid_search"], grid=True)
        if "eval" in value:
            text = value["eval"]
            import numpy as np

            return Function(lambda spec: eval(text, {"random": random, "np": np}, {"spec": spec}))
    return None


def find(space: Any, at: Path = ()) -> list[tuple[Path, Domain]]:
    """Return the domains in a space with their paths, in order."""
    found: list[tuple[Path, Domain]] = []
    items: Any = space.items() if isinstance(space, Mapping) else enumerate(space)
    for key, value in items:
        domain = unresolved(value)
        if domain is not None:
            found.append(((*at, key), domain))
        elif isinstance(value, (dict, list, tuple)):
            found.extend(find(value, (*at, key)))
    return found


def settled(space: Any, config: Any, at: Path = ()) -> dict[Path, Any]:
    """Return a configuration's values of its space's parameters, including parameters inside chosen values."""
    values: dict[Path, Any] = {}
    for path, domain in find(space):
        try:
            values[(*at, *path)] = value = look_up(config, path)
        except (LookupError, TypeError):
            continue
        chosen = (one for one in getattr(domain, "categories", ()) if is_nest(one) and fits(one, value))
        values.update(settled(next(chosen, ()), value, (*at, *path)))
    return values


def leaves(space: Any, config: Mapping[str, Any], at: Path = ()) -> dict[Path, Any]:
    """Return a configuration's values by path, without the space's large objects."""
    values: dict[Path, Any] = {}
    for key, value in config.items():
        inside = space.get(key) if isinstance(space, dict) else None
        if isinstance(value, dict):
            values.update(leaves(inside, value, (*at, key)))
        elif not isinstance(inside, Kept):
            values[(*at, key)] = value
    return values


def fits(template: Any, value: Any) -> bool:
    """Return whether a part of a space can result in a value."""
    domain = unresolved(template)
    if isinstance(domain, Categorical):
        return any(fits(one, value) for one in domain.categories)
    if domain is not None:
        return True
    if isinstance(template, dict) and isinstance(value, dict):
        return template.keys() == value.keys() and all(fits(template[key], value[key]) for key in template)
    if isinstance(template, (list, tuple)) and isinstance(value, (list, tuple)):
        return len(template) == len(value) and all(map(fits, template, value))
    if template is value or isinstance(template, Kept):
        return True
    try:
        same = template == value
        if isinstance(same, bool):
            return same
        import numpy as np

        return bool(np.all(same))
    except Exception:  # arrays and data frames of different shapes
        return False


def is_nest(value: Any) -> bool:
    """Return whether a value may contain parameters."""
    return isinstance(value, (dict, list, tuple)) and unresolved(value) is None


def look_up(thing: Any, path: Path) -> Any:
    """Return the value at a path."""
    for key in path:
        thing = thing[key]
    return thing


def assign(space: Any, path: Path, value: Any) -> None:
    """Set the value at a path; tuples on the path are copied."""
    *around, last = path
    parent = look_up(space, tuple(around))
    if isinstance(parent, tuple):
        assign(space, tuple(around), (*parent[:last], value, *parent[last + 1 :]))
    else:
        parent[last] = value


def variants(space: dict[str, Any], rng: Rng, *, constant: bool = False) -> Iterator[Variant]:
    """Yield every combination of the grids. The other parameters are drawn for each or, with `constant`, once."""
    space = copy.deepcopy(space)
    found = find(space)
    if not found:
        yield {}, space
        return
    drawn = [(path, domain) for path, domain in found if not domain.is_grid()]
    grids = sorted(((path, domain) for path, domain in found if domain.is_grid()), key=lambda pair: pair[0])
    fixed: dict[Path, Any] = {}
    if constant:
        fixed = _draw(space, drawn, rng, strict=False)
        drawn = [(path, domain) for path, domain in drawn if path not in fixed]
    # The first grid changes fastest.
    for values in itertools.product(*(domain.categories for _, domain in reversed(grids))):  # type: ignore[attr-defined]
        one = copy.deepcopy(space)
        for (path, _), value in zip(grids, reversed(values), strict=True):
            assign(one, path, copy.deepcopy(value))
        mine = {**fixed, **_draw(one, drawn, rng)}
        # A drawn value may contain parameters.
        for inner, whole in variants(one, rng, constant=constant):
            values_of = {**mine, **{path: look_up(whole, path) for path, _ in grids}, **inner}
            yield {path: value for path, value in values_of.items() if unresolved(value) is None}, whole


def _draw(
    space: dict[str, Any], wanted: list[tuple[Path, Domain]], rng: Rng, *, strict: bool = True
) -> dict[Path, Any]:
    """Draw parameters into a space, dependencies first, and return them."""
    resolved: dict[Path, Any] = {}
    waits: Unresolved | None = None
    for _ in range(_PASSES):
        waits = None
        for path, domain in wanted:
            if path in resolved:
                continue
            try:
                value = domain.sample(_Seen({"config": space}), random_state=rng)
            except Unresolved as error:
                waits = error
                continue
            except Exception as error:
                where = "/".join(map(str, path))
                raise ValueError(
                    f"the parameter {where} could not be drawn: {type(error).__name__}: {error}"
                ) from error
            assign(space, path, value)
            resolved[path] = value
        if waits is None:
            break
    if waits is not None and strict:
        raise waits
    return resolved


def preset(space: dict[str, Any], point: Mapping[str, Any], rng: Rng, *, constant: bool = False) -> Iterator[Variant]:
    """Yield the variants of a space with a point's values."""
    space = copy.deepcopy(space)
    _overwrite(space, point, ())
    return variants(space, rng, constant=constant)


def _overwrite(space: Any, point: Mapping[str, Any], at: Path) -> None:
    for key, value in point.items():
        if key not in space:
            raise ValueError(f"points_to_evaluate: the space has no {'/'.join(map(str, (*at, key)))!r}")
        inside = space[key]
        if isinstance(value, Mapping) and isinstance(inside, dict) and unresolved(inside) is None:
            _overwrite(inside, value, (*at, key))
        else:
            space[key] = value


def count(space: dict[str, Any]) -> int:
    """Return the number of combinations of a space's grids."""
    n = 1
    for _, domain in find(space):
        if isinstance(domain, Categorical) and domain.is_grid():
            n *= len(domain)
    return n


def tag(values: Mapping[Path, Any]) -> str:
    """Return drawn values as text that can be part of a directory's name."""
    try:
        ordered = sorted(values.items(), key=lambda pair: pair[0])  # the tenth item of a list comes after its ninth
    except TypeError:
        ordered = sorted(values.items(), key=lambda pair: tuple(map(str, pair[0])))
    return ",".join(f"{_clean(path[-1])}={_clean(value)}" for path, value in ordered)


def _clean(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else re.sub(r"[^a-zA-Z0-9_-]+", "_", str(value)).strip("_")
