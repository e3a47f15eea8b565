"""Conversion of weights to numpy arrays, and of arrays to safetensors files.

Floats, integers and booleans of up to 64 bits exist in both numpy and safetensors. Narrower floats (bfloat16, float8)
are stored as float32, which represents them exactly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from outbid._core.errors import CheckpointError
from outbid._training.opaque import pack

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

_DTYPES = frozenset("float64 float32 float16 int64 uint64 int32 uint32 int16 uint16 int8 uint8 bool".split())
_META = "outbid.metadata"


def to_arrays(weights: Any, *, copy: bool, into: Mapping[str, Array] | None = None) -> dict[str, Array]:
    """Return `weights` as named arrays: a mapping (nested ones joined by dots) or an object with state_dict().

    Another object, or a directory named by its path, becomes one array: see `pack`. With `copy`, the arrays share no
    memory with the weights. They are written into the arrays of the same names in `into` if shapes and types agree,
    because new memory costs more time than the copy.
    """
    if not isinstance(weights, Mapping):
        state_dict = getattr(weights, "state_dict", None)
        if not callable(state_dict):
            return pack(weights)
        weights = state_dict()
        if not isinstance(weights, Mapping):
            raise TypeError(f"save: state_dict() must return a dict, got {type(weights).__name__}")
    arrays: dict[str, Array] = {}
    shared: list[str] = []
    for name, value in _flatten(weights, ""):
        if name in arrays:
            raise ValueError(f"save: two weights are called {name!r}")
        arrays[name], shares = _array(name, value)
        if shares:
            shared.append(name)
    for name in shared if copy else ():  # only once all weights are known to be arrays
        arrays[name] = _copy(arrays[name], None if into is None else into.get(name))
    return arrays


def encode_metadata(metadata: Mapping[str, Any] | None) -> str:
    """Return metadata as JSON. Raises TypeError if it is not JSON."""
    if metadata is None:
        return ""
    if not isinstance(metadata, Mapping):
        raise TypeError(f"save: metadata must be a dict, got {type(metadata).__name__}")
    try:
        return json.dumps(metadata, default=_plain)
    except (TypeError, ValueError) as error:
        raise TypeError(f"save: metadata must be JSON (numbers, strings, lists, dicts): {error}") from None


def write(path: str, arrays: Mapping[str, Array], metadata: str) -> None:
    """Write arrays and metadata (JSON text, "" for none) as a safetensors file."""
    import numpy as np
    from safetensors.numpy import save_file

    # ascontiguousarray would convert a 0-d array to 1-d.
    tensors = {n: a if a.flags.c_contiguous else np.ascontiguousarray(a) for n, a in arrays.items()}
    try:
        save_file(tensors, path, metadata={_META: metadata} if metadata else None)
    except Exception as error:
        raise CheckpointError(f"cannot write the checkpoint {path}: {error}") from error


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and the metadata of a safetensors file."""
    from safetensors import safe_open

    arrays: dict[str, Array] = {}
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            header = file.metadata() or {}
            for name in file.keys():
                arrays[name] = file.get_tensor(name)
        metadata = json.loads(header[_META]) if _META in header else {}
    except Exception as error:
        raise CheckpointError(f"cannot read the checkpoint {os.fspath(path)}: {error}") from error
    return arrays, metadata


def _flatten(weights: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in weights.items():
        if not isinstance(key, str):
            raise TypeError(f"save: names of weights must be strings, got {key!r}{_inside(prefix)}")
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _inside(prefix: str) -> str:
    return f" in {prefix[:-1]!r}" if prefix else ""


def _array(name: str, value: Any) -> tuple[Array, bool]:
    """Return a weight as an array, and whether it may share memory with the weight."""
    import numpy as np

    shares = True
    if hasattr(value, "detach"):  # a torch tensor, without importing torch
        value, shares = _from_torch(value), value.device.type == "cpu"
    if isinstance(value, (str, bytes)) or value is None:
        raise _not_an_array(name, value)
    try:
        array = np.asarray(value)
    except Exception:
        raise _not_an_array(name, value) from None
    if array.dtype.name in _DTYPES:
        return (array, shares) if array.dtype.isnative else (array.astype(array.dtype.newbyteorder("=")), False)
    if array.dtype.name.startswith(("bfloat16", "float8")):
        return array.astype(np.float32), False
    raise _not_an_array(name, value, f" of type {array.dtype}")


def _copy(array: Array, into: Array | None) -> Array:
    """Return a copy of an array, in the memory of another one if that fits."""
    import numpy as np

    fits = into is not None and into.shape == array.shape and into.dtype == array.dtype and into.flags.c_contiguous
    if into is None or not fits or not into.flags.writeable or np.may_share_memory(into, array):
        return np.array(array)
    np.copyto(into, array)
    return into


def _from_torch(tensor: Any) -> Any:
    tensor = tensor.detach()
    if str(tensor.dtype).startswith(("torch.bfloat16", "torch.float8")):
        tensor = tensor.float()
    return tensor.cpu().numpy()


def _not_an_array(name: str, value: Any, detail: str = "") -> TypeError:
    return TypeError(
        f"save: weight {name!r} must be an array of numbers, got {type(value).__name__}{detail}; "
        "save other data with save(..., metadata={...})"
    )


def _plain(value: Any) -> Any:
    """Convert numpy scalars and arrays for JSON."""
    if callable(tolist := getattr(value, "tolist", None)):
        return tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")
