"""One trial of an Optuna study in a worker's process: what a sweep of `outbid.optuna.optimize` runs."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage
from optuna.storages._heartbeat import get_heartbeat_thread, is_heartbeat_enabled
from optuna.trial import FrozenTrial, TrialState

from outbid import _attributes
from outbid._categories import index_of, text_of
from outbid._limits import sent_name
from outbid._optuna_objects import Choices, Objects, keeping
from outbid._outside_state import Watch
from outbid._raised import packed
from outbid._study import ATTRIBUTE, kept
from outbid._training import Trial
from outbid.v1 import bus_pb2

RAISED = "outbid:raised"
"""Noted of a trial: the exception that `optimize` raises."""

CHANGED = "outbid:changed"
"""Noted of a trial: the names of the state outside the objective that it changed."""

IDLE = "outbid:idle"
"""Noted of a trial of a sweep that runs none of the study's, which was stopped."""

_STOPPED = "outbid:stopped"  # of the study: the sweep that `study.stop()` ends
_CALLED = "outbid:called"  # of the study: a sweep, and for how many of its trials the callbacks have been called
_LARGE = 10_000  # elements of an attribute above which the sweep gets its text
_WATCHED = 10  # trials of a process after each of which the state outside the objective is compared
_IDLE_SECONDS = 1.0  # seconds that a trial waits for the end of a sweep whose study was stopped
_CALLBACK_SECONDS = 60.0  # seconds that a trial waits for callbacks; a process that was killed never calls them
_LOOKS = (0.002, 0.1)  # seconds between two looks at whether callbacks have been called: at first, and at the most

Objective = Callable[[optuna.Trial], float | Sequence[float]]


@dataclass
class Work:
    """Runs the trials of a study in the processes of workers, each with a copy of this object."""

    func: Objective  # by this name the objective is found, as that of functools.partial
    storage: str | BaseStorage
    study: str
    sampler: BaseSampler
    pruner: BasePruner
    seeds: dict[str, int]  # of the sampler's random states, by their places in it
    before: int  # trials that the study had when the sweep was made
    caught: tuple[type[Exception], ...]
    collect: bool
    folder: Path | None  # for large objects
    callbacks: bool  # whether trials wait for the callbacks of those before them
    _gone: int = field(default=-1, init=False)  # how many trials they had been called for when this process gave up
    _watch: Watch | None = field(default=None, init=False)
    _objects: Objects | None = field(default=None, init=False)  # of this process: a storage reads only what is new

    def __call__(self, trial: Trial) -> None:
        """Run one trial of the study."""
        sweep = trial.id.rpartition("/")[0]
        with _noting(trial):
            study = self._load(self.before + trial.number)
            if self.callbacks:
                self._await_callbacks(study, trial, sweep)
            if is_stopped(study, sweep):
                trial.note({IDLE: True})
                trial._send_noted()
                trial._rest(_IDLE_SECONDS)
                trial._pruned = True
                return
            asked = _Asked.of(study, self.storage)
            asked.set_user_attr(ATTRIBUTE, trial.id)
        values = self._train(study, asked, trial)
        if values is None:
            return
        with _noting(trial), stoppable(study, study, sweep):  # a sampler whose grid is done stops the study
            told = study.tell(asked, values)
        if constraints := _constraints(told):
            trial.note(constraints=constraints)
        trial.report(dict(zip(metrics_of(study), values, strict=True)), step=asked.steps + 1)

    def _await_callbacks(self, study: optuna.Study, trial: Trial, sweep: str) -> None:
        """Wait as Optuna's loop does, in which a job calls the callbacks before its next trial.

        So that `study.stop()` of a callback ends a study of one job at once, trials whose callbacks have not been
        called may be as many as run.
        """
        until, pause = time.monotonic() + _CALLBACK_SECONDS, _LOOKS[0]
        while not is_stopped(study, sweep) and trial._verdict != bus_pb2.VERDICT_STOP:
            called = called_for(study, sweep)
            if called == self._gone or _uncalled(study, sweep, called) <= 0:
                return
            if time.monotonic() > until:
                self._gone = called
                return
            trial._rest(pause)
            pause = min(2 * pause, _LOOKS[1])

    def _load(self, number: int) -> optuna.Study:
        """Return the study as the trial of a number sees it."""
        _seed(self.sampler, self.seeds, number)
        if self._objects is None:
            base = optuna.storages.get_storage(kept(self.storage))
            self._objects = keeping(base, self.study, folder=self.folder, by_text=True)
        objects = self._objects
        study = optuna.load_study(study_name=self.study, storage=objects, sampler=self.sampler, pruner=self.pruner)
        if is_heartbeat_enabled(objects):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                optuna.storages.fail_stale_trials(study)
        return study

    def _train(self, study: optuna.Study, asked: _Asked, trial: Trial) -> list[float] | None:
        """Return what the objective measured; None if it pruned the trial."""
        asked.reports = trial
        self._watch = self._watch or Watch(self.func, _WATCHED)
        self._watch.begin()
        try:
            with (
                stoppable(study, study, trial.id.rpartition("/")[0]),
                get_heartbeat_thread(asked._trial_id, study._storage),
            ):
                return _values(study, self.func(asked))
        except optuna.TrialPruned:
            with _noting(trial):
                study.tell(asked, state=TrialState.PRUNED)
            trial._pruned = True
            return None
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, (*self.caught, _NoValue)):
                trial.note({RAISED: packed(error)})
            with _noting(trial):
                study.tell(asked, state=TrialState.FAIL)
            raise
        finally:
            _note(trial, asked)
            if names := self._watch.changed():
                trial.note({CHANGED: names})
            if self.collect:
                gc.collect()


class _NoValue(TypeError, ValueError):
    """The objective returned something that is not a value of its study, which fails the trial alone, as in Optuna."""


class _Asked(optuna.Trial):
    """Optuna's trial, whose reports are the sweep's too, and whose categories are objects of any kind."""

    reports: Trial
    steps: int

    @classmethod
    def of(cls, study: optuna.Study, storage: str | BaseStorage) -> _Asked:
        """Ask a study for a trial."""
        asked: Any = _ask(study, storage)
        asked.__class__ = cls
        asked.steps = 0
        made: _Asked = asked
        return made

    def report(self, value: float, step: int) -> None:
        """Report a value to the study and to the sweep, which counts steps from 1."""
        super().report(value, step)
        if (number := int(step)) >= self.steps:
            self.steps = number + 1
            self.reports.report({"value": float(value)}, step=self.steps)

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """Suggest one of the very objects of `choices`."""
        choices = tuple(choices)
        if all(choice is None or type(choice) in (bool, int, float, str) for choice in choices):
            value = super().suggest_categorical(name, choices)
            found = index_of(choices, choices, value)  # what a storage returns is equal
            return value if found is None else choices[found]
        given = Choices(choices)
        assert isinstance(self.storage, Objects)
        self.storage.know(name, given)
        value = given.choices[int(given.to_internal_repr(self._suggest(name, given)))]
        self._cached_frozen_trial.params[name] = value
        return value


@contextlib.contextmanager
def _noting(trial: Trial) -> Iterator[None]:
    """Note an exception of the study's, of its sampler's for one: `optimize` raises it, whatever `catch` is."""
    try:
        yield
    except Exception as error:
        trial.note({RAISED: packed(error)})
        raise


def _note(trial: Trial, asked: optuna.Trial) -> None:
    """Note what was suggested and the user attributes; what JSON does not hold, or is large, as text."""
    for name, value in asked.params.items():
        sent = sent_name(name, _attributes.PATH)
        _note_first(trial, [_attributes.drawn({sent: shown}) for shown in (value, text_of(value))])
    for name, value in asked._get_latest_trial().user_attrs.items():
        if name != ATTRIBUTE:
            _note_first(trial, [{sent_name(name): shown} for shown in (value, text_of(value))][_is_large(value) :])


def _note_first(trial: Trial, tries: Sequence[dict[str, Any]]) -> None:
    """Note the first of several forms that can be noted."""
    for noted in tries:
        with contextlib.suppress(TypeError, ValueError):
            trial.note(noted)
            if noted:
                return


def _is_large(value: Any) -> bool:
    """Report whether it would take long to write a value as JSON."""
    size = getattr(value, "size", None)
    return (isinstance(size, int) and size > _LARGE) or (isinstance(value, (list, tuple)) and len(value) > _LARGE)


@contextlib.contextmanager
def stoppable(study: optuna.Study, shared: optuna.Study, sweep: str) -> Iterator[None]:
    """Have `study.stop()` end the sweep: Optuna's own wants a loop of Optuna's. Workers see the study as `shared`."""
    stop = partial(shared._storage.set_study_system_attr, shared._study_id, _STOPPED, sweep)
    study.stop = stop  # type: ignore[method-assign]
    try:
        yield
    finally:
        del study.stop


def is_stopped(study: optuna.Study, sweep: str) -> bool:
    """Report whether `study.stop()` was called for a sweep."""
    return bool(study._storage.get_study_system_attrs(study._study_id).get(_STOPPED) == sweep)


def call_for(study: optuna.Study, sweep: str, count: int) -> None:
    """Tell workers for how many trials of a sweep the callbacks have been called."""
    study._storage.set_study_system_attr(study._study_id, _CALLED, [sweep, count])


def called_for(study: optuna.Study, sweep: str) -> int:
    """Return for how many trials of a sweep the callbacks have been called."""
    of, count = study._storage.get_study_system_attrs(study._study_id).get(_CALLED) or ("", 0)
    return int(count) if of == sweep else 0


def _uncalled(study: optuna.Study, sweep: str, called: int) -> int:
    """Return by how many the trials of a sweep that wait for their callbacks exceed those that run."""
    excess = -called
    for trial in study._storage.get_all_trials(study._study_id, deepcopy=False):
        if str(trial._user_attrs.get(ATTRIBUTE)).startswith(sweep + "/"):
            excess += 1 if trial.state.is_finished() else -(trial.state == TrialState.RUNNING)
    return excess


def _constraints(told: FrozenTrial) -> dict[str, float]:
    """Return the constraints of a trial, each of which it keeps if it is at most 0."""
    named: Any = getattr(told, "constraints", None)  # since Optuna 5
    if named is None:
        named = dict(enumerate(told.system_attrs.get("constraints") or ()))
    return {str(name): float(value) for name, value in named.items()}


def _ask(study: optuna.Study, storage: str | BaseStorage) -> optuna.Trial:
    """Ask for a trial.

    Where some wait in a file of SQLite's, one process asks at a time: Optuna would give several the same.
    """
    folder = _sqlite_folder(storage)
    if folder is None or not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        return study.ask()
    import fcntl  # workers run where it is there

    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return study.ask()
    finally:
        os.close(lock)


def _sqlite_folder(storage: str | BaseStorage) -> Path | None:
    """Return the folder of SQLite's file, if a study is kept in one."""
    url = storage if isinstance(storage, str) else getattr(storage, "url", "")
    if not url.startswith("sqlite"):
        return None
    from sqlalchemy.engine import make_url

    return Path(make_url(url).database or "").absolute().parent


def _seed(sampler: BaseSampler, seeds: dict[str, int], number: int) -> None:
    """Have a sampler draw what is a trial's own, as every process has a copy; the same again if it was seeded."""
    sampler.reseed_rng()
    for path, state in randoms(sampler).items():
        if path in seeds:
            state.seed([seeds[path], number])


def randoms(thing: Any, path: str = "") -> dict[str, np.random.RandomState]:
    """Return the random states in a sampler, by where they stand in it; unseeded, it makes them late."""
    found: dict[str, np.random.RandomState] = {}
    for name, value in vars(thing).items():
        if isinstance(value, np.random.RandomState):
            found[path + name] = value
        elif type(value).__module__.startswith("optuna.samplers") and hasattr(value, "__dict__"):
            found.update(randoms(value, f"{path}{name}."))
    return found


def unbound(sampler: BaseSampler) -> BaseSampler:
    """Return a copy of a sampler that may draw for another study: search spaces remember whose trials they read."""
    copied = copy.deepcopy(sampler)
    _unbind(copied)
    return copied


def _unbind(thing: Any) -> None:
    for name, value in vars(thing).items():
        if hasattr(value, "_study_id") and hasattr(value, "_include_pruned"):
            setattr(thing, name, type(value)(include_pruned=value._include_pruned))
        elif isinstance(value, BaseSampler):
            _unbind(value)


def metrics_of(study: optuna.Study) -> list[str]:
    """Return what the sweep calls the study's values."""
    count = len(study.directions)
    return ["value"] if count == 1 else [f"values_{index}" for index in range(count)]


def _values(study: optuna.Study, returned: float | Sequence[float]) -> list[float]:
    """Return what an objective returned, one for each of the study's directions."""
    several = isinstance(returned, Sequence) and not isinstance(returned, str)
    try:
        values = [float(value) for value in (returned if several else [returned])]  # type: ignore[union-attr,arg-type]
    except OverflowError:
        raise _NoValue("the objective returned a whole number that is too large for a float: scale it") from None
    except (TypeError, ValueError):
        raise _NoValue(f"the objective returned {returned!r:.80}: a study takes a number, or several") from None
    if len(values) != len(study.directions):
        ways = ", ".join(way.name.lower() for way in study.directions)
        raise _NoValue(f"the objective returned {returned!r}: the study takes {len(study.directions)} ({ways})")
    return values
