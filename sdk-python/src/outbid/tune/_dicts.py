"""Functions on nested dicts that Ray Tune's scripts use."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any


def flatten_dict(
    dt: Mapping[str, Any], delimiter: str = "/", prevent_delimiter: bool = False, flatten_list: bool = False
) -> dict[str, Any]:
    """Flatten nested dicts, and lists with `flatten_list`, into one dict with names joined by `delimiter`."""
    out: dict[str, Any] = {}
    for key, value in dt.items():
        if prevent_delimiter and delimiter in str(key):
            raise ValueError(f"flatten_dict: names must not contain the delimiter {delimiter!r}, got {key!r}")
        nested: Any = dict(enumerate(value)) if flatten_list and isinstance(value, list) else value
        if isinstance(nested, dict):
            inside = flatten_dict(nested, delimiter, prevent_delimiter, flatten_list)
            out.update({f"{key}{delimiter}{name}": one for name, one in inside.items()})
        else:
            out[key] = value
    return out


def unflatten_dict(dt: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """Return nested dicts for a dict with names joined by `delimiter`."""
    out: dict[str, Any] = {}
    for path, value in dt.items():
        *around, last = path.split(delimiter)
        inside = out
        for key in around:
            inside = inside.setdefault(key, {})
            if not isinstance(inside, dict):
                raise TypeError(f"unflatten_dict: {path!r} is below {key!r}, which must be a dict, got {inside!r:.80}")
        inside[last] = value
    return out


def unflatten_list_dict(dt: Mapping[str, Any], delimiter: str = "/") -> Any:
    """Return nested dicts and lists for a dict with names joined by `delimiter`; numbers are indices of lists."""
    nested = unflatten_dict(dt, delimiter)
    return _with_lists(nested)


def _with_lists(nested: Any) -> Any:
    if not isinstance(nested, dict):
        return nested
    inside = {key: _with_lists(value) for key, value in nested.items()}
    if not inside or not all(key.isdigit() for key in inside):
        return inside
    if list(inside) != [str(place) for place in range(len(inside))]:
        raise ValueError(f"unflatten_list_dict: a list's indices must be 0, 1, 2 and so on, got {', '.join(inside)}")
    return list(inside.values())


def unflattened_lookup(flat_key: str, lookup: Any, delimiter: str = "/", **kwargs: Any) -> Any:
    """Return the value at a path such as "a/0/b", or `default` if that is given and the value is missing."""
    if flat_key in lookup:
        return lookup[flat_key]
    found = lookup
    for key in flat_key.split(delimiter):
        try:
            if not isinstance(found, (Mapping, Sequence)) or isinstance(found, str):
                raise KeyError(key)
            found = found[key] if isinstance(found, Mapping) else found[int(key)]
        except KeyError:
            if "default" in kwargs:
                return kwargs["default"]
            raise
    return found


def deep_update(
    original: dict[str, Any],
    new_dict: Mapping[str, Any],
    new_keys_allowed: bool = False,
    allow_new_subkey_list: Collection[str] | None = None,
    override_all_if_type_changes: Collection[str] | None = None,
    override_all_key_list: Collection[str] | None = None,
) -> dict[str, Any]:
    """Copy a nested dict's values into another one and return it. New names raise KeyError unless allowed."""
    whole = override_all_key_list or ()
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise KeyError(f"deep_update: there is no {key!r} among {', '.join(map(repr, original))}")
        old = original.get(key)
        if not isinstance(old, dict) or not isinstance(value, Mapping) or key in whole:
            original[key] = value
        elif key in (override_all_if_type_changes or ()) and old.get("type", value.get("type")) != value.get(
            "type", old.get("type")
        ):
            original[key] = value
        else:
            allowed = new_keys_allowed or key in (allow_new_subkey_list or ())
            deep_update(old, value, allowed, override_all_key_list=whole)
    return original


def merge_dicts(d1: Mapping[str, Any], d2: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a nested dict, updated with another one's values."""
    return deep_update(copy.deepcopy(dict(d1)), d2, True)
