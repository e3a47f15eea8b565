"""Every public name of Ray Tune's, Train's and AIR's modules is in Outbid's, or raises what to use instead."""

from __future__ import annotations

import importlib
import pkgutil
import types
import warnings
from collections.abc import Iterator

import pytest

from outbid.tune import UnsupportedError

pytest.importorskip("ray.tune")

ROOTS = ("ray.tune", "ray.train", "ray.air")
NOT_FOR_USERS = ("examples", "tests")


def walk(root: str) -> Iterator[types.ModuleType]:
    """Yield the public modules of a package that can be imported here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(root)
    except (ImportError, Warning):  # it needs a package that is not installed, or was removed
        return
    yield module
    for below in pkgutil.iter_modules(getattr(module, "__path__", [])):
        if not below.name.startswith("_") and below.name not in NOT_FOR_USERS:
            yield from walk(f"{root}.{below.name}")


def public(module: types.ModuleType) -> list[str]:
    """Return the public names of a module: those that it lists or defines."""
    own = [n for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__]
    return [n for n in getattr(module, "__all__", own) if not n.startswith("_")]


@pytest.mark.parametrize("root", ROOTS)
def test_every_public_name_is_here_or_says_what_to_use(root: str) -> None:
    missing, seen = [], 0
    for theirs in walk(root):
        own = f"outbid.{theirs.__name__.removeprefix('ray.')}"
        try:
            ours = importlib.import_module(own)
        except UnsupportedError:
            continue
        except ImportError as error:
            missing.append(f"{own}: {error}")
            continue
        for name in public(theirs):
            seen += 1
            try:
                getattr(ours, name)
            except UnsupportedError as error:
                assert ":" in str(error), error
            except AttributeError:
                missing.append(f"{own}.{name}")
    assert not missing
    assert seen > 10
