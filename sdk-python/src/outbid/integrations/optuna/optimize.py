"""Runs an Optuna study as a sweep. The public module is `outbid.optuna`."""

from __future__ import annotations

import atexit
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

from outbid._client.client import Client, default_client
from outbid._client.handle import SweepHandle
from outbid._client.interrupt import tell_more
from outbid._core import validation
from outbid._core.errors import UnavailableError
from outbid._search.resources import Resources, duration
from outbid._search.sweep import Sweep
from outbid._search.tuner_classes import Random
from outbid.integrations.optuna.object_storage import keeping
from outbid.integrations.optuna.study_callback import StudyCallback
from outbid.integrations.optuna.study_copy import Following
from outbid.integrations.optuna.sweep_study import kept, to_study, unannounced
from outbid.integrations.optuna.timeout import START_SECONDS, stopped_after
from outbid.integrations.optuna.trial_process import (
    Objective,
    Work,
    metrics_of,
    randoms,
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
    over = timeout == 0 and timeout is not False  # no trial, as in Optuna
    if timeout is not None and not over:
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
    if n_trials == 0 or over:
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
            sweep.run(display=display, callbacks=[StudyCallback(following, sweep, callbacks)], client=client)
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
