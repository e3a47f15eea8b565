"""StorageContext: the location of an experiment's files, returned by `get_context().get_storage()`."""

from __future__ import annotations

import importlib
import os
from typing import Any

from outbid.tune._errors import NoSuchNameError, UnsupportedError

_ELSEWHERE = {
    "persist_current_checkpoint": "tune.report(metrics, checkpoint=...), which keeps the checkpoint",
    "persist_artifacts": "tune.get_context().get_trial_dir(), where files stay by themselves",
    "checkpoint_fs_path": "the path of tune.get_checkpoint(), or of Result.checkpoint",
    "checkpoint_dir_name": 'result["checkpoint_dir_name"]',
    "current_checkpoint_index": 'result["checkpoint_dir_name"]',
    "syncer": "a storage_path that all machines share, or one machine",
    "sync_config": "a storage_path that all machines share, or one machine",
}
"""Ray's names that Outbid does not have, with alternatives."""


class StorageContext:
    """The directories of a trial and its experiment, as paths on this machine."""

    custom_fs_provided = False

    def __init__(self, experiment: str, trial_dir_name: str) -> None:
        self.storage_fs_path, self.experiment_dir_name = os.path.split(experiment)
        self.trial_dir_name = trial_dir_name

    def __repr__(self) -> str:
        return f"StorageContext({self.trial_fs_path})"

    @property
    def experiment_fs_path(self) -> str:
        """The experiment's directory."""
        return os.path.join(self.storage_fs_path, self.experiment_dir_name)

    @property
    def trial_fs_path(self) -> str:
        """The trial's directory."""
        return os.path.join(self.experiment_fs_path, self.trial_dir_name)

    @property
    def storage_filesystem(self) -> Any:
        """The file system of the paths as a pyarrow object."""
        try:
            return importlib.import_module("pyarrow.fs").LocalFileSystem()
        except ImportError:
            raise UnsupportedError(
                "outbid.tune has no storage_filesystem without pyarrow: all paths are on this machine, use open()"
            ) from None

    # Files are written to their final location and are not copied.
    trial_working_directory = trial_local_path = trial_driver_staging_path = trial_fs_path
    experiment_driver_staging_path = experiment_local_path = experiment_fs_path

    def __getattr__(self, name: str) -> Any:
        if name in _ELSEWHERE:
            raise NoSuchNameError(f"outbid.tune has no {name} of get_storage(): use {_ELSEWHERE[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
