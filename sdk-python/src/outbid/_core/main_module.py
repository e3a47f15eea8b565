"""In a trial's process, the modules sent with a training function, including the user's `__main__`.

`multiprocessing` sends functions and classes to its processes by name. To let it find those of the user's script or
notebook, `install` adds them to `sys.modules`. Processes that are not forked do the same (`outbid._core.child_main`).
"""

from __future__ import annotations

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
"""The environment variable with the path of the function's file, for processes that the trial starts."""

_MODULES: Final = "OUTBID_FUNCTION_MODULES"  # the environment variable with the names of the modules sent with it
_MAIN: Final = "__main__"
_CHILD: Final = "outbid._core.child_main"
_MAKERS: Final = frozenset({"_make_function", "_make_skeleton_class", "_make_skeleton_enum", "dynamic_subimport"})

_installed: dict[str, ModuleType | None] = {}  # by name, with the module that was replaced


class Unpickler(pickle.Unpickler):
    """Records the objects that cloudpickle makes from things sent by value."""

    def __init__(self, pickled: memoryview) -> None:
        super().__init__(io.BytesIO(pickled))
        self.made: list[Any] = []

    def find_class(self, module: str, name: str) -> Any:
        """Return an object that a pickle refers to."""
        found = super().find_class(module, name)
        return self._noting(found) if name in _MAKERS and module.startswith("cloudpickle") else found

    def _noting(self, maker: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **given: Any) -> Any:
            thing = maker(*args, **given)
            self.made.append(thing)
            return thing

        return make


class _Part(ModuleType):
    """A partial module: only the parts that a function needs were sent. The rest is imported if its file is here."""

    def __getattr__(self, name: str) -> Any:
        """Return another attribute of the module, from its file."""
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
    """Return the contents that were sent of each module, by name."""
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
    """Add the modules that were sent to `sys.modules`, replacing those of an earlier call.

    `function` is the file that they were sent in.
    """
    _remove()
    found = contents(made)
    if names := found.pop(_MAIN, {}):
        main = ModuleType(_MAIN)
        main.__dict__.update(names)
        main.__spec__ = importlib.util.find_spec(_CHILD)  # the module that multiprocessing imports in its processes
        _put(_MAIN, main)
    for name, names in sorted(found.items()):
        if name not in sys.modules and _is_own(name):
            import cloudpickle

            _place(name).__dict__.update(names)
            # Another process must be able to read a saved object of such a class.
            cloudpickle.register_pickle_by_value(sys.modules[name])
    if _installed:
        os.environ[FUNCTION] = function
        os.environ[_MODULES] = ",".join(name for name in _installed if name != _MAIN)
    _end_fork_server()


def travelled(name: str) -> bool:
    """Return whether a module is here because it was sent with the installed function."""
    return name in _installed


def in_child(load: Callable[[], Any]) -> None:
    """Call `load` to install the modules of a trial's function when a child process imports one of them.

    The function may contain much data, which most processes do not need: joblib's processes get all they run by value.
    """
    names = os.environ.get(_MODULES, "")
    sys.meta_path.insert(0, _Waiting(frozenset(names.split(",")), load))


class _Waiting:
    """Finds modules that `load` installs.

    It has no base class, as importlib.abc takes an eighth of the time in which a training process starts.
    """

    def __init__(self, names: frozenset[str], load: Callable[[], Any]) -> None:
        self._names, self._load = names, load

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of an installed module."""
        if fullname not in self._names:
            return None
        if fullname not in sys.modules:
            names, self._names = self._names, frozenset()  # loading looks for these modules too
            self._load()
            self._names = names
        if fullname not in sys.modules:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the installed module."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module is complete."""


def _is_own(name: str) -> bool:
    """Return whether a module is the user's rather than installed. Functions of both may be sent by value."""
    first = name.partition(".")[0]
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        return first in _installed  # it has just been installed here
    if spec is None:
        return True
    if first == "outbid" or spec.origin in ("built-in", "frozen"):
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return all(_under_user(Path(place)) for place in places)


def _under_user(path: Path) -> bool:
    """Return whether a file is below the working directory or PYTHONPATH, but not in site-packages."""
    if {"site-packages", "dist-packages"} & set(path.parts):
        return False
    users = [".", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    try:
        return any(path.resolve().is_relative_to(Path(place).resolve()) for place in users)
    except OSError:  # the working directory was deleted
        return False


def _place(name: str) -> ModuleType:
    """Add a module to `sys.modules`, after its parent packages."""
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
    """Remove the modules of an earlier function."""
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
    """Load a module from its file on this machine; None if the file does not exist."""
    spec = _file_of(name)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _end_fork_server() -> None:
    """End multiprocessing's fork server, which has the names of an earlier function."""
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    if callable(stop := getattr(server, "_stop", None)):
        stop()
