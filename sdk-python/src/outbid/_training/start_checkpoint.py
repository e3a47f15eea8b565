"""The part of a trial that reads its start checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outbid._core.errors import CheckpointError
from outbid._training import tensors
from outbid._training.gang_loop import GangLoop
from outbid._training.manifest import Manifest, Place, is_manifest
from outbid._training.opaque import unpack


class StartCheckpoint(GangLoop):
    """A `GangLoop` with the checkpoint that the trial starts from."""

    @property
    def checkpoint_path(self) -> Path | None:
        """The start checkpoint, a safetensors file; None for a fresh start.

        If its ranks saved with `sharded=True`, this is the manifest of `checkpoint_shards`.
        """
        return Path(self._a.checkpoint_path) if self._a.checkpoint_path else None

    @property
    def checkpoint_shards(self) -> dict[int, Path]:
        """The files that ranks saved with `sharded=True` for the start checkpoint, by rank; otherwise empty.

        They are those of the ranks on this node. If the number of ranks has changed since, or if the ranks saved
        directories, they are those of all ranks.
        """
        return {shard.rank: Path(shard.path) for shard in self._a.start_shards}

    @property
    def metadata(self) -> dict[str, Any]:
        """The `metadata` that was saved with the start checkpoint; empty for a fresh start."""
        if self._metadata is None:
            self.checkpoint()
        return self._metadata or {}

    def checkpoint(self, *, shard: int | None = None) -> Any:
        """Return the start checkpoint, or None for a fresh start: weights by name, an object, or a directory's path.

        The names are those given to `save`, nested ones joined by dots. An object that was saved whole is returned as
        it was. A directory is unpacked below `scratch`. Raises CheckpointError for a file that cannot be read.

        If the ranks saved with `sharded=True`, each gets what it saved itself. Directories of all ranks are joined to
        one, whatever the number of ranks is now. For other shards, raises CheckpointError if that number has changed;
        then `shard` selects one of `checkpoint_shards`.
        """
        path = self.checkpoint_path
        if path is None:
            return None
        if is_manifest(path):
            found = Manifest.read(path)
            self._metadata = found.metadata
            return found.load(self.checkpoint_shards, shard, Place(self.rank, self.world_size, self._a.scratch))
        if shard is not None:
            raise CheckpointError("checkpoint: leave out shard, because the ranks saved without sharded=True")
        arrays, self._metadata = tensors.read(path)
        return unpack(arrays, self._a.scratch)
