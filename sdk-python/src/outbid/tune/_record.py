"""Run: the stored state of an experiment, with its trials' results and checkpoints."""

from __future__ import annotations

import contextlib
import os
import pickle
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outbid._core import function_pickle
from outbid._core.exception_codec import RemoteTraceback
from outbid._results.model import ENDED_TRIAL, TrialResult
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._config import RunConfig, TuneConfig
from outbid.tune._encoding import decode
from outbid.tune._errors import TuneError
from outbid.tune._object_store import by_name
from outbid.tune._plan import MARKS, NOTHING, Plan
from outbid.tune._result_files import LAST, agrees, from_report, read_error, read_results
from outbid.tune._running_time import RunningTime
from outbid.tune._trial import Trial
from outbid.tune._trial_process import Work

STATE = "tuner.pkl"
"""The file in an experiment's directory that `Tuner.restore` needs."""


@dataclass
class Begun:
    """The initial state of an experiment, for continuing the rest of it."""

    points: list[Any]
    samples: int
    searcher: Any
    scheduler: Any
    generator: Any
    """The generator that drew the points, in its state before that."""
    limit: int
    """The maximum number of concurrent trials; 0 for no limit."""

    def to_bytes(self) -> bytes:
        """Return it as bytes, without the large objects that are sent with the function."""
        import cloudpickle

        with by_name():
            return bytes(cloudpickle.dumps(self))


@dataclass
class Run:
    """An experiment that runs or has run."""

    plan: Plan
    sweep: str
    url: str
    trials: list[Trial] = field(default_factory=list)
    infos: dict[int, TrialResult] = field(default_factory=dict)
    failed: str = ""
    tune: TuneConfig | None = None
    config: RunConfig | None = None
    later: list[tuple[str, list[int]]] = field(default_factory=list)
    """Sweeps in which trials continued or were trained again, with their numbers in this experiment."""
    saved_digests: tuple[str, str] = ("", "")
    """The digests of the trainable and the space; "" if they are unknown."""

    begun: bytes = b""
    """A pickled Begun."""
    time: RunningTime = field(init=False)

    def __post_init__(self) -> None:
        self.time = RunningTime(self.plan.folder)

    def save(self) -> None:
        """Write what is needed to continue the experiment."""
        import cloudpickle

        kept: dict[str, Any] = {"plan": function_pickle.dump(Work(self.plan)), "sweep": self.sweep, "url": self.url}
        kept |= {"later": self.later, "begun": self.begun, "digests": self.digests()}
        if self.tune is not None and self.config is not None:
            # Search algorithm and scheduler are in `begun`; callbacks are stored if they can be pickled.
            kept["tune"] = replace(self.tune, search_alg=None, scheduler=None)
            kept["config"] = replace(self.config, callbacks=None, progress_reporter=None, stop=None)
            with contextlib.suppress(Exception):
                kept["callbacks"] = cloudpickle.dumps(self.config.callbacks)
        with contextlib.suppress(OSError):
            Path(self.plan.folder).mkdir(parents=True, exist_ok=True)
            made = Path(self.plan.folder, f"{STATE}.{os.getpid()}")
            made.write_bytes(cloudpickle.dumps(kept))
            made.replace(made.with_name(STATE))  # a program that is killed here leaves the file as it was

    def digests(self) -> tuple[str, str]:
        """Return digests of the trainable and the space, which show whether they have changed."""
        with by_name():
            space = function_pickle.sha256(function_pickle.dump(self.plan.space.copy))
        return function_pickle.sha256(function_pickle.dump(self.plan.trainable)), space

    @staticmethod
    def load(folder: Path) -> Run:
        """Return the run of a directory. Raises TuneError if its file is damaged."""
        try:
            kept = pickle.loads((folder / STATE).read_bytes())
        except (EOFError, pickle.UnpicklingError) as error:
            raise TuneError(f"{folder / STATE} is damaged ({error}): the experiment cannot be read from it") from error
        work: Any = function_pickle.load(kept["plan"])
        plan = replace(work._plan, folder=str(folder))
        run = Run(plan, kept["sweep"], kept["url"], tune=kept.get("tune"), config=kept.get("config"))
        run.later, run.begun, run.saved_digests = kept["later"], kept["begun"], kept["digests"]
        if run.config is not None and "callbacks" in kept:
            with contextlib.suppress(Exception):  # modules that they need may be gone
                run.config.callbacks = pickle.loads(kept["callbacks"])
        return run


_STATES = {"queued": Trial.PENDING, "running": Trial.RUNNING, "paused": Trial.PAUSED, "failed": Trial.ERROR}


def status_of(info: TrialResult) -> str:
    """Return Ray's word for a trial's state."""
    return _STATES.get(info.state, Trial.TERMINATED)


def trial_of(plan: Plan, info: TrialResult) -> Trial:
    """Return a trial of the server."""
    trial = plan.trial(info.number, decode(info.config, plan.space))
    trial.status = status_of(info)
    return trial


def collect(plan: Plan, info: TrialResult) -> Trial:
    """Return a trial with its results and checkpoints."""
    trial = trial_of(plan, info)
    folder = Path(trial.local_path)
    trial.history = _history(trial, folder, info)
    _take_files(trial)
    if trial.history:
        if info.state in ENDED_TRIAL and info.state != "failed":
            trial.last_result["done"] = True
    elif NOTHING in info.metrics:
        trial.last_result = {"trial_id": trial.trial_id, "done": True, "config": trial.config}
    trial.num_failures = info.restarts + (info.state == "failed")
    if not trial.checkpoints and info.checkpoints and not read_results(folder):
        trial.checkpoints.append((Checkpoint(info.checkpoint(info.checkpoints[-1].step)), trial.last_result))
    if info.state == "failed":
        trial.error_msg = info.reason
        trial.error = _error(folder, info.reason, info.number)
    return trial


def _history(trial: Trial, folder: Path, info: TrialResult) -> list[dict[str, Any]]:
    """Return a trial's results from the server, with values that are not numbers from its file if both agree."""
    lines = read_results(folder)
    if not info.step or NOTHING in info.metrics or _is_same(lines, trial, info):
        return lines
    reports = [r for r in info.reports() if not r.superseded and NOTHING not in r.metrics]
    by_step = {line.get("training_iteration"): line for line in lines if line.get("trial_id") == trial.trial_id}
    history = []
    for report in reports:
        made = from_report(trial, report.step, report.metrics)
        line = by_step.get(made["training_iteration"])
        history.append(line if line is not None and agrees(line, report.metrics) else made)
    return history


def _is_same(lines: list[dict[str, Any]], trial: Trial, info: TrialResult) -> bool:
    """Return whether a trial's file ends at the same result as the server's record."""
    last = lines[-1] if lines else {}
    return last.get("trial_id") == trial.trial_id and len(lines) >= info.step and agrees(last, info.metrics)


def read(plan: Plan) -> list[Trial]:
    """Return the trials of an experiment that no longer runs, from its directory only."""
    trials = []
    for mark in sorted(Path(plan.folder, MARKS).glob("*_*")):
        trial = plan.trial(int(mark.name.rpartition("_")[2]), {})
        folder = Path(trial.local_path)
        with contextlib.suppress(OSError, pickle.PickleError, AttributeError, ImportError):
            trial = plan.trial(trial.number, pickle.loads((folder / "params.pkl").read_bytes()))
        _take_files(trial)
        trial.status = Trial.TERMINATED
        if trial.error_file is not None:
            trial.status, trial.error_msg = Trial.ERROR, Path(trial.error_file).read_text().strip()
            trial.error = _error(folder, trial.error_msg, trial.number)
        trials.append(trial)
    return trials


def _take_files(trial: Trial) -> None:
    """Set a trial's results and checkpoints from its files."""
    folder = Path(trial.local_path)
    trial.history = trial.history or read_results(folder)
    for result in trial.history:
        result["config"] = trial.config
        name = result.get("checkpoint_dir_name")
        if name and (folder / name).is_dir():
            trial.checkpoints.append((Checkpoint(folder / name), result))
    if not trial.history:
        return
    trial.last_result = dict(trial.history[-1])
    with contextlib.suppress(OSError, pickle.PickleError, AttributeError, ImportError):
        exact = pickle.loads((folder / LAST).read_bytes())
        if exact.get("training_iteration") == trial.last_result.get("training_iteration"):
            trial.last_result = {**exact, "config": trial.config}
    trial.last_result["experiment_tag"] = trial.experiment_tag


def _error(folder: Path, reason: str, number: int) -> Exception:
    """Return a trial's exception, or a TuneError if it cannot be recreated. Its cause is the traceback in the trial."""
    error = read_error(folder) or TuneError(reason or f"trial {number} failed")
    with contextlib.suppress(OSError):
        error.__cause__ = RemoteTraceback((folder / "error.txt").read_text())
    return error
