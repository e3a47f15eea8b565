"""Runs one trial of an Optuna study in a worker's process, for the sweep of `outbid.optuna.optimize`."""

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

from outbid._core.exception_codec import packed
from outbid._core.limits import sent_name
from outbid._search.categories import index_of, text_of
from outbid._training import notes
from outbid._training.outside_state import Watch
from outbid._training.trial import Trial
from outbid.integrations.optuna.object_codec import Choices
from outbid.integrations.optuna.object_storage import Objects, keeping
from outbid.integrations.optuna.sweep_study import ATTRIBUTE, kept
from outbid.v1 import bus_pb2

RAISED = "outbid:raised"
"""Attribute of a trial: the exception that `optimize` raises."""

CHANGED = "outbid:changed"
"""Attribute of a trial: the names of the state outside the objective that it changed."""

IDLE = "outbid:idle"
"""Attribute of a trial of the sweep that ran no trial of the study, because the study was stopped."""

_STOPPED = "outbid:stopped"  # study attribute: the sweep that `study.stop()` ends
_CALLED = "outbid:called"  # study attribute: a sweep, and the number of its trials whose callbacks were called
_LARGE = 10_000  # maximum elements of an attribute that the sweep gets as JSON; larger ones become text
_WATCHED = 10  # number of a process's trials after which the state outside the objective is compared
_IDLE_SECONDS = 1.0  # seconds that a trial waits for the end of a sweep whose study was stopped
_CALLBACK_SECONDS = 60.0  # seconds that a trial waits for callbacks; a process that was killed never calls them
_LOOKS = (0.002, 0.1)  # seconds between two checks whether callbacks were called: initially, and at most

Objective = Callable[[optuna.Trial], float | Sequence[float]]


@dataclass
class Work:
    """Runs trials of a study in worker processes. Each process has a copy of this object."""

    func: Objective  # the name under which the objective is found, like that of functools.partial
    storage: str | BaseStorage
    study: str
    sampler: BaseSampler
    pruner: BasePruner
    seeds: dict[str, int]  # seeds of the sampler's random states, by their paths
    before: int  # number of trials in the study when the sweep was created
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
        """Wait like Optuna's loop, in which a job calls the callbacks before its next trial.

        There may be at most as many trials without callbacks as there are running trials. Then `study.stop()` in a
        callback ends a study with one job at once.
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
        """Return the study for the trial with this number."""
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
        """Return the objective's values; None if it pruned the trial."""
        asked.reports = trial
        sweep = trial.id.rpartition("/")[0]
        self._watch = self._watch or Watch(self.func, _WATCHED)
        self._watch.begin()
        try:
            with (
                stoppable(study, study, sweep),
                get_heartbeat_thread(asked._trial_id, study._storage),
            ):
                return _values(study, self.func(asked))
        except optuna.TrialPruned:
            with _noting(trial):
                study.tell(asked, state=TrialState.PRUNED)
            trial._pruned = True
            return None
        except BaseException as error:
            uncaught = None if isinstance(error, (*self.caught, _NoValue)) else error
            if isinstance(uncaught, Exception):
                trial.note({RAISED: packed(uncaught)})
            with _noting(trial):
                if isinstance(uncaught, Exception):
                    _stop(study, sweep)  # before the trial ends: the next one must not start
                study.tell(asked, state=TrialState.FAIL)
            raise
        finally:
            _note(trial, asked)
            if names := self._watch.changed():
                trial.note({CHANGED: names})
            if self.collect:
                gc.collect()


class _NoValue(TypeError, ValueError):
    """The objective's return value does not fit its study. Only the trial fails, like in Optuna."""


class _Asked(optuna.Trial):
    """An Optuna trial that also reports to the sweep, and whose categories may be any objects."""

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
        """Suggest one of the objects in `choices`, not a copy."""
        choices = tuple(choices)
        if all(choice is None or type(choice) in (bool, int, float, str) for choice in choices):
            value = super().suggest_categorical(name, choices)
            found = index_of(choices, choices, value)  # a storage returns an equal value
            return value if found is None else choices[found]
        given = Choices(choices)
        assert isinstance(self.storage, Objects)
        self.storage.know(name, given)
        value = given.choices[int(given.to_internal_repr(self._suggest(name, given)))]
        self._cached_frozen_trial.params[name] = value
        return value


@contextlib.contextmanager
def _noting(trial: Trial) -> Iterator[None]:
    """Record an exception of the study or its sampler, which `optimize` raises regardless of `catch`."""
    try:
        yield
    except Exception as error:
        trial.note({RAISED: packed(error)})
        raise


def _note(trial: Trial, asked: optuna.Trial) -> None:
    """Note the suggested values and user attributes. Large values, and those that are not JSON, are noted as text."""
    for name, value in asked.params.items():
        sent = sent_name(name, notes.PATH)
        _note_first(trial, [notes.drawn({sent: shown}) for shown in (value, text_of(value))])
    for name, value in asked._get_latest_trial().user_attrs.items():
        if name != ATTRIBUTE:
            _note_first(trial, [{sent_name(str(name)): shown} for shown in (value, text_of(value))][_is_large(value) :])


def _note_first(trial: Trial, tries: Sequence[dict[str, Any]]) -> None:
    """Note the first of several forms that is valid."""
    for noted in tries:
        with contextlib.suppress(TypeError, ValueError):
            trial.note(noted)
            if noted:
                return


def _is_large(value: Any) -> bool:
    """Return whether a value would take long to convert to JSON."""
    size = getattr(value, "size", None)
    return (isinstance(size, int) and size > _LARGE) or (isinstance(value, (list, tuple)) and len(value) > _LARGE)


@contextlib.contextmanager
def stoppable(study: optuna.Study, shared: optuna.Study, sweep: str) -> Iterator[None]:
    """Make `study.stop()` end the sweep, because Optuna's requires Optuna's loop. Workers use the study `shared`."""
    study.stop = partial(_stop, shared, sweep)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del study.stop


def _stop(study: optuna.Study, sweep: str) -> None:
    """Let no other trial of a sweep begin."""
    study._storage.set_study_system_attr(study._study_id, _STOPPED, sweep)


def is_stopped(study: optuna.Study, sweep: str) -> bool:
    """Return whether `study.stop()` was called for a sweep."""
    return bool(study._storage.get_study_system_attrs(study._study_id).get(_STOPPED) == sweep)


def call_for(study: optuna.Study, sweep: str, count: int) -> None:
    """Tell workers for how many trials of a sweep the callbacks were called."""
    study._storage.set_study_system_attr(study._study_id, _CALLED, [sweep, count])


def called_for(study: optuna.Study, sweep: str) -> int:
    """Return for how many trials of a sweep the callbacks were called."""
    of, count = study._storage.get_study_system_attrs(study._study_id).get(_CALLED) or ("", 0)
    return int(count) if of == sweep else 0


def _uncalled(study: optuna.Study, sweep: str, called: int) -> int:
    """Return the number of a sweep's trials that wait for callbacks minus the number of running ones."""
    excess = -called
    for trial in study._storage.get_all_trials(study._study_id, deepcopy=False):
        if str(trial._user_attrs.get(ATTRIBUTE)).startswith(sweep + "/"):
            excess += 1 if trial.state.is_finished() else -(trial.state == TrialState.RUNNING)
    return excess


def _constraints(told: FrozenTrial) -> dict[str, float]:
    """Return the constraints of a trial; a constraint is met if its value is at most 0."""
    named: Any = getattr(told, "constraints", None)  # since Optuna 5
    if named is None:
        named = dict(enumerate(told.system_attrs.get("constraints") or ()))
    return {str(name): float(value) for name, value in named.items()}


def _ask(study: optuna.Study, storage: str | BaseStorage) -> optuna.Trial:
    """Ask for a trial.

    If trials are enqueued in an SQLite file, only one process asks at a time, because Optuna would give the same trial
    to several.
    """
    folder = _sqlite_folder(storage)
    if folder is None or not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        return study.ask()
    import fcntl  # workers only run on systems that have it

    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return study.ask()
    finally:
        os.close(lock)


def _sqlite_folder(storage: str | BaseStorage) -> Path | None:
    """Return the directory of the SQLite file that has the study, or None."""
    url = storage if isinstance(storage, str) else getattr(storage, "url", "")
    if not url.startswith("sqlite"):
        return None
    from sqlalchemy.engine import make_url

    return Path(make_url(url).database or "").absolute().parent


def _seed(sampler: BaseSampler, seeds: dict[str, int], number: int) -> None:
    """Seed a process's copy of a sampler for one trial, reproducibly if the sampler was seeded."""
    sampler.reseed_rng()
    for path, state in randoms(sampler).items():
        if path in seeds:
            state.seed([seeds[path], number])


def randoms(thing: Any, path: str = "") -> dict[str, np.random.RandomState]:
    """Return the random states in a sampler, by path. An unseeded sampler creates them lazily."""
    found: dict[str, np.random.RandomState] = {}
    for name, value in vars(thing).items():
        if isinstance(value, np.random.RandomState):
            found[path + name] = value
        elif type(value).__module__.startswith("optuna.samplers") and hasattr(value, "__dict__"):
            found.update(randoms(value, f"{path}{name}."))
    return found


def unbound(sampler: BaseSampler) -> BaseSampler:
    """Return a copy of a sampler that can draw for another study. Search spaces remember the study that they read."""
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
    """Return the sweep's names for the study's values."""
    count = len(study.directions)
    return ["value"] if count == 1 else [f"values_{index}" for index in range(count)]


def _values(study: optuna.Study, returned: float | Sequence[float]) -> list[float]:
    """Return the objective's values, one for each of the study's directions."""
    several = isinstance(returned, Sequence) and not isinstance(returned, str)
    try:
        values = [float(value) for value in (returned if several else [returned])]  # type: ignore[union-attr,arg-type]
    except OverflowError:
        raise _NoValue("the objective returned a whole number that is too large for a float: scale it") from None
    except (TypeError, ValueError):
        raise _NoValue(f"the objective returned {returned!r:.80}; it must return a number, or several") from None
    if len(values) != len(study.directions):
        ways = ", ".join(way.name.lower() for way in study.directions)
        raise _NoValue(f"the objective returned {returned!r}; the study needs {len(study.directions)} ({ways})")
    return values
