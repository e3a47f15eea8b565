"""Checkpoint: a checkpoint that is a directory."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outbid.tune._errors import unsupported

_METADATA = ".metadata.json"


class Checkpoint:
    """A directory that a trial has saved. `path` is its location."""

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None) -> None:
        if filesystem is not None:
            unsupported("filesystem of a Checkpoint", "name a directory")
        self.path = os.fspath(path)
        self._own: weakref.finalize[..., Any] | None = None  # deletes the directory with this object

    def __reduce__(self) -> tuple[Any, ...]:
        if self._own is not None:
            self._own.detach()  # another process may need it for longer than this object exists
        return type(self), (self.path,)

    def __repr__(self) -> str:
        return f"Checkpoint(path={self.path})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Return a directory as a checkpoint. It is copied when it is reported."""
        return cls(path)

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copy the checkpoint into a directory, by default a new one, and return its path."""
        target = os.fspath(path) if path is not None else tempfile.mkdtemp(prefix="checkpoint-")
        shutil.copytree(self.path, target, dirs_exist_ok=True)
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """Yield the directory for reading."""
        yield self.path

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata of `set_metadata`."""
        file = Path(self.path, _METADATA)
        found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
        return found

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Store metadata next to the files, replacing earlier metadata."""
        Path(self.path, _METADATA).write_text(json.dumps(metadata))

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Add entries to the metadata."""
        self.set_metadata({**self.get_metadata(), **metadata})

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Checkpoint:
        """Return a dict as a checkpoint, like Ray until 2.6."""
        import cloudpickle

        path = tempfile.mkdtemp(prefix="checkpoint-")
        Path(path, "dict_checkpoint.pkl").write_bytes(cloudpickle.dumps(data))
        made = cls(path)
        # Reporting one with every result would fill the disk, because only this object knows the directory.
        made._own = weakref.finalize(made, _delete, path, os.getpid())
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the dict that was passed to `from_dict`."""
        import cloudpickle

        file = Path(self.path, "dict_checkpoint.pkl")
        if not file.is_file():
            unsupported("to_dict() of a checkpoint that is a directory", "read its files with as_directory()")
        found: dict[str, Any] = cloudpickle.loads(file.read_bytes())
        return found


def _delete(path: str, owner: int) -> None:
    """Delete a directory in the process that made it, but not in a forked child."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
