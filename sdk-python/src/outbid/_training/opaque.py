"""Checkpoints that are a directory or a picklable object, stored in one array of bytes."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outbid._core.errors import CheckpointError

if TYPE_CHECKING:
    import tarfile

    import numpy.typing as npt

    Array = npt.NDArray[Any]

_PICKLE, _DIRECTORY = "outbid.pickle", "outbid.directory"


def pack(thing: Any) -> dict[str, Array]:
    """Return a directory's files, given its path, or another object's pickle as one array.

    Raises TypeError for something that is not worth saving or cannot be pickled.
    """
    if isinstance(thing, (str, os.PathLike)):
        path = Path(thing)
        if not path.is_dir():
            raise TypeError(f"save: {str(thing)!r} is not a directory; weights are a dict of arrays, or any object")
        return _bytes(_DIRECTORY, _tar(path))
    if thing is None or isinstance(thing, (bool, int, float, bytes, list, tuple)):
        raise TypeError(
            "save: weights must be a dict of arrays or an object with state_dict(), another object, or the path of a "
            f"directory, got {type(thing).__name__}"
        )
    import cloudpickle

    try:
        return _bytes(_PICKLE, cloudpickle.dumps(thing))
    except Exception as error:
        raise TypeError(f"save: {type(thing).__name__} cannot be pickled: {error}") from error


def is_pickle(arrays: Mapping[str, Array]) -> bool:
    """Return whether `unpack` unpickles these arrays, which runs code of their writer."""
    return _PICKLE in arrays


def is_directory(arrays: Mapping[str, Array]) -> bool:
    """Return whether these arrays are the files of a directory."""
    return _DIRECTORY in arrays


def open_directory(arrays: Mapping[str, Array]) -> tarfile.TarFile:
    """Return the files of a directory."""
    import tarfile

    return tarfile.open(fileobj=io.BytesIO(arrays[_DIRECTORY].data))


def unpack(arrays: Mapping[str, Array], into: str | os.PathLike[str] | None = None) -> Any:
    """Return what was saved: arrays by name, an object, or the path of a directory.

    A directory is extracted into a new one below `into`, or below the directory for temporary files.
    """
    if _PICKLE in arrays:
        try:
            return pickle.loads(arrays[_PICKLE].tobytes())
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"the checkpoint cannot be unpickled here: {what}") from error
    if _DIRECTORY in arrays:
        import tempfile

        place = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=into))
        with open_directory(arrays) as files:
            files.extractall(place, filter="data")
        return place
    return arrays


def _tar(path: Path) -> bytes:
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as files:
        for inside in sorted(path.iterdir()):
            files.add(inside, inside.name)
    return buffer.getvalue()


def _bytes(name: str, content: bytes) -> dict[str, Array]:
    import numpy as np

    return {name: np.frombuffer(content, dtype=np.uint8)}
