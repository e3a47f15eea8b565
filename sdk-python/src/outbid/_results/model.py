"""Sweeps, trials and reports as values."""

from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from outbid._core.errors import UntrustedError
from outbid._display import html_table
from outbid._results.checkpoint_info import Checkpoint, SoupInfo
from outbid._results.forks import ForkRound, Lease, Merge, fork_facts
from outbid._training import tensors
from outbid._training.config import Config
from outbid._training.manifest import Manifest, Place, is_manifest, join, shard_path
from outbid._training.opaque import is_pickle, unpack

ENDED_SWEEP = frozenset({"done", "stopped", "failed"})
ENDED_TRIAL = frozenset({"completed", "pruned", "stopped", "failed"})


class Source(Protocol):
    """Where a trial gets what it does not hold itself; implemented by the client."""

    def download(self, sweep: str, trial: int, step: int | None, path: Path) -> Path:
        """Write a checkpoint to a file."""

    def reports(self, sweep: str, trial: int | None = None) -> list[Report]:
        """Return reports, oldest first."""

    def foreign(self, sweep_id: str) -> str | None:
        """Return the tenant that wrote the sweep's checkpoints, or None if it is the caller's tenant."""


@dataclass(frozen=True)
class Report:
    """The metrics that training code reported after `step` steps and `train_seconds` seconds of training.

    `superseded` is True if the trial has since been restarted from an earlier step. Later reports of that step and of
    those after it replace this one.
    """

    trial: int
    step: int
    metrics: Mapping[str, float]
    time: datetime.datetime | None
    train_seconds: float
    superseded: bool = False

    def record(self) -> dict[str, Any]:
        """Return the report as one flat dict."""
        return {
            "trial": self.trial,
            "step": self.step,
            "time": self.time,
            "train_seconds": self.train_seconds,
            "superseded": self.superseded,
            **self.metrics,
        }


@dataclass(frozen=True)
class TrainedAgain:
    """The steps that a trial repeats in an extension.

    It had done `step` steps and continues from `from_step`, which is 0 for a fresh start.
    """

    trial: int
    from_step: int
    step: int


@dataclass(frozen=True)
class Note:
    """A line that the server wrote about a sweep, or about one of its trials. `level` is info, warning or error."""

    level: str
    text: str
    trial: int | None
    time: datetime.datetime | None


_LINE = 100  # maximum characters of a printed trial


@dataclass(frozen=True, repr=False)
class TrialResult:
    """The state of a trial.

    `state` is queued, running, paused, completed, pruned (by its tuner or a limit), stopped (by a person) or failed;
    `reason` says why. `step` is the number of steps done. `metric` is the best value of the sweep's metric, reported at
    `best_step`, or None if it was never reported; `metrics` are the newest report's values. `device_seconds` is the
    device time that the trial used.

    `leases` are the trial's current leases, oldest first; `node` and `devices` are the first place of the first lease.
    `round` is the current fork slot, or None if the trial has no forks. `merges` are the newest averages, and `rounds`
    is the number of all of them. `attributes` are the values that the training code recorded with `note`.
    """

    sweep: str
    number: int
    state: str
    reason: str
    config: Config
    step: int
    until_step: int
    metric: float | None
    best_step: int
    metrics: Mapping[str, float]
    train_seconds: float
    restarts: int
    resumes: int
    bracket: int
    node: str
    devices: tuple[int, ...]
    device_seconds: float
    steps_per_second: float
    created: datetime.datetime | None
    ended: datetime.datetime | None
    checkpoints: tuple[Checkpoint, ...]
    leases: tuple[Lease, ...]
    round: ForkRound | None
    merges: tuple[Merge, ...]
    rounds: int
    attributes: Mapping[str, Any]
    _source: Source = field(compare=False)
    _stored: Config = field(compare=False)  # as on the server: with the encoded objects
    _outside: tuple[str, ...] = field(default=(), compare=False)  # what it changed outside its training function

    def __str__(self) -> str:
        """The trial in one line of at most 100 characters; `repr` has the complete configuration."""
        line = " ".join(self._told().split())
        return line if len(line) <= _LINE else line[: _LINE - 1] + "…"

    def __repr__(self) -> str:
        return f"<outbid.TrialResult {self._told()}>"

    def _told(self) -> str:
        value = f"best {self.metric:.6g} at step {self.best_step}" if self.metric is not None else f"step {self.step}"
        return f"{self.id}: {self.state}, {value}, {visible(self.config)!r}"

    def _repr_html_(self) -> str:
        value = "" if self.metric is None else f"{self.metric:.6g} at step {self.best_step}"
        places = [p for lease in self.leases for p in lease.places if not p.ended]
        on = [(p.node, p.devices) for p in places] or ([(self.node, self.devices)] if self.node else [])
        where = "; ".join(f"{node}: {', '.join(map(str, devices))}" for node, devices in on)
        return html_table.facts(
            self.id,
            [
                ("state", f"{self.state}: {self.reason}" if self.reason else self.state),
                ("step", f"{self.step} of {self.until_step}" if self.until_step else str(self.step)),
                ("best", value),
                ("where", where),
                *fork_facts(self.round, self.merges),
                *((name, f"{v:.6g}" if isinstance(v, float) else str(v)) for name, v in flatten(self._stored).items()),
                *((f"last {name}", f"{v:.6g}") for name, v in self.metrics.items()),
                *((f"noted {name}", str(v)) for name, v in self.attributes.items()),
            ],
        )

    @property
    def id(self) -> str:
        """The trial's name, such as "digits-1/17"."""
        return f"{self.sweep}/{self.number}"

    @property
    def over(self) -> bool:
        """Whether the trial has ended."""
        return self.state in ENDED_TRIAL

    def checkpoint(self, step: int | None = None, *, trust: bool = False) -> Any:
        """Return the best checkpoint, or the one at `step`: weights by name, an object, or the path of a directory.

        A directory is unpacked into a temporary directory and not removed. An object that was saved whole is a pickle,
        and loading a pickle runs code of the tenant that wrote it. A pickle of another tenant is loaded only with
        `trust=True`. Weights by name and directories contain no code.

        If the ranks of a gang saved it with `sharded=True`, the answer is a list with the save of each rank. If they
        saved directories, it is the path of one directory with the files of all ranks.

        Raises NotFoundError if the checkpoint does not exist, UntrustedError for a pickle of another tenant, and
        CheckpointError if it is not a safetensors file, such as one of a program; use `download` for that.
        """
        with tempfile.TemporaryDirectory(prefix="outbid-") as place:
            path = self.download(Path(place) / "checkpoint.safetensors", step)
            if not is_manifest(path):
                return self._unpack(path, trust)
            manifest = Manifest.read(path)
            files = [(rank, shard_path(path, rank)) for rank in range(len(manifest.shards))]
            if manifest.directories:
                return join(files, Place(rank=-1, size=0, scratch=None))
            return [self._unpack(file, trust) for _, file in files]

    def _unpack(self, path: Path, trust: bool) -> Any:
        """Return what a file contains, unless it is a pickle of another tenant that is not trusted."""
        arrays = tensors.read(path)[0]
        if is_pickle(arrays) and not trust and (tenant := self._source.foreign(self.sweep)):
            raise UntrustedError(
                f"the checkpoint of trial {self.id} is a pickle of tenant {tenant}, and loading it runs code of "
                "that tenant here: use checkpoint(trust=True) if you trust it, or download(path) for the file"
            )
        return unpack(arrays)

    def metadata(self, step: int | None = None) -> dict[str, Any]:
        """Return the `metadata` that was saved with the checkpoint."""
        with tempfile.TemporaryDirectory(prefix="outbid-") as place:
            path = self.download(Path(place) / "checkpoint.safetensors", step)
            return Manifest.read(path).metadata if is_manifest(path) else tensors.read(path)[1]

    def download(self, path: str | os.PathLike[str], step: int | None = None) -> Path:
        """Write the best checkpoint, or the one at `step`, to the file `path`, and return the path.

        The best checkpoint is the one at `best_step` if the trial saved then; otherwise it is the kept one with the
        best metric. `checkpoints` lists them, newest last.

        The file is written atomically. If the ranks of a gang saved the checkpoint with `sharded=True`, the file is the
        manifest of their shards, which are written to `path` with ".0", ".1" and so on added.

        Raises NotFoundError if the checkpoint does not exist.
        """
        return self._source.download(self.sweep, self.number, step, Path(path))

    def reports(self) -> list[Report]:
        """Return all reports of the trial, oldest first."""
        return self._source.reports(self.sweep, self.number)

    def record(self) -> dict[str, Any]:
        """Return the trial as one flat dict, with nested parameters as "config.optimizer.name"."""
        row: dict[str, Any] = {
            "trial": self.number,
            "state": self.state,
            "step": self.step,
            "metric": self.metric,
            "best_step": self.best_step,
        }
        row.update({f"config.{name}": value for name, value in flatten(self.config).items()})
        row.update({f"last.{name}": value for name, value in self.metrics.items()})
        row.update({f"note.{name}": value for name, value in self.attributes.items()})
        row.update(
            train_seconds=self.train_seconds,
            device_seconds=self.device_seconds,
            restarts=self.restarts,
            resumes=self.resumes,
            bracket=self.bracket,
            reason=self.reason,
        )
        return row


@dataclass(frozen=True)
class Fairness:
    """The cost of sharing the cluster for a sweep: `rho` is `forecast_seconds` divided by `alone_seconds`.

    `alone_seconds` is how long the sweep would take alone on its share, `forecast_seconds` how long it takes here, both
    from its submission. `mean_sweeps` is the average number of sweeps that shared the cluster, including this one. A
    `rho` of at most 1 means that sharing costs the sweep nothing (Themis, NSDI 2020).
    """

    rho: float
    alone_seconds: float
    forecast_seconds: float
    mean_sweeps: float


@dataclass(frozen=True, repr=False)
class SweepInfo:
    """The state of a sweep.

    `state` is running, paused, stopping, done, stopped or failed; `reason` says why. `waiting` says why trials wait, if
    they do. `counts` is the number of trials by state. `steps` is the steps trained over all trials; `total_trials` and
    `total_steps` are the tuner's totals, 0 if unbounded.

    `fairness` is the current or final cost of sharing, or None while the sweep's speed is unknown. `seed` is the
    tuner's seed, drawn by the server if none was given; the same sweep can be repeated with it if `memory` is
    off. `objectives` are all objectives, each a metric and its mode; `metric` and `mode` are the first. `soups` are the
    averages of its checkpoints that the sweep keeps, oldest first. `cost` is what its leases cost so far, in
    `currency`, or None if the server has no prices. `memory` are the earlier sweeps that its sampler started from,
    each an id and a number of trials. `SweepHandle.annotate` changes `description` and
    `tags`.
    """

    id: str
    name: str
    state: str
    reason: str
    metric: str
    mode: str
    counts: Mapping[str, int]
    best: TrialResult | None
    steps: int
    total_trials: int
    total_steps: int
    device_seconds: float
    submitted: datetime.datetime | None
    ended: datetime.datetime | None
    waiting: str
    notes: tuple[Note, ...]
    fairness: Fairness | None = None
    seed: int | None = None
    objectives: tuple[tuple[str, str], ...] = ()
    soups: tuple[SoupInfo, ...] = field(default=(), repr=False)
    cost: float | None = None
    currency: str = ""
    memory: tuple[tuple[str, int], ...] = ()
    description: str = field(default="", repr=False)
    tags: tuple[str, ...] = ()

    def __repr__(self) -> str:
        best = "" if self.best is None or self.best.metric is None else f", best {self.metric} {self.best.metric:.6g}"
        trials = self.counts.get("total", 0)
        return f"<outbid.SweepInfo {self.id}: {self.state}, {trials} trials, {self.steps} steps{best}>"

    def _repr_html_(self) -> str:
        best = self.best
        value = (
            ""
            if best is None or best.metric is None
            else f"{best.metric:.6g}, trial {best.number} at step {best.best_step}"
        )
        counts = ", ".join(f"{n} {state}" for state, n in self.counts.items() if n and state != "total")
        return html_table.facts(
            self.id,
            [
                ("state", f"{self.state}: {self.reason}" if self.reason else self.state),
                ("waits", self.waiting),
                ("trials", f"{counts or 'none'} of {self.total_trials}" if self.total_trials else counts),
                ("steps", f"{self.steps} of {self.total_steps}" if self.total_steps else str(self.steps)),
                (f"{self.mode} {self.metric}", value),
                ("seed", "" if self.seed is None else str(self.seed)),
                ("memory", ", ".join(f"{trials} trials of {sweep}" for sweep, trials in self.memory)),
                *((note.level, note.text) for note in self.notes if note.level != "info"),
            ],
        )

    @property
    def over(self) -> bool:
        """Whether the sweep has ended."""
        return self.state in ENDED_SWEEP


@dataclass(frozen=True)
class Update:
    """A change of a sweep: its state, the trials that changed, and new reports if they were requested."""

    sweep: SweepInfo
    trials: tuple[TrialResult, ...]
    reports: tuple[Report, ...]


def visible(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without the entries that other modules add, whose names begin with ~."""
    return {name: value for name, value in config.items() if not name.startswith("~")}


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested groups as dotted names."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
