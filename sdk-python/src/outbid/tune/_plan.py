"""Plan: the description of an experiment for all its processes."""

from __future__ import annotations

import contextlib
import datetime
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from outbid.tune._config import CheckpointConfig, Placement
from outbid.tune._elastic import Growth
from outbid.tune._trial import Trial, name_trial

DEFAULT_METRIC = "training_iteration"
"""The server's metric if none is given; every trial reports it."""

NOTHING = "reported_nothing"
"""The metric with which a trial tells the server that it has ended without errors and reports."""

MARKS = ".trials"
"""In an experiment's directory: a folder with a file per trial that has the name of its directory."""


_OWNERS = ".owners"
"""In that folder: a folder with a link per directory name to the id of its trial."""


@dataclass
class Plan:
    """An experiment: the trainable, its space, and the location of its files."""

    trainable: Any
    name: str
    folder: str
    prefix: str
    space: dict[str, Any]
    metric: str
    mode: str
    placement: Placement
    checkpoints: CheckpointConfig
    stop: Any = None
    began: datetime.datetime = field(default_factory=datetime.datetime.now)
    trial_name: Any = None
    trial_dirname: Any = None
    chdir: bool = True
    log_to_file: Any = False
    as_ray: bool = False
    numbers: list[int] | None = None
    """In a run that continues another: the trials' numbers in that run."""
    first: int = 0
    """With `numbers`: the number of the first trial after those."""
    offsets: dict[int, int] | None = None
    """By number, for trials that continue from a checkpoint of another sweep: the iterations done by then."""
    earlier: Any = None
    """Earlier spaces, whose large objects configurations may name."""
    several: bool = False
    """Whether `metric` is the first of several objectives, so that there is no single best trial."""
    searched: bool = False
    """Whether a search algorithm proposes the configurations."""
    samples: int = 0
    """The number of trials; 0 for no limit."""
    growth: Growth | None = None
    """The resources of trials that may get more devices than they start with."""

    @property
    def goal(self) -> tuple[str, str] | tuple[None, None]:
        """Metric and mode that define the best trial; None without a metric or with several objectives."""
        return (None, None) if self.several or self.metric == DEFAULT_METRIC else (self.metric, self.mode)

    def number(self, of_sweep: int) -> int:
        """Return the experiment's number of a trial of this run's sweep."""
        if self.numbers is None:
            return of_sweep
        known = len(self.numbers)
        return self.numbers[of_sweep] if of_sweep < known else self.first + of_sweep - known

    def trial(self, number: int, config: dict[str, Any]) -> Trial:
        """Return a trial of this run with its original name."""
        number = self.number(number)
        trial = Trial(number, f"{self.prefix}_{number:05d}", self.name, config)
        trial.checkpoint_config = self.checkpoints
        trial.placement, trial.local_experiment_path = self.placement, self.folder
        name_trial(
            trial,
            self.space,
            name=self.trial_name,
            dirname=self.trial_dirname,
            date=self.began,
            searched=self.searched,
        )
        mark = Path(self.folder, MARKS, trial.trial_id)
        if mark.is_file():
            # Its configuration may have changed since it was named.
            trial.relative_logdir = mark.read_text()
            trial.experiment_tag = trial.experiment_tag if self.trial_dirname else _tag(trial)
        return trial

    def claim(self, trial: Trial) -> Path | None:
        """Create a trial's directory, under another name if that is taken. Returns None if it cannot be created."""
        mark = Path(self.folder, MARKS, trial.trial_id)
        try:
            owners = mark.parent / _OWNERS
            owners.mkdir(parents=True, exist_ok=True)
            if not mark.is_file():
                if not _is_owner(owners / trial.relative_logdir, trial.trial_id):
                    trial.relative_logdir += f"_{trial.number}"
                mark.write_text(trial.relative_logdir)
            path = Path(trial.local_path)
            path.mkdir(parents=True, exist_ok=True)
        except OSError:
            return None
        return path

    def place(self, trial: Trial) -> Path:
        """Return the directory that a trial has claimed or will claim."""
        try:
            name = Path(self.folder, MARKS, trial.trial_id).read_text()
        except OSError:
            name = trial.relative_logdir
        return Path(self.folder, name)


def _is_owner(claim: Path, trial_id: str) -> bool:
    """Claim a directory's name for a trial; return whether the trial has it, and not an earlier one."""
    with contextlib.suppress(FileExistsError):
        os.symlink(trial_id, claim)
    return os.readlink(claim) == trial_id


def _tag(trial: Trial) -> str:
    """Return a trial's tag as it is in its directory's name."""
    own = trial.relative_logdir.removeprefix(f"{trial!r}_")
    cut = len("_2000-01-01_00-00-00")
    return own[:-cut] if len(own) > cut else trial.experiment_tag


def name_of(trainable: Any) -> str:
    """Return a trainable's name, which is its registered name if it is given by that."""
    if isinstance(trainable, str):
        return trainable
    while isinstance(trainable, partial) or hasattr(trainable, "_tune_inner"):
        trainable = getattr(trainable, "_tune_inner", None) or trainable.func
    if inspect.isclass(trainable) or hasattr(trainable, "__name__"):
        name = str(trainable.__name__)
        return "lambda" if name == "<lambda>" else name
    return type(trainable).__name__


def met(stop: Mapping[str, Any], result: Mapping[str, Any], flat: Mapping[str, Any]) -> bool:
    """Return whether a result reaches one of the stop values. A metric may be missing in some results."""
    found = ((flat.get(name, result.get(name)), enough) for name, enough in stop.items())
    return any(value is not None and not isinstance(value, Mapping) and value >= enough for value, enough in found)
