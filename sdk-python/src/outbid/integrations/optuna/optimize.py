"""Runs an Optuna study as a sweep. The public module is `outbid.optuna`."""

from __future__ import annotations

import atexit
import copy
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.storages._cached_storage import _CachedStorage
from optuna.trial import FrozenTrial

from outbid._client.callbacks import Callback
from outbid._client.client import Client, default_client
from outbid._client.handle import SweepHandle
from outbid._client.interrupt import tell_more
from outbid._core import validation
from outbid._core.errors import UnavailableError
from outbid._core.exception_codec import unpacked
from outbid._core.user_warning import warn_user
from outbid._results.model import TrialResult, Update
from outbid._search.resources import Resources, duration
from outbid._search.sweep import Sweep
from outbid._search.tuner_classes import Random
from outbid.integrations.optuna.object_storage import keeping
from outbid.integrations.optuna.study_copy import Following
from outbid.integrations.optuna.sweep_study import kept, to_study, unannounced
from outbid.integrations.optuna.timeout import START_SECONDS, stopped_after
from outbid.integrations.optuna.trial_process import (
    CHANGED,
    IDLE,
    RAISED,
    Objective,
    Work,
    call_for,
    is_stopped,
    metrics_of,
    randoms,
    stoppable,
    unbound,
)

__all__ = ["optimize", "to_study"]

Direction = Literal["minimize", "maximize"]

_ENDLESS = "87600h"  # ten years: a sweep needs a limit, but the study ends this one


def optimize(
    *objective: Any,
    n_trials: int | None = None,
    direction: Direction | None = None,
    directions: Sequence[Direction] | None = None,
    sampler: BaseSampler | None = None,
    pruner: BasePruner | None = None,
    storage: str | BaseStorage | None = None,
    study_name: str | None = None,
    n_jobs: int | None = None,
    resources: Resources | None = None,
    timeout: float | None = None,
    catch: type[Exception] | Iterable[type[Exception]] = Exception,
    callbacks: Iterable[Callable[[optuna.Study, FrozenTrial], None]] | None = None,
    gc_after_trial: bool = False,
    show_progress_bar: bool = False,
    display: bool = True,
    client: Client | None = None,
) -> optuna.Study:
    """Run an objective like Optuna's `Study.optimize` does, but on Outbid's devices, and return the study.

    `optimize(objective, n_trials)` creates a study. `optimize(study, objective, n_trials)` continues one and returns
    it: the sampler knows its trials, enqueued trials run first, and results are added to the study and its storage as
    they arrive. Without `n_trials`, trials run until `timeout` seconds have passed, `study.stop()` is called, or the
    sampler has drawn everything.

    The objective is called without changes: `trial` is an Optuna trial. The default of `direction` is "minimize";
    `directions`, one for each value, are for an objective that returns several values. `sampler` and `pruner` are
    Optuna's; the defaults are TPE and the median pruner. Every process that runs trials has a copy of them. With a seed
    and `n_jobs=1` the trials are reproducible, but differ from those of Optuna's own loop.

    Values that the objective reports and returns are the sweep's metric "value"; several are "values_0" and so on, like
    in Optuna's tables. A trial whose objective raises TrialPruned is pruned. With any other exception it fails and is
    not retried. `catch` are the exceptions that only fail their trial. Other exceptions, and those of the sampler and
    the storage, end the sweep and are raised here. Suggested values are in the configurations of the sweep's trials,
    and user attributes in their `attributes`. If JSON cannot represent a value it is text there, and the object itself
    is in the study.

    `storage` is where the study is kept: an Optuna storage or its URL, which every worker must reach, or a journal file
    whose name ends with ".log". By default the study is in memory, and until the sweep ends a copy for the workers is
    in a temporary directory; this requires a server on this machine. If the storage has a study named `study_name`,
    that study is continued.

    `n_jobs` is the maximum number of trials that run at the same time; None or -1 means one per device. `timeout`
    seconds after the first trial began, running trials are stopped; after `study.stop()` they finish. `callbacks` are
    Optuna's and are called in this process, before the next trial of a job. `gc_after_trial` is like in Optuna, in the
    processes that run trials.
    Progress is shown unless `display` is False; `show_progress_bar` shows it nevertheless.
    """
    study, func, n_trials = _positional(objective, n_trials)
    for name, given, kind in (("sampler", sampler, BaseSampler), ("pruner", pruner, BasePruner)):
        if given is not None and not isinstance(given, kind):
            raise TypeError(f"optimize: {name} must be one of optuna.{name}s, got {given!r:.80}")
    _check(n_trials, n_jobs)
    if timeout is not None:
        duration("optimize: timeout", timeout)
    caught = _caught(catch)
    called = tuple(validation.several("optimize: callbacks", callbacks or (), "functions of a study and a trial"))
    _check_storage(storage)
    if study is None:
        study = optuna.create_study(
            storage=None if storage is None else kept(storage),
            study_name=study_name,
            direction=direction,
            directions=directions,
            sampler=sampler,
            pruner=pruner,
            load_if_exists=study_name is not None,
        )
    else:
        its = {"direction": direction, "directions": directions, "sampler": sampler, "pruner": pruner}
        _check_none({**its, "storage": storage, "study_name": study_name})
    if n_trials == 0:
        return study
    client = client or default_client()
    following, storage, folder = _shared(study, storage, client)
    work = Work(
        func,
        storage,
        following.shared.study_name,
        study.sampler if following.shared is study else unbound(study.sampler),
        study.pruner,
        seeds={path: int(state.randint(1 << 31)) for path, state in randoms(study.sampler).items()},
        before=len(study.get_trials(deepcopy=False)),
        caught=caught,
        collect=gc_after_trial,
        folder=folder,
        callbacks=bool(called),
    )
    sweep = Sweep(
        work,
        {"study": study.study_name},
        metric=metrics_of(study),
        mode=["max" if way == optuna.study.StudyDirection.MAXIMIZE else "min" for way in study.directions],
        tuner=Random(),
        trials=n_trials,
        concurrency=None if n_jobs == -1 else n_jobs,
        wall_time=(_ENDLESS if n_trials is None else None) if timeout is None else timeout + START_SECONDS,
        resources=resources,
        max_restarts=0,
        name=_name(func),
    )
    with stopped_after(timeout, sweep, following.shared):
        _run(sweep, following, called, display or show_progress_bar, client, storage, folder)
    return study


def _run(
    sweep: Sweep,
    following: Following,
    callbacks: tuple[Callable[[optuna.Study, FrozenTrial], None], ...],
    display: bool,
    client: Client,
    storage: str | BaseStorage,
    folder: Path | None,
) -> None:
    """Run a study's sweep. `folder` is deleted when the sweep has ended, or when an interrupted program ends.

    It is kept if the server is lost, as trials may still write to it.
    """
    interrupted = False
    try:
        with following.numbering():
            sweep.run(display=display, callbacks=[_Called(following, sweep, callbacks)], client=client)
    except KeyboardInterrupt as interrupt:
        interrupted = True
        tell_more(interrupt, f"its study: {_loading(following.shared, storage)}")
        raise
    finally:
        settled = not sweep.submitted or _settle(following, sweep.handle)
        if settled and folder is not None:
            if interrupted:
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
            else:
                shutil.rmtree(folder, ignore_errors=True)


def _positional(given: tuple[Any, ...], n_trials: int | None) -> tuple[optuna.Study | None, Objective, int | None]:
    """Return the study, the objective and the number of trials from a call's arguments."""
    study, rest = (given[0], given[1:]) if given and isinstance(given[0], optuna.Study) else (None, given)
    if not rest or not callable(rest[0]):
        such = "a function of a trial"
        raise TypeError(
            f"optimize: objective must be {such}, got {rest[0]!r:.80}" if rest else f"optimize: {such} is missing"
        )
    if len(rest) > 2 or (len(rest) == 2 and n_trials is not None):
        raise TypeError(
            "optimize: expected (objective, n_trials) or (study, objective, n_trials), and the rest by name"
        )
    return study, rest[0], rest[1] if len(rest) == 2 else n_trials


def _check_none(settings: dict[str, Any]) -> None:
    """Raise TypeError for a setting that an existing study already has."""
    for name, value in settings.items():
        if value is not None:
            raise TypeError(f"optimize: {name} must be left out if the study exists already, got {value!r:.80}")


def _shared(
    study: optuna.Study, storage: str | BaseStorage | None, client: Client
) -> tuple[Following, str | BaseStorage, Path | None]:
    """Return both studies (the user's and the workers'), the storage of the latter, and the folder made for it."""
    if storage is None:
        storage = _reachable(study._storage)
    if storage is not None:
        study._storage = keeping(study._storage, study.study_name)
        return Following(study, study), storage, None
    if not isinstance(study._storage, InMemoryStorage):
        study._storage = keeping(study._storage, study.study_name)
    folder = _passing(client)
    storage = str(folder / "study.log")
    base = optuna.storages.get_storage(kept(storage))
    with unannounced():
        base.create_new_study(study.directions, study.study_name)
    objects = keeping(base, study.study_name, folder=folder)
    shared = optuna.load_study(study_name=study.study_name, storage=objects, sampler=study.sampler, pruner=study.pruner)
    return Following(study, shared), storage, folder


def _reachable(storage: BaseStorage) -> BaseStorage | None:
    """Return a study's storage in the form that is sent to workers, or None if only this process can access it."""
    storage = getattr(storage, "base", storage)
    storage = getattr(storage, "_backend", storage) if isinstance(storage, _CachedStorage) else storage
    url = str(getattr(storage, "url", ""))
    in_memory = url.startswith("sqlite") and (url.endswith("://") or ":memory:" in url or "mode=memory" in url)
    return None if in_memory or isinstance(storage, InMemoryStorage) else storage


def _check(n_trials: int | None, n_jobs: int | None) -> None:
    """Raise ValueError for invalid counts."""
    if n_trials is not None and validation.whole("optimize: n_trials", n_trials) < 0:
        raise ValueError(f"optimize: n_trials must be at least 0, got {n_trials}")
    if n_jobs is not None and validation.whole("optimize: n_jobs", n_jobs) != -1 and n_jobs < 1:
        raise ValueError(f"optimize: n_jobs must be at least 1 or -1, got {n_jobs}")


def _check_storage(storage: Any) -> None:
    """Raise for a storage that workers cannot use."""
    if storage is not None and not isinstance(storage, (str, BaseStorage)):
        raise TypeError(f"optimize: storage must be one of optuna.storages or its URL, got {storage!r:.80}")
    if isinstance(storage, InMemoryStorage):
        raise ValueError(
            'optimize: storage must be one that workers reach, such as "sqlite:///study.db", got one in memory'
        )


def _passing(client: Client) -> Path:
    """Return a new folder for a copy of a study while its trials run."""
    if not client.local:
        raise ValueError(
            "optimize: the server is on another machine: name a storage that its workers reach, such as "
            'storage="postgresql://..." or a file "study.log" in a folder that all of them share'
        )
    return Path(tempfile.mkdtemp(prefix="outbid-optuna-"))


def _caught(catch: Any) -> tuple[type[Exception], ...]:
    kinds = (catch,) if isinstance(catch, type) else tuple(validation.several("optimize: catch", catch, "exceptions"))
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError(f"optimize: catch must be exceptions such as (ValueError,), got {kind!r:.80}")
    return kinds


_LOOKS = (0.002, 0.1)  # seconds between looks at the study after news of its sweep: at first, and what is too long


class _Called(Callback):
    """Updates the study, calls Optuna's callbacks, and ends the sweep when the study was stopped."""

    def __init__(
        self,
        following: Following,
        sweep: Sweep,
        callbacks: tuple[Callable[[optuna.Study, FrozenTrial], None], ...],
    ) -> None:
        self._following, self._sweep, self._callbacks = following, sweep, callbacks
        self._stopped = self._stop_seen = self._warned = False
        self._called: set[str] = set()  # trials whose callbacks have been called
        self._pause = _LOOKS[1]  # seconds until the next look at the study, if no news comes before
        self._running: set[str] = set()  # trials of the sweep that run, or are about to run, one of the study's

    def _on_update(self, update: Update) -> None:
        """Process the results from the workers."""
        self._following.pull()
        for trial in update.trials:
            runs = trial.state == "running" and IDLE not in trial.attributes
            (self._running.add if runs else self._running.discard)(trial.id)
        self._stop(update.sweep.id)
        self._pause = _LOOKS[0]

    def _on_idle(self) -> float | None:
        """Call the callbacks of trials that have ended: news of the sweep comes ten times a second at the most."""
        if not self._callbacks or self._pause >= _LOOKS[1]:
            return None
        self._following.pull()
        self._pause *= 2
        for trial in self._following.finished():
            self._call(trial)
            self._pause = _LOOKS[0]
        return self._pause

    def on_trial_end(self, trial: TrialResult) -> None:
        """Call the callbacks with Optuna's trial. Raises exceptions of the objective that are not in `catch`."""
        following = self._following
        if raised := trial.attributes.get(RAISED):
            self._sweep.handle.stop()
            raise unpacked(raised)
        if trial.state in ("failed", "stopped"):
            following.fail(trial.id)
        if (names := trial.attributes.get(CHANGED)) and not self._warned:
            self._warned = True
            warn_user(_lost(names))
        self._call(trial.id)

    def _call(self, of_sweep: str) -> None:
        """Call the callbacks with the study's trial that a trial of the sweep ran, once it has ended."""
        following, sweep = self._following, of_sweep.rpartition("/")[0]
        told = following.trial(of_sweep) if self._callbacks and of_sweep not in self._called else None
        if told is not None and told.state.is_finished():
            self._called.add(of_sweep)
            try:
                with stoppable(following.study, following.shared, sweep):
                    for callback in self._callbacks:
                        callback(following.study, copy.deepcopy(told))
            except KeyboardInterrupt:
                raise  # the sweep is paused or continues, like at any other time
            except BaseException:
                self._sweep.handle.stop()
                raise
        following.push()
        if told is not None and told.state.is_finished():
            call_for(following.shared, sweep, len(self._called))

    def _stop(self, sweep: str) -> None:
        """End the sweep of a stopped study when its running trials have finished.

        A trial that had begun when the study was stopped may appear only in the next update.
        """
        following, seen = self._following, self._stop_seen
        self._stop_seen = seen or is_stopped(following.shared, sweep)
        if not seen or self._stopped:
            return
        following.pull()
        if not following.runs() and all(map(following.is_over, self._running)):
            self._stopped = True
            self._sweep.handle.stop()


def _lost(names: Sequence[str]) -> str:
    """Return the warning about changes that this process does not see."""
    what = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
    return (
        f"the objective changes {what} outside of itself: trials run in other processes, each with a copy of it, so "
        "the original is not changed. Store data of a trial with trial.set_user_attr(...), which takes any object, "
        "and read study.best_trial.user_attrs; save large models to files named by trial.number; count with "
        "trial.number; collect in callbacks=[...], which are called here"
    )


def _settle(following: Following, sweep: SweepHandle) -> bool:
    """Return whether a sweep has ended.

    If so, its trials that still run in the study, such as stopped ones, are failed.

    If the server is out of reach, the trials stay as they are.
    """
    try:
        ended = sweep.info().ended is not None
    except UnavailableError:
        ended = False
    if ended:
        following.fail_all(sweep.id)
    else:
        following.pull()
    return ended


def _loading(study: optuna.Study, storage: str | BaseStorage) -> str:
    """Return the code that loads a study, for a user to copy."""
    given = "..." if isinstance(storage, BaseStorage) else repr(storage)
    if isinstance(storage, str) and kept(storage) is not storage:
        given = f"optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend({given}))"
    return f"optuna.load_study(study_name={study.study_name!r}, storage={given})"


def _name(objective: Any) -> str:
    made = re.sub(r"[^a-z0-9]+", "-", getattr(objective, "__name__", "objective").lower()).strip("-")
    return made[:40].strip("-") or "objective"
