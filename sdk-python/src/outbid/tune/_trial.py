"""Trial: a trial for callbacks, schedulers and naming functions."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from outbid.tune import _order
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._config import CheckpointConfig, Placement
from outbid.tune._storage import StorageContext
from outbid.tune._variants import leaves, settled, tag

_LONGEST = 130  # maximum characters of a directory's name before the date


class Trial:
    """One configuration of an experiment."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"

    def __init__(self, number: int, trial_id: str, trainable_name: str, config: dict[str, Any]) -> None:
        self.number = number
        self.trial_id = trial_id
        self.trainable_name = trainable_name
        self.config = config
        self.evaluated_params: dict[str, Any] = {}
        self.experiment_tag = str(number)
        self.status = self.PENDING
        self.last_result: dict[str, Any] = {}
        self.custom_trial_name: str | None = None
        self.error_msg = ""
        self.num_failures = 0
        self.error: Exception | None = None
        self.placement = Placement([{"CPU": 1}])
        self.local_experiment_path = ""
        self.relative_logdir = ""
        self.checkpoint_config = CheckpointConfig()
        self.checkpoints: list[tuple[Checkpoint, dict[str, Any]]] = []
        self.history: list[dict[str, Any]] = []

    def __repr__(self) -> str:
        return self.custom_trial_name or f"{self.trainable_name}_{self.trial_id}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trial) and self.trial_id == other.trial_id

    def __hash__(self) -> int:
        return hash(self.trial_id)

    @property
    def local_path(self) -> str:
        """The trial's directory."""
        return os.path.join(self.local_experiment_path, self.relative_logdir)

    path = logdir = local_dir = local_path
    storage_path = local_path

    @property
    def storage(self) -> StorageContext:
        """The location of the trial's files."""
        return StorageContext(self.local_experiment_path, self.relative_logdir)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint."""
        return self.checkpoints[-1][0] if self.checkpoints else None

    def has_checkpoint(self) -> bool:
        """Whether the trial has saved a checkpoint."""
        return bool(self.checkpoints)

    @property
    def experiment_dir_name(self) -> str:
        """The name of the experiment's directory."""
        return os.path.basename(self.local_experiment_path)

    @property
    def error_file(self) -> str | None:
        """The file with the error of a failed trial."""
        return self._file("error.txt")

    @property
    def pickled_error_file(self) -> str | None:
        """The file with the pickled error."""
        return self._file("error.pkl")

    def get_error(self) -> Exception | None:
        """Return the error of a failed trial, or None."""
        return self.error

    get_pickled_error = get_error

    def _file(self, name: str) -> str | None:
        path = os.path.join(self.local_path, name)
        return path if os.path.isfile(path) else None

    def init_local_path(self) -> None:
        """Create the trial's directory. Loggers call this before they write."""
        os.makedirs(self.local_path, exist_ok=True)

    init_logdir = init_local_path

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """The maximum, minimum, mean and last value of each reported number."""
        values: dict[str, list[float]] = {}
        for result in self.history or [self.last_result]:
            for name, value in flatten(result).items():
                if not isinstance(value, (bool, str)) and (number := _order.number(value)) is not None:
                    values.setdefault(name, []).append(number)
        return {
            name: {
                "max": _order.extreme(seen, "max"),
                "min": _order.extreme(seen, "min"),
                "avg": sum(seen) / len(seen),
                "last": seen[-1],
                "last-5-avg": sum(seen[-5:]) / len(seen[-5:]),
                "last-10-avg": sum(seen[-10:]) / len(seen[-10:]),
            }
            for name, seen in values.items()
        }

    @property
    def placement_group_factory(self) -> Placement:
        """The trial's resources."""
        return self.placement

    def is_finished(self) -> bool:
        """Whether the trial has ended."""
        return self.status in (self.TERMINATED, self.ERROR)

    def set_status(self, status: str) -> None:
        """Change the status."""
        self.status = status

    def get_trainable_cls(self) -> Any:
        """Return None, because classes only exist in workers."""
        return None


def name_trial(
    trial: Trial, space: Any, *, name: Any, dirname: Any, date: datetime.datetime, searched: bool = False
) -> None:
    """Set a trial's tag, its name and its directory's name.

    Like in Ray, with `searched` (by a search algorithm) it is counted from 1 and named by its whole configuration.
    """
    values = settled(space, trial.config)
    trial.evaluated_params = {"/".join(map(str, path)): value for path, value in values.items()}
    number = trial.number
    if searched:
        number, values = number + 1, leaves(space, trial.config)
    trial.experiment_tag = f"{number}_{tag(values)}" if values else str(number)
    if name is not None:
        trial.custom_trial_name = str(name(trial))
    if dirname is not None:
        made = str(dirname(trial))
        if "/" in made:
            raise ValueError(f"trial_dirname_creator: a directory's name must not contain '/', got {made!r}")
    else:
        made = f"{trial!r}_{trial.experiment_tag}"[:_LONGEST] + f"_{date:%Y-%m-%d_%H-%M-%S}"
    # only characters that are valid on any system, like in Ray
    trial.relative_logdir = re.sub(r'[/()<>:"\\|?*]', "_", made)


def flatten(thing: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested dicts as one dict, with names joined by slashes."""
    out: dict[str, Any] = {}
    for key, value in thing.items():
        if isinstance(value, Mapping) and value:
            out.update(flatten(value, f"{prefix}{key}/"))
        else:
            out[f"{prefix}{key}"] = value
    return out


def to_json(thing: Any) -> str:
    """Return a result as one line of JSON. Values that JSON cannot represent become text."""
    return json.dumps(thing, default=_plain)


def _plain(value: Any) -> Any:
    for name in ("item", "tolist"):
        call = getattr(value, name, None)
        if callable(call) and (name == "tolist" or getattr(value, "ndim", None) == 0):
            try:
                return call()
            except Exception:
                break
    return dict(value) if isinstance(value, Mapping) else str(value)
