"""Utilities of Ray Tune, compared with Ray's."""

from __future__ import annotations

import copy
import threading
from types import ModuleType
from typing import Any

import pytest

from outbid import tune
from outbid.tune import utils

NESTED: dict[str, Any] = {"a": {"b": [1, {"c": 2}], "d": {}}, "e": None, "f/g": {"h": (3,)}}
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("flatten_dict", (NESTED,), {}),
    ("flatten_dict", (NESTED, "."), {}),
    ("flatten_dict", (NESTED,), {"flatten_list": True}),
    ("flatten_dict", (NESTED,), {"prevent_delimiter": True}),
    ("unflatten_dict", ({"a/b": 1, "a/c": 2, "d": 3},), {}),
    ("unflatten_dict", ({"a.b": 1, "a/c": 2}, "."), {}),
    ("unflatten_dict", ({"a": 1, "a/b": 2},), {}),
    ("unflatten_list_dict", ({"a/0/bb": 12, "a/1/cc": 56, "a/1/dd": 92},), {}),
    ("unflattened_lookup", ("a/b/1/c", NESTED), {}),
    ("unflattened_lookup", ("f/g", NESTED), {}),
    ("unflattened_lookup", ("a.b.0", NESTED, "."), {}),
    ("unflattened_lookup", ("a/x", NESTED), {}),
    ("unflattened_lookup", ("a/b/0/x", NESTED), {"default": 7}),
    ("unflattened_lookup", ("a/b/9", NESTED), {"default": 7}),
    ("merge_dicts", (NESTED, {"a": {"d": {"new": 1}}, "z": 2}), {}),
    ("deep_update", (NESTED, {"z": 2}), {}),
    ("deep_update", (NESTED, {"a": {"z": 2}}), {"allow_new_subkey_list": ["a"]}),
    ("deep_update", (NESTED, {"a": {"z": 2}}), {"new_keys_allowed": True, "override_all_key_list": ["a"]}),
    ("deep_update", ({"m": {"type": 1, "x": 2}}, {"m": {"type": 2}}), {"override_all_if_type_changes": ["m"]}),
    ("deep_update", ({"m": {"type": 1, "x": 2}}, {"m": {"type": 1}}), {"override_all_if_type_changes": ["m"]}),
    ("is_nan_or_inf", (float("inf"),), {}),
    ("is_nan", (float("nan"),), {}),
    ("_detect_config_single", (lambda config: 0,), {}),
    ("_detect_config_single", (lambda config, other: 0,), {}),
]


def answer(module: ModuleType, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    try:
        return getattr(module, name)(*copy.deepcopy(given), **named)
    except Exception:
        return "raised"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "given", "named"), CALLS)
def test_helpers_answer_as_rays_do(name: str, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    from ray.tune.utils import util

    assert answer(utils, name, given, named) == answer(util, name, given, named)


def test_every_helper_of_rays_is_there_or_says_what_to_use() -> None:
    import ray.tune.utils as theirs
    from ray.tune.utils import util

    public = {
        n for n in vars(util) if not n.startswith("_") and getattr(vars(util)[n], "__module__", "") == util.__name__
    }
    for name in {*theirs.__all__, *public}:
        try:
            getattr(utils, name)
        except tune.UnsupportedError as error:
            assert name in str(error) and ": " in str(error)
    with pytest.raises(tune.UnsupportedError, match="psutil"):
        utils.UtilMonitor()
    with pytest.raises(AttributeError):
        getattr(utils, "nothing_of_the_kind")  # noqa: B009


def test_what_cannot_travel_is_named() -> None:
    event = threading.Event()

    def holds(config: dict[str, Any]) -> None:
        event.wait()

    def fine(config: dict[str, Any]) -> None:
        threading.Event()

    from ray.tune.utils import diagnose_serialization

    for function in (holds, fine):
        assert utils.diagnose_serialization(function) == diagnose_serialization(function)
