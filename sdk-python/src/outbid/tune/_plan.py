"""What every process of an experiment knows of it."""

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
from outbid.tune._growth import Growth
from outbid.tune._trial import Trial, name_trial

DEFAULT_METRIC = "training_iteration"
"""What the server goes by where nobody says by what: every trial reports it."""

NOTHING = "reported_nothing"
"""The metric by which the server hears that a trial has ended well and had nothing to report."""

MARKS = ".trials"
"""Of an experiment's directory: a file for each trial, with its directory's name."""


_OWNERS = ".owners"
"""Of the marks: a link for each directory's name, to the id of its trial."""


@dataclass
class Plan:
    """An experiment: what is trained, over what, and where its files are."""

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
    """In a run that goes on where another ended: the trials' numbers in that one."""
    first: int = 0
    """With `numbers`: the number of the first trial after those."""
    offsets: dict[int, int] | None = None
    """Of trials that go on from a checkpoint of another sweep, by number: the iterations done by that checkpoint."""
    earlier: Any = None
    """Spaces of before, whose large objects configurations may name."""
    several: bool = False
    """Whether `metric` is the first of several objectives, so that no trial is the best by itself."""
    searched: bool = False
    """Whether a search algorithm says the configurations."""
    samples: int = 0
    """How many trials there will be; 0 for no end."""
    growth: Growth | None = None
    """How trials that may have more devices than they start with count what they have."""

    @property
    def goal(self) -> tuple[str, str] | tuple[None, None]:
        """Metric and mode by which one trial is the best; None where nobody said by what, or several were said."""
        return (None, None) if self.several or self.metric == DEFAULT_METRIC else (self.metric, self.mode)

    def number(self, of_sweep: int) -> int:
        """Return the number that a trial of this run's sweep has in the experiment."""
        if self.numbers is None:
            return of_sweep
        known = len(self.numbers)
        return self.numbers[of_sweep] if of_sweep < known else self.first + of_sweep - known

    def trial(self, number: int, config: dict[str, Any]) -> Trial:
        """Return a trial of this run, named as it was when it began."""
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
        """Make a trial's directory, of another name if that is another trial's; None where there can be none."""
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
        """Return the directory that a trial has claimed, or that it will."""
        try:
            name = Path(self.folder, MARKS, trial.trial_id).read_text()
        except OSError:
            name = trial.relative_logdir
        return Path(self.folder, name)


def _is_owner(claim: Path, trial_id: str) -> bool:
    """Claim a directory's name for a trial; report whether it is the trial's, and not that of one before it."""
    with contextlib.suppress(FileExistsError):
        os.symlink(trial_id, claim)
    return os.readlink(claim) == trial_id


def _tag(trial: Trial) -> str:
    """Return a trial's tag as its directory's name holds it."""
    own = trial.relative_logdir.removeprefix(f"{trial!r}_")
    cut = len("_2000-01-01_00-00-00")
    return own[:-cut] if len(own) > cut else trial.experiment_tag


def name_of(trainable: Any) -> str:
    """Return what a trainable is called: by the name it is registered under, if it is given by that."""
    if isinstance(trainable, str):
        return trainable
    while isinstance(trainable, partial) or hasattr(trainable, "_tune_inner"):
        trainable = getattr(trainable, "_tune_inner", None) or trainable.func
    if inspect.isclass(trainable) or hasattr(trainable, "__name__"):
        name = str(trainable.__name__)
        return "lambda" if name == "<lambda>" else name
    return type(trainable).__name__


def met(stop: Mapping[str, Any], result: Mapping[str, Any], flat: Mapping[str, Any]) -> bool:
    """Return whether a result reaches one of the values that are enough; a later one may have what this one lacks."""
    found = ((result.get(name, flat.get(name)), enough) for name, enough in stop.items())
    return any(value is not None and value >= enough for value, enough in found)
