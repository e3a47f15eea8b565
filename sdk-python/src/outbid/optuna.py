"""Optuna's objectives on Outbid, and Outbid's sweeps in Optuna. Needs the extra outbid[optuna].

    import optuna
    import outbid.optuna

    def objective(trial):
        x = trial.suggest_float("x", -5, 5)
        for step in range(10):
            trial.report(..., step)
            if trial.should_prune():
                raise optuna.TrialPruned()
        return ...

    study = outbid.optuna.optimize(objective, n_trials=100)
    print(study.best_params)

Each trial of the study is a trial of a sweep, and runs where Outbid has a device free.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from outbid import _attributes, _given
from outbid._callbacks import Callback
from outbid._client import Client, default_client
from outbid._errors import UnavailableError
from outbid._handle import SweepHandle
from outbid._model import TrialResult
from outbid._raised import packed, unpacked
from outbid._resources import Resources, duration
from outbid._study import ATTRIBUTE, forget, in_memory, kept, to_study
from outbid._sweep import Sweep
from outbid._training import Trial
from outbid._tuners import Random

__all__ = ["optimize", "to_study"]

Objective = Callable[[optuna.Trial], float | Sequence[float]]
Direction = Literal["minimize", "maximize"]

_RAISED = "outbid:raised"  # noted of a trial: the exception that is to be raised where `optimize` was called
_STOPPED = "outbid:stopped"  # of the study: the sweep that `study.stop()` is to end


def optimize(
    objective: Objective,
    n_trials: int | None = None,
    *,
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
    """Run an objective as Optuna's `Study.optimize` does, but on Outbid's devices, and return the study.

    The objective is called as it is: `trial` is Optuna's own. `direction` is "minimize" if left out; `directions`, one
    for each, are those of an objective that returns several values. `sampler` and `pruner` are Optuna's, TPE and the
    median if left out, and every process that runs trials has a copy of them. One with a seed draws the same trials
    again with `n_jobs=1`, others than in Optuna's own loop. What the objective reports, and returns,
    is the sweep's metric "value"; several are "values_0" and so on, as in Optuna's tables. An objective that raises
    TrialPruned ends its trial as pruned; one that raises anything else fails, and is not tried again. `catch` are the
    exceptions that fail their trial alone: with others the sweep ends, and they are raised here. What is suggested
    stands in the configurations of the sweep's trials, and user attributes in their `attributes`.

    `storage` is where the study is kept: one of Optuna's or its URL, which every worker must reach, or a file of a
    journal that ends with ".log". Left out, it is in memory once the sweep has ended, and in a temporary folder until
    then, which suits a server on this machine only. A study that the storage has under that `study_name` goes on, those
    trials first that were enqueued there. `n_jobs` is how many trials run at once at the most; None or -1: as many as
    there are devices. Where `timeout` seconds are over, or `study.stop()` was called, the sweep ends, trials that run
    are stopped, and the study is returned. `callbacks` are Optuna's, called here; `gc_after_trial` is as there, in the
    processes that run trials. Progress is shown unless `display` is False; `show_progress_bar` shows it all the same.
    """
    if not callable(objective):
        raise TypeError(f"optimize: objective must be a function of a trial, got {objective!r:.80}")
    if n_trials is None and timeout is None:
        raise ValueError("optimize: n_trials is missing: say how many trials, or for how long with timeout=")
    for name, given, kind in (("sampler", sampler, BaseSampler), ("pruner", pruner, BasePruner)):
        if given is not None and not isinstance(given, kind):
            raise TypeError(f"optimize: {name} must be one of optuna.{name}s, got {given!r:.80}")
    _check(n_trials, n_jobs)
    if timeout is not None:
        duration("optimize: timeout", timeout)
    caught = _caught(catch)
    called = tuple(_given.several("optimize: callbacks", callbacks or (), "functions of a study and a trial"))
    _check_storage(storage)
    create = partial(
        optuna.create_study,
        study_name=study_name,
        direction=direction,
        directions=directions,
        sampler=sampler,
        pruner=pruner,
        load_if_exists=study_name is not None,
    )
    if n_trials == 0:
        return create(storage=None if storage is None else kept(storage))
    client = client or default_client()
    passing = storage is None
    storage = _passing(client) if storage is None else storage
    study = create(storage=kept(storage))
    run = partial(
        _train,
        objective=objective,
        storage=storage,
        name=study.study_name,
        sampler=study.sampler,
        pruner=study.pruner,
        seeds={path: int(state.randint(1 << 31)) for path, state in _randoms(study.sampler).items()},
        before=len(study.get_trials(deepcopy=False)),
        caught=caught,
        collect=gc_after_trial,
    )
    sweep = Sweep(
        run,
        {"study": study.study_name},
        metric=_metrics(study),
        mode=["max" if way == optuna.study.StudyDirection.MAXIMIZE else "min" for way in study.directions],
        tuner=Random(),
        trials=n_trials,
        concurrency=None if n_jobs == -1 else n_jobs,
        wall_time=timeout,
        resources=resources,
        max_restarts=0,
        name=_name(objective),
    )
    try:
        sweep.run(display=display or show_progress_bar, callbacks=[_Called(study, sweep, called)], client=client)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(f"{interrupt}; its study: {_loading(study, storage)}") from None
    finally:
        ended = sweep.submitted and _settle(study, sweep.handle)
        if passing and ended:
            forget(study, Path(str(storage)).parent)
    return in_memory(study) if passing and ended else study


class _NoValue(TypeError, ValueError):
    """The objective returned what is no value of its study: that fails the trial alone, as it does in Optuna."""


def _check(n_trials: int | None, n_jobs: int | None) -> None:
    """Raise for a count that is none."""
    if n_trials is not None and _given.whole("optimize: n_trials", n_trials) < 0:
        raise ValueError(f"optimize: n_trials must be at least 0, got {n_trials}")
    if n_jobs is not None and _given.whole("optimize: n_jobs", n_jobs) != -1 and n_jobs < 1:
        raise ValueError(f"optimize: n_jobs must be at least 1 or -1, got {n_jobs}")


def _check_storage(storage: Any) -> None:
    """Raise for what workers cannot keep a study in."""
    if storage is not None and not isinstance(storage, (str, BaseStorage)):
        raise TypeError(f"optimize: storage must be one of optuna.storages or its URL, got {storage!r:.80}")
    if isinstance(storage, InMemoryStorage):
        raise ValueError(
            'optimize: storage must be one that workers reach, such as "sqlite:///study.db", got one in memory'
        )


def _passing(client: Client) -> str:
    """Return a file to keep a study in while its trials run."""
    if not client.local:
        raise ValueError(
            "optimize: the server is on another machine: name a storage that its workers reach, such as "
            'storage="postgresql://..." or a file "study.log" in a folder that all of them share'
        )
    return str(Path(tempfile.mkdtemp(prefix="outbid-optuna-")) / "study.log")


def _caught(catch: Any) -> tuple[type[Exception], ...]:
    kinds = (catch,) if isinstance(catch, type) else tuple(_given.several("optimize: catch", catch, "exceptions"))
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError(f"optimize: catch must be exceptions such as (ValueError,), got {kind!r:.80}")
    return kinds


class _Called(Callback):
    """Calls Optuna's callbacks, and ends the sweep once the study was stopped."""

    def __init__(
        self, study: optuna.Study, sweep: Sweep, callbacks: tuple[Callable[[optuna.Study, FrozenTrial], None], ...]
    ) -> None:
        self._study, self._sweep, self._callbacks = study, sweep, callbacks
        self._stopped = False

    def on_trial_end(self, trial: TrialResult) -> None:
        """Call them with Optuna's trial; raise what is not to be caught."""
        study = self._study
        if raised := trial.attributes.get(_RAISED):
            self._sweep.handle.stop()
            raise unpacked(raised)
        try:
            for told in study.get_trials(deepcopy=False) if self._callbacks else ():
                if told.user_attrs.get(ATTRIBUTE) == trial.id and told.state.is_finished():
                    with _stoppable(study, trial.sweep):
                        for callback in self._callbacks:
                            callback(study, told)
        except BaseException:
            self._sweep.handle.stop()
            raise
        if not self._stopped and study.user_attrs.get(_STOPPED) == trial.sweep:
            self._stopped = True
            self._sweep.handle.stop()


@contextlib.contextmanager
def _stoppable(study: optuna.Study, sweep: str) -> Iterator[None]:
    """Have `study.stop()` end the sweep: Optuna's own wants a loop of Optuna's."""
    study.stop = partial(study.set_user_attr, _STOPPED, sweep)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del study.stop


def _settle(study: optuna.Study, sweep: SweepHandle) -> bool:
    """Have the trials of a sweep that ended without a word, as those that were stopped, fail in the study.

    Nothing is known of a sweep whose server is out of reach: its trials stay as they are. Returns whether it has ended.
    """
    try:
        if sweep.info().ended is None:
            return False
    except UnavailableError:
        return False
    for told in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if str(told.user_attrs.get(ATTRIBUTE, "")).startswith(sweep.id + "/"):
            study.tell(told.number, state=TrialState.FAIL)
    return True


def _train(
    trial: Trial,
    *,
    objective: Objective,
    storage: str | BaseStorage,
    name: str,
    sampler: BaseSampler,
    pruner: BasePruner,
    seeds: dict[str, int],
    before: int,
    caught: tuple[type[Exception], ...],
    collect: bool,
) -> None:
    """Run one trial of the study in a worker's process."""
    _seed(sampler, seeds, before + trial.number)
    study = optuna.load_study(study_name=name, storage=kept(storage), sampler=sampler, pruner=pruner)
    sweep = trial.id.rpartition("/")[0]
    if study.user_attrs.get(_STOPPED) == sweep:
        trial._pruned = True
        return
    asked = _ask(study, storage)
    asked.set_user_attr(ATTRIBUTE, trial.id)
    own, done = asked.report, 0

    def report(value: float, step: int) -> None:
        nonlocal done
        own(value, step)
        if step >= done:
            done = step + 1
            trial.report({"value": float(value)}, step=done)

    asked.report = report  # type: ignore[method-assign]
    try:
        with _stoppable(study, sweep):
            values = _values(study, objective(asked))
    except optuna.TrialPruned:
        study.tell(asked, state=TrialState.PRUNED)
        trial._pruned = True
        return
    except BaseException as error:
        study.tell(asked, state=TrialState.FAIL)
        if isinstance(error, Exception) and not isinstance(error, (*caught, _NoValue)):
            trial.note({_RAISED: packed(error)})
        raise
    finally:
        trial.note(_attributes.drawn(asked.params))
        trial.note({name: value for name, value in asked.user_attrs.items() if name != ATTRIBUTE})
        if collect:
            gc.collect()
    with _stoppable(study, sweep):  # a sampler whose grid is done stops the study
        told = study.tell(asked, values)
    if constraints := _constraints(told):
        trial.note(constraints=constraints)
    trial.report(dict(zip(_metrics(study), values, strict=True)), step=done + 1)


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
    for path, state in _randoms(sampler).items():
        if path in seeds:
            state.seed([seeds[path], number])


def _randoms(thing: Any, path: str = "") -> dict[str, np.random.RandomState]:
    """Return the random states in a sampler, by where they stand in it; unseeded, it makes them late."""
    found: dict[str, np.random.RandomState] = {}
    for name, value in vars(thing).items():
        if isinstance(value, np.random.RandomState):
            found[path + name] = value
        elif type(value).__module__.startswith("optuna.samplers") and hasattr(value, "__dict__"):
            found.update(_randoms(value, f"{path}{name}."))
    return found


def _loading(study: optuna.Study, storage: str | BaseStorage) -> str:
    """Return what loads a study, as somebody would type it who has lost it."""
    given = "..." if isinstance(storage, BaseStorage) else repr(storage)
    if isinstance(storage, str) and kept(storage) is not storage:
        given = f"optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend({given}))"
    return f"optuna.load_study(study_name={study.study_name!r}, storage={given})"


def _metrics(study: optuna.Study) -> list[str]:
    """Return what the sweep calls the study's values."""
    count = len(study.directions)
    return ["value"] if count == 1 else [f"values_{index}" for index in range(count)]


def _values(study: optuna.Study, returned: float | Sequence[float]) -> list[float]:
    """Return what an objective returned, one for each of the study's directions."""
    several = isinstance(returned, Sequence) and not isinstance(returned, str)
    try:
        values = [float(value) for value in (returned if several else [returned])]  # type: ignore[union-attr,arg-type]
    except (TypeError, ValueError):
        raise _NoValue(f"the objective returned {returned!r:.80}: a study takes a number, or several") from None
    if len(values) != len(study.directions):
        ways = ", ".join(way.name.lower() for way in study.directions)
        raise _NoValue(f"the objective returned {returned!r}: the study takes {len(study.directions)} ({ways})")
    return values


def _name(objective: Any) -> str:
    made = re.sub(r"[^a-z0-9]+", "-", getattr(objective, "__name__", "objective").lower()).strip("-")
    return made[:40].strip("-") or "objective"
