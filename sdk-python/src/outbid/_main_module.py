"""The modules that travelled with a training function, the user's `__main__` first of all, in a trial's process.

`multiprocessing` sends functions and classes to its processes by name. So that it finds those of the user's script or
notebook, `install` puts them into `sys.modules`, and processes that are not forked do the same (`outbid._child_main`).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

FUNCTION: Final = "OUTBID_FUNCTION"
"""The variable that says where processes of a trial find the file of its function."""

_MODULES: Final = "OUTBID_FUNCTION_MODULES"  # the variable that names the modules which travelled with it
_MAIN: Final = "__main__"
_CHILD: Final = "outbid._child_main"
_MAKERS: Final = frozenset({"_make_function", "_make_skeleton_class", "_make_skeleton_enum", "dynamic_subimport"})

_installed: dict[str, ModuleType | None] = {}  # by name, with what was there before


class Unpickler(pickle.Unpickler):
    """Notes what cloudpickle makes of things that travelled by value."""

    def __init__(self, pickled: memoryview) -> None:
        super().__init__(io.BytesIO(pickled))
        self.made: list[Any] = []

    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle refers to."""
        found = super().find_class(module, name)
        return self._noting(found) if name in _MAKERS and module.startswith("cloudpickle") else found

    def _noting(self, maker: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **given: Any) -> Any:
            thing = maker(*args, **given)
            self.made.append(thing)
            return thing

        return make


class _Part(ModuleType):
    """A module of which only what a function needs travelled; the rest is imported if its file is here."""

    def __getattr__(self, name: str) -> Any:
        """Return something else of the module."""
        if name.startswith("__"):
            raise AttributeError(name)
        real = self.__dict__.get("__outbid_file__") or _imported(self.__name__)
        if real is None:
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r} here: the function does not use it"
            )
        self.__dict__["__outbid_file__"] = real
        return getattr(real, name)


def contents(made: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return what travelled of each module, by name."""
    found: dict[str, dict[str, Any]] = {}
    things = list(made)
    for thing in things:
        names = thing.__dict__ if isinstance(thing, ModuleType) else getattr(thing, "__globals__", {})
        module = names.get("__name__") or getattr(thing, "__module__", None)
        if isinstance(module, str):
            plain = {name: value for name, value in names.items() if not name.startswith("__") or name == "__file__"}
            found.setdefault(module, {}).update(plain)
    for thing in things:
        if isinstance(thing, (FunctionType, type)) and thing.__qualname__.isidentifier():
            found.setdefault(str(thing.__module__), {}).setdefault(thing.__qualname__, thing)
    return found


def install(made: Iterable[Any], function: str) -> None:
    """Put what travelled into `sys.modules`, in place of what an earlier call put there.

    `function` is the file that it travelled in.
    """
    _remove()
    found = contents(made)
    if names := found.pop(_MAIN, {}):
        main = ModuleType(_MAIN)
        main.__dict__.update(names)
        main.__spec__ = importlib.util.find_spec(_CHILD)  # what multiprocessing has its processes import
        _put(_MAIN, main)
    for name, names in sorted(found.items()):
        if name not in sys.modules and _is_own(name):
            import cloudpickle

            _place(name).__dict__.update(names)
            # An object of such a class that is saved has to be read elsewhere.
            cloudpickle.register_pickle_by_value(sys.modules[name])
    if _installed:
        os.environ[FUNCTION] = function
        os.environ[_MODULES] = ",".join(name for name in _installed if name != _MAIN)
    _end_fork_server()


def travelled(name: str) -> bool:
    """Report whether a module is here because it travelled with the function that `install` was called for."""
    return name in _installed


def in_child(load: Callable[[], Any]) -> None:
    """Have `load` install the modules of a trial's function in a process of the trial once one of them is imported.

    The function may hold much data, which most processes need not read: joblib's get all that they run by value.
    """
    names = os.environ.get(_MODULES, "")
    sys.meta_path.insert(0, _Waiting(frozenset(names.split(",")), load))


class _Waiting(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules that `load` installs."""

    def __init__(self, names: frozenset[str], load: Callable[[], Any]) -> None:
        self._names, self._load = names, load

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of one that is installed now."""
        if fullname not in self._names:
            return None
        if fullname not in sys.modules:
            names, self._names = self._names, frozenset()  # what loads them looks for them
            self._load()
            self._names = names
        if fullname not in sys.modules:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the module that is there."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing more."""


def _is_own(name: str) -> bool:
    """Return whether a module is the user's rather than installed: functions of both may travel by value."""
    first = name.partition(".")[0]
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        return first in _installed  # it was put here just now
    if spec is None:
        return True
    if first == "outbid" or spec.origin in ("built-in", "frozen"):
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return all(_under_user(Path(place)) for place in places)


def _under_user(path: Path) -> bool:
    """Return whether a file is below the working directory or PYTHONPATH, and not among installed packages."""
    if {"site-packages", "dist-packages"} & set(path.parts):
        return False
    users = [".", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    try:
        return any(path.resolve().is_relative_to(Path(place).resolve()) for place in users)
    except OSError:  # the working directory is gone
        return False


def _place(name: str) -> ModuleType:
    """Put a module into `sys.modules`, and before it those that it is in."""
    around, _, last = name.rpartition(".")
    outer = None
    if around:
        outer = sys.modules[around] if around in sys.modules else _place(around)
    module = _Part(name)
    spec = _file_of(name)
    module.__path__ = list(spec.submodule_search_locations or ()) if spec is not None else []
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    _put(name, module)
    if outer is not None:
        setattr(outer, last, module)
    return module


def _put(name: str, module: ModuleType) -> None:
    _installed[name] = sys.modules.get(name)
    sys.modules[name] = module


def _remove() -> None:
    """Take the modules of an earlier function away."""
    if not _installed:
        return
    import cloudpickle

    for name, before in _installed.items():
        if name in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(sys.modules[name])
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before
    _installed.clear()
    for variable in (FUNCTION, _MODULES):
        os.environ.pop(variable, None)


def _file_of(name: str) -> importlib.machinery.ModuleSpec | None:
    around = name.rpartition(".")[0]
    path = list(getattr(sys.modules.get(around), "__path__", ())) if around else None
    return importlib.machinery.PathFinder.find_spec(name, path)


def _imported(name: str) -> ModuleType | None:
    """Return the module as its file on this machine has it; None if there is none."""
    spec = _file_of(name)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _end_fork_server() -> None:
    """End the process that forks others for multiprocessing: it has the names of an earlier function."""
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    if callable(stop := getattr(server, "_stop", None)):
        stop()
