"""Encoding of configurations: JSON for all readers, and a pickle for values that JSON cannot represent."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from outbid.tune._object_store import Named, by_name, keep, resolve
from outbid.tune._sample import Categorical, Domain
from outbid.tune._variants import find, fits, unresolved

_LARGE = 64 << 10  # minimum bytes of an object that is sent once, with the function
_MANY = 4096  # minimum entries of a list or characters of a text that is examined
_FLOATS, _WHOLE = "~floats", "~pickle"


def encode(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as JSON. `decode` restores it exactly, including objects and tuples."""
    floats: list[str] = []
    exact = [True]
    plain: dict[str, Any] = _plain(config, floats, exact)
    if not exact[0]:
        import cloudpickle

        with by_name():
            return {**plain, _WHOLE: base64.b64encode(cloudpickle.dumps(dict(config))).decode()}
    return {**plain, _FLOATS: floats} if floats else plain


def decode(config: Mapping[str, Any], like: Mapping[str, Any] | None = None, *, whole: bool = True) -> dict[str, Any]:
    """Return the configuration that was encoded, with its names in the order of a space, which the server loses.

    Large objects are included, or their names without `whole`.
    """
    found = _decode(config)
    found = resolve(found) if whole else found
    ordered: dict[str, Any] = found if like is None else _ordered(found, like)
    return ordered


def keep_large(thing: Any) -> Any:
    """Return a space, or a part of one, with names in place of its large objects."""
    domain = unresolved(thing)
    if domain is not None:
        if isinstance(domain, Categorical) and any(keep_large(c) is not c for c in domain.categories):
            return Categorical([keep_large(c) for c in domain.categories], grid=domain.is_grid())
        return thing
    kind = type(thing)
    if thing is None or kind in (bool, int, float, complex) or isinstance(thing, (Domain, Named)):
        return thing
    if kind in (list, tuple, dict) and (len(thing) < _MANY or find(thing)):
        entries = thing.items() if kind is dict else enumerate(thing)
        made = {key: keep_large(value) for key, value in entries}
        same = all(a is b for a, b in zip(made.values(), thing.values() if kind is dict else thing, strict=True))
        return thing if same else made if kind is dict else kind(made.values())
    if kind in (str, bytes) and len(thing) < _MANY:
        return thing
    import cloudpickle

    try:
        with by_name():
            blob = cloudpickle.dumps(thing)
    except Exception:  # pickling the function will report it with its name
        return thing
    return thing if len(blob) < _LARGE else keep(thing, hashlib.sha256(blob).hexdigest())


def _ordered(value: Any, like: Any) -> Any:
    """Return a value with its names in the order of a space, or of the choice's value that it equals."""
    domain = unresolved(like)
    if isinstance(domain, Categorical) and isinstance(value, (dict, list)):
        like = _which(domain, value)
    if isinstance(value, list) and isinstance(like, (list, tuple)) and len(like) == len(value):
        return [_ordered(v, inside) for v, inside in zip(value, like, strict=True)]
    if not isinstance(value, dict) or not isinstance(like, Mapping):
        return value
    names = [*(n for n in like if n in value), *(n for n in value if n not in like)]
    return {n: _ordered(value[n], like.get(n)) for n in names}


def _which(domain: Categorical, value: Any) -> Any:
    """Return the choice's value that equals a drawn one. A value with parameters inside is found by its names."""
    alike = [c for c in domain.categories if type(c) is type(value)]
    same = [c for c in alike if fits(c, value)]
    return next(iter(same or [c for c in alike if isinstance(c, Mapping) and c.keys() == value.keys()]), None)


def _decode(config: Mapping[str, Any]) -> dict[str, Any]:
    if _WHOLE in config:
        import cloudpickle

        whole: dict[str, Any] = cloudpickle.loads(base64.b64decode(config[_WHOLE]))
        return whole
    out: dict[str, Any] = _copy({k: v for k, v in config.items() if k != _FLOATS})
    for path in config.get(_FLOATS, ()):
        *around, last = json.loads(path)
        inside: Any = out
        for key in around:
            inside = inside[key]
        inside[last] = float(inside[last])
    return out


def shown(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without internal entries."""
    return {k: v for k, v in config.items() if k not in (_FLOATS, _WHOLE)}


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list) else value


def _plain(value: Any, floats: list[str], exact: list[bool], at: tuple[Any, ...] = ()) -> Any:
    kind = type(value)
    if value is None or kind in (str, bool):
        return value
    if kind is int:
        exact[0] = exact[0] and abs(value) <= 1 << 53
        return value
    if kind is float:
        if not math.isfinite(value):
            exact[0] = False
            return str(value)
        if value.is_integer():
            exact[0] = exact[0] and abs(value) <= 1 << 53 and not (value == 0 and math.copysign(1, value) < 0)
            floats.append(json.dumps(at, default=str))
            return value
        return value
    if kind is dict:
        out = {}
        for key, entry in value.items():
            exact[0] = exact[0] and type(key) is str and key not in (_FLOATS, _WHOLE)
            out[str(key)] = _plain(entry, floats, exact, (*at, key))
        return out
    if kind is list:
        return [_plain(entry, floats, exact, (*at, i)) for i, entry in enumerate(value)]
    exact[0] = False
    if isinstance(value, Mapping):
        return {str(k): _plain(v, floats, exact) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v, floats, exact) for v in value]
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", None) == 0:
        return _plain(item(), floats, exact)
    return str(value)[:200]
