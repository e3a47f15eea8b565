"""The manifest of a checkpoint with shards, and how their content is restored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outbid._core.errors import CheckpointError
from outbid._training import tensors
from outbid._training.opaque import is_directory, open_directory, unpack

if TYPE_CHECKING:
    import tarfile

    import numpy.typing as npt

    Arrays = dict[str, npt.NDArray[Any]]

_MARK: Final = '{"outbid.shards":'


@dataclass(frozen=True)
class StoredShard:
    """A shard in the store: its size and the sums of its file in hex."""

    bytes: int
    sha256: str
    crc64nvme: str


@dataclass(frozen=True)
class Place:
    """A rank out of `size` that restores a checkpoint, and its directory for files; None means a temporary one."""

    rank: int
    size: int
    scratch: str | None


@dataclass(frozen=True)
class Manifest:
    """A checkpoint with shards.

    `encoded` is its metadata as JSON, "" for none. `directories` says whether every shard is a directory.
    """

    encoded: str
    directories: bool
    shards: list[StoredShard]

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that rank 0 saved."""
        found: dict[str, Any] = json.loads(self.encoded) if self.encoded else {}
        return found

    def write(self, path: str) -> None:
        """Write the manifest to a file."""
        text = {
            "outbid.shards": 1,
            "metadata": self.encoded,
            "directories": self.directories,
            "shards": [vars(shard) for shard in self.shards],
        }
        with open(path, "w", encoding="utf-8") as file:
            json.dump(text, file)

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a manifest. Raises CheckpointError for a file that is not one."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            shards = [StoredShard(s["bytes"], s["sha256"], s["crc64nvme"]) for s in found["shards"]]
            return cls(found["metadata"], found["directories"], shards)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"cannot read the manifest {path}: {error}") from error

    def load(self, files: Mapping[int, Path], shard: int | None, place: Place) -> Any:
        """Return what a rank saved, or the joined directory of all ranks, or one shard if it is given.

        `files` are the shards on this node by rank. Raises CheckpointError if the shards do not fit.
        """
        count = len(self.shards)
        if shard is None and self.directories:
            missing = [rank for rank in range(count) if rank not in files]
            if missing:
                raise _missing(missing[0], count, files)
            return join([(rank, files[rank]) for rank in range(count)], place)
        if shard is None and count != place.size:
            raise CheckpointError(
                f"checkpoint: {count} ranks saved it and now there are {place.size}: read the shards with "
                f"checkpoint(shard=0) to checkpoint(shard={count - 1}), or save directories of a library that works "
                "with any number of ranks, such as torch.distributed.checkpoint"
            )
        wanted = place.rank if shard is None else shard
        if wanted not in files:
            raise _missing(wanted, count, files)
        return unpack(tensors.read(files[wanted])[0], place.scratch)


def _missing(shard: int, count: int, files: Iterable[int]) -> CheckpointError:
    if not 0 <= shard < count:
        return CheckpointError(f"checkpoint: shard must be from 0 to {count - 1}, got {shard}")
    here = ", ".join(map(str, sorted(files)))
    if not here:
        return CheckpointError("checkpoint: the worker is too old for checkpoints with shards: update it")
    return CheckpointError(f"checkpoint: shard {shard} is not on this node, which has the shards of ranks {here}")


def is_manifest(path: Path) -> bool:
    """Return whether a file of a checkpoint is the manifest of shards. A missing file is not."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MARK)) == _MARK.encode()
    except OSError:
        return False


def shard_path(manifest: Path, rank: int) -> Path:
    """Return the path of a shard that was downloaded with its manifest."""
    return manifest.with_name(f"{manifest.name}.{rank}")


def join(shards: list[tuple[int, Path]], place: Place) -> Path:
    """Extract the directories of all ranks into one new directory.

    Of files with the same path, the rank's own counts if there are as many shards as ranks. Raises CheckpointError if
    other ranks saved different files with the same path.
    """
    import tempfile

    into = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=place.scratch))
    own = place.rank if len(shards) == place.size else -1
    saved: dict[str, int] = {}
    for rank, path in sorted(shards, key=lambda s: s[0] != own):  # the rank's own first
        arrays = tensors.read(path)[0]
        if not is_directory(arrays):
            raise CheckpointError(f"checkpoint: the shard of rank {rank} is not a directory")
        with open_directory(arrays) as files:
            for file in files.getmembers():
                before = saved.get(file.name)
                if before is None or file.isdir():
                    files.extract(file, into, filter="data")
                    saved[file.name] = rank
                elif before != own and not _same(files, file, into):
                    raise CheckpointError(
                        f"checkpoint: the ranks {before} and {rank} saved different files {file.name!r}: give the "
                        "files of each rank other names, or read one shard with checkpoint(shard=)"
                    )
    return into


def _same(files: tarfile.TarFile, file: tarfile.TarInfo, into: Path) -> bool:
    """Return whether a file equals the one that was extracted before."""
    path, content = into / file.name, files.extractfile(file)
    if content is None or not path.is_file() or path.stat().st_size != file.size:
        return False
    with path.open("rb") as other:
        while data := content.read(1 << 20):
            if data != other.read(len(data)):
                return False
    return True
