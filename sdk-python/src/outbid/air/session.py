"""`session.report` and related functions."""

from __future__ import annotations

from outbid.tune._config import Placement
from outbid.tune._context import get_context
from outbid.tune._session import get_checkpoint, report


def get_trial_name() -> str | None:
    """Return the trial's name."""
    return get_context().get_trial_name()


def get_trial_id() -> str | None:
    """Return the trial's id."""
    return get_context().get_trial_id()


def get_trial_dir() -> str | None:
    """Return the trial's directory."""
    return get_context().get_trial_dir()


def get_trial_resources() -> Placement | None:
    """Return the trial's resources."""
    return get_context().get_trial_resources()


def get_experiment_name() -> str | None:
    """Return the experiment's name."""
    return get_context().get_experiment_name()


def get_world_size() -> int:
    """Return 1, because a trial is one process."""
    return 1


def get_world_rank() -> int:
    """Return 0, because a trial is one process."""
    return 0


get_local_rank = get_world_rank

__all__ = [
    "get_checkpoint",
    "get_experiment_name",
    "get_local_rank",
    "get_trial_dir",
    "get_trial_id",
    "get_trial_name",
    "get_trial_resources",
    "get_world_rank",
    "get_world_size",
    "report",
]
