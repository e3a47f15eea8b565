"""Serialises training functions: pickled by value, so that they need not be installed on the workers."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import itertools
import operator
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

from outbid._core import main_module, sources
from outbid._core.errors import FunctionError

MAX_BYTES = 256 << 20
"""The maximum size of a pickled function."""

_MAGIC = b"outbid function 1 "


def dump(function: Callable[..., Any]) -> bytes:
    """Return `function` as a blob: one header line, then the pickle, then the sources of the code in it.

    The blob contains what the function needs from `__main__`, from a notebook, and from modules that are neither
    installed nor part of Python; a cache of `functools.lru_cache` is sent empty. Everything else is imported on the
    worker.
    """
    import cloudpickle

    buffer = io.BytesIO()
    try:
        with _by_value(_own_modules()):
            codes = _write(function, buffer)
    except Exception as error:
        raise FunctionError(
            f"the training function {name_of(function)!r} cannot be pickled: {type(error).__name__}: {error}. "
            "Open files, locks, connections and CUDA handles inside the function instead of outside"
            + _culprit(function)
        ) from error
    source = sources.gather(codes)  # the unpickler stops at the end of the pickle
    header = f"python={_python()} sdk-pickle={cloudpickle.__version__} sources={len(source)}\n"
    blob = b"".join((_MAGIC, header.encode(), buffer.getbuffer(), source))
    if len(blob) > MAX_BYTES:
        raise FunctionError(
            f"the training function {name_of(function)!r} is {_mib(len(blob))} with what it captures; "
            f"at most {_mib(MAX_BYTES)} can be sent. Load data inside the function, or from a file" + _largest(function)
        )
    return blob


def load(blob: bytes) -> Callable[..., Any]:
    """Return the function in a blob made by `dump`. Raises FunctionError if something is missing here."""
    return _load(blob)[0]


def load_file(path: str) -> Callable[..., Any]:
    """Return the function in a file for a trial, and install its modules and sources in this process."""
    blob = Path(path).read_bytes()
    function, made = _load(blob)
    main_module.install(made, path)
    show_sources(blob)
    return function


@functools.cache
def main_of_trial() -> dict[str, Any]:
    """Return the contents of `__main__` of the trial that started this process, and install its other modules."""
    path = os.environ[main_module.FUNCTION]
    _, made = _load(Path(path).read_bytes())
    names = main_module.contents(made).get("__main__", {})
    main_module.install([thing for thing in made if getattr(thing, "__module__", "") != "__main__"], path)
    return names


def _load(blob: bytes) -> tuple[Callable[..., Any], list[Any]]:
    """Return the function in a blob, and the objects that were made from things sent by value."""
    fields, start = _header(blob)
    reader = main_module.Unpickler(memoryview(blob)[start:])
    try:
        function: Callable[..., Any] = reader.load()
    except Exception as error:
        raise FunctionError(_explain(error, fields.get("python", _python()))) from error
    return function, reader.made


def show_sources(blob: bytes) -> None:
    """Use the sources in a blob for the tracebacks of this process, instead of those of earlier blobs."""
    fields, _ = _header(blob)
    sources.show(blob[len(blob) - int(fields.get("sources", 0)) :])


def sha256(blob: bytes) -> str:
    """Return the blob's name in the store, which is its hash."""
    import hashlib  # not for trials, which only load functions

    return hashlib.sha256(blob).hexdigest()


def name_of(function: Callable[..., Any]) -> str:
    """Return the function's name for messages."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _header(blob: bytes) -> tuple[dict[str, str], int]:
    """Return the fields of a blob's header, and the position of the pickle."""
    if not blob.startswith(_MAGIC):
        raise FunctionError("this is not a function that the Outbid SDK has pickled")
    end = blob.find(b"\n")
    return dict(part.split("=", 1) for part in blob[len(_MAGIC) : end].decode().split()), end + 1


def _write(function: Callable[..., Any], buffer: io.BytesIO) -> list[CodeType]:
    """Pickle a function; returns the code objects that are sent by value."""
    import cloudpickle

    codes = []
    copies: dict[int, CodeType] = {}

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, CodeType) and id(obj) not in copies:
                codes.append(obj)
                # Since 3.1.3 cloudpickle gives all files the same name, and tracebacks would not name a file.
                copy = obj.replace()
                copies[id(copy)] = copy
                return operator.methodcaller("replace", co_filename=obj.co_filename), (copy,)
            if isinstance(obj, _CACHED) and obj.__module__ in values:
                kept = obj.cache_parameters()
                return _empty_cache, (kept["maxsize"], kept["typed"]), obj.__wrapped__, None, None, _fill_cache
            if _is_module(obj) and type(obj) is not ModuleType and not _says_how(obj):
                # Such as a module that loads on first use. cloudpickle only supports modules of Python's class.
                name = str(_fact(obj, "__name__"))
                return cloudpickle.cloudpickle._module_reduce(obj) if _is_in(name, values) else (_module, (name,))
            reduced = super().reducer_override(obj)
            return _with_inner_modules(obj, reduced) if isinstance(obj, FunctionType) else reduced

    values = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
    Pickler(buffer).dump(function)
    return codes


def _with_inner_modules(function: FunctionType, reduced: Any) -> Any:
    """Add submodules such as `xml.dom` that the lambdas, comprehensions and functions inside a function use.

    cloudpickle only adds those that the function's own code names.
    """
    import cloudpickle

    if isinstance(reduced, tuple) and len(codes := list(_codes(function.__code__))) > 1:
        slots = reduced[2][1]
        named = SimpleNamespace(co_names=[name for code in codes for name in code.co_names])
        known = (*slots["__globals__"].values(), *_closure(function).values())
        slots["_cloudpickle_submodules"] = cloudpickle.cloudpickle._find_imported_submodules(named, known)
    return reduced


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


_CACHED = type(functools.lru_cache(int))


def _is_module(thing: Any) -> bool:
    """Return whether an object is a module. `isinstance` also accepts objects that claim to be one, as cffi's do."""
    return issubclass(type(thing), ModuleType)


def _fact(module: ModuleType, name: str) -> Any:
    """Return an attribute of a module or None, without loading a lazy module."""
    return object.__getattribute__(module, "__dict__").get(name)


def _says_how(thing: Any) -> bool:
    """Return whether an object's class defines how it is pickled."""
    kind: Any = type(thing)
    return bool(kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__)


def _is_in(module: str, packages: set[str]) -> bool:
    """Return whether a module is one of these packages or inside one."""
    return any(module == name or module.startswith(name + ".") for name in packages)


class _Later(ModuleType):
    """A module that is imported on first use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def _module(name: str) -> ModuleType:
    """Return a module by its name. It is imported on first use, because a worker may never use it."""
    return sys.modules.get(name) or _Later(name)


def _empty_cache(maxsize: int | None, typed: bool) -> Any:
    """Return a cached function without its function, because a recursive function is part of itself."""

    @functools.lru_cache(maxsize, typed)
    def cached(*args: Any, **kwargs: Any) -> Any:
        return cached.__wrapped__(*args, **kwargs)

    return cached


def _fill_cache(cached: Any, function: Any) -> None:
    """Set the function of a cached function."""
    functools.update_wrapper(cached, function)


def _explain(error: Exception, pickled_by: str) -> str:
    here = f"{sys.executable} (Python {_python()})"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (
            f"the training function needs the module {error.name!r}, which {here} on this worker does not have: "
            "install it there, or name another interpreter with Sweep(python=...)"
        )
    if pickled_by != _python():
        return (
            f"the training function was pickled by Python {pickled_by} and cannot be read by {here}: "
            f"name an interpreter of the same version with Sweep(python=...) ({type(error).__name__}: {error})"
        )
    return f"the training function cannot be unpickled by {here}: {type(error).__name__}: {error}"


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _own_modules() -> list[ModuleType]:
    """Return the loaded modules that a worker cannot import: the user's files that are not installed."""
    users = _user_folders()
    own = []
    for name, module in list(sys.modules.items()):
        file = _fact(module, "__file__") if _is_module(module) else None
        path = _own_file(str(file)) if file and name != "__main__" else None
        if path is None or not any(path.is_relative_to(place) for place in users):
            continue
        if not any(path in _recorded(place) for place in path.parents):
            own.append(module)
    return own


# A program has thousands of modules in hundreds of folders, and may send several functions.
@functools.lru_cache(maxsize=1 << 14)
def _own_file(file: str) -> Path | None:
    """Return a module's file without links, or None if it is installed or not Python's source."""
    if not file.endswith(".py"):
        return None
    real = os.path.realpath(file) if os.path.islink(file) else file
    folder = _own_folder(os.path.dirname(real))
    return None if folder is None else folder / os.path.basename(real)


@functools.lru_cache(maxsize=1 << 12)
def _own_folder(folder: str) -> Path | None:
    """Return a folder without links, or None for one of installed packages."""
    real = Path(folder).resolve()
    if "site-packages" in real.parts or "dist-packages" in real.parts:
        return None
    return None if any(real.is_relative_to(place) for place in _installed()) else real


@functools.cache
def _installed() -> frozenset[Path]:
    """Return the folders of this package, of Python, and of packages that are installed for it."""
    places = {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix}
    return frozenset({*(Path(place).resolve() for place in places), Path(__file__).resolve().parents[1]})


@functools.lru_cache(maxsize=64)
def _recorded(place: Path) -> frozenset[Path]:
    """Return the files that pip has installed in a folder, such as with --target."""
    lines = (
        line for record in place.glob("*.dist-info/RECORD") for line in record.read_text(errors="replace").splitlines()
    )
    return frozenset(place / line.split(",", 1)[0] for line in lines)


def _user_folders() -> list[Path]:
    """Return the folders in which the user's modules are: the working directory, the script's folder and PYTHONPATH."""
    places = []
    with contextlib.suppress(FileNotFoundError):  # the working directory may have been deleted
        places.append(Path.cwd())
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main:
        places.append(Path(main).resolve().parent)
    places.extend(Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry)
    return places


@contextlib.contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    import cloudpickle

    already = set(cloudpickle.list_registry_pickle_by_value())
    added = [module for module in modules if module.__name__ not in already]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def _captured(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what the function captures: the globals that it uses and its closure variables."""
    while hasattr(function, "func"):
        function = function.func
    code = getattr(function, "__code__", None)
    if code is None:
        return {}
    found = {name: value for name, value in function.__globals__.items() if name in code.co_names}
    found |= _closure(function)
    return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}


def _closure(function: Any) -> dict[str, Any]:
    """Return a function's closure variables that have a value."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _size(value: Any) -> int | None:
    import cloudpickle

    try:
        return len(cloudpickle.dumps(value))
    except Exception:
        return None


def _largest(function: Callable[..., Any]) -> str:
    sizes = {name: size for name, value in _captured(function).items() if (size := _size(value)) is not None}
    top = sorted(sizes.items(), key=lambda item: -item[1])[:3]
    return " (largest: " + ", ".join(f"{name} {_mib(size)}" for name, size in top) + ")" if top else ""


def _culprit(function: Callable[..., Any]) -> str:
    bad = [_where(name, value) for name, value in _captured(function).items() if _size(value) is None]
    return " (it captures: " + ", ".join(sorted(bad)) + ")" if bad else ""


def _where(path: str, value: Any, depth: int = 5) -> str:
    """Return the path to the part of a value that cannot be pickled, such as "setup['db'].connection"."""
    inside: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Mapping):
        inside = ((f"{path}[{key!r:.40}]", one) for key, one in value.items())
    elif isinstance(value, (list, tuple)):
        inside = ((f"{path}[{i}]", one) for i, one in enumerate(value))
    elif not isinstance(value, (type, FunctionType)):
        inside = ((f"{path}.{name}", one) for name, one in getattr(value, "__dict__", {}).items())
    for place, one in itertools.islice(inside, 1000 if depth else 0):
        if _size(one) is None:
            return _where(place, one, depth - 1)
    return path


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
