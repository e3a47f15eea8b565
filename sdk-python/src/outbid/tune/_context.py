"""TuneContext: information about the trial for a training function."""

from __future__ import annotations

from typing import Any

from outbid.tune import _session
from outbid.tune._config import Placement
from outbid.tune._storage import StorageContext


class TuneContext:
    """The trial that runs in this process. Every result is None outside a trial."""

    def get_trial_name(self) -> str | None:
        """Return the trial's name."""
        return repr(_session.current.trial) if _session.current else None

    def get_trial_id(self) -> str | None:
        """Return the trial's id."""
        return _session.current.trial.trial_id if _session.current else None

    def get_trial_dir(self) -> str | None:
        """Return the trial's directory."""
        return _session.current.trial.local_path if _session.current else None

    def get_trial_resources(self) -> Placement | None:
        """Return the trial's resources."""
        return _session.current.placement if _session.current else None

    def get_experiment_name(self) -> str | None:
        """Return the experiment's name."""
        from pathlib import Path

        return Path(_session.current.plan.folder).name if _session.current else None

    def get_storage(self) -> StorageContext | None:
        """Return the storage of the trial's files."""
        return _session.current.trial.storage if _session.current else None

    def get_metadata(self) -> dict[str, Any]:
        """Return an empty dict: metadata belongs to Ray Train's trainers."""
        return {}

    def get_world_size(self) -> int:
        """Return 1, because a trial is one process."""
        return 1

    get_local_world_size = get_world_size

    def get_world_rank(self) -> int:
        """Return 0, because a trial is one process."""
        return 0

    get_local_rank = get_node_rank = get_world_rank


def get_context() -> TuneContext:
    """Return the context of the trial."""
    return TuneContext()
