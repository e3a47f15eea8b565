"""Transfers the state that a search algorithm and a scheduler learn on the server to the script's objects."""

from __future__ import annotations

import pickle
import threading
import time
from pathlib import Path
from typing import Any

from outbid.tune._object_store import by_name
from outbid.tune._trial import Trial
from outbid.tune.schedulers._base import FIFOScheduler
from outbid.tune.stopper import asked_in_trial

_FILE = ".learned.pkl"
"""The file's name in an experiment's directory."""

_SHARE = 20  # the interval between writes is at least this many times the duration of a write


class Learned:
    """Writes the learned state to the experiment's directory, if that exists, now or later.

    Later writes are made in a thread, which holds `lock`.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._not_before = 0.0
        self._due: threading.Timer | None = None

    def keep(self, program: Any, *, last: bool) -> None:
        """Write the state if a write is due or nothing more will be learned; otherwise schedule a write."""
        experiment, wait = program.experiment, self._not_before - time.monotonic()
        plain = experiment.searcher is None and type(experiment.scheduler) is FIFOScheduler
        if plain and asked_in_trial(experiment.plan.stop):
            return
        if wait <= 0 or last:
            self._write(program)
        elif self._due is None:
            self._due = threading.Timer(wait, self.flush, [program])
            self._due.daemon = True
            self._due.start()

    def flush(self, program: Any) -> None:
        """Write pending state."""
        with self._lock:
            if self._due is not None:
                self._write(program)

    def _write(self, program: Any) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        import cloudpickle

        experiment, began = program.experiment, time.monotonic()

        file = Path(experiment.plan.folder, _FILE)
        try:
            made = file.with_suffix(".new")
            trials = {**experiment.known, **{t.trial_id: t for t in program.trials}}
            with by_name():
                made.write_bytes(
                    cloudpickle.dumps((experiment.searcher, experiment.scheduler, trials, experiment.plan.stop))
                )
            made.replace(file)
        except OSError:  # the directory does not exist here
            pass
        now = time.monotonic()
        self._not_before = now + _SHARE * (now - began)


def learn(folder: str, searcher: Any, scheduler: Any) -> None:
    """Update a script's objects with the learned state, so that they can be saved or used again."""
    for mine, theirs in zip((searcher, scheduler), learned(folder) or (), strict=False):
        _take(mine, theirs)


def learned(folder: str) -> tuple[Any, Any, dict[str, Trial], Any] | None:
    """Return searcher, scheduler, the trials they know by id, and stopper; None if the file cannot be read."""
    try:
        searcher, scheduler, trials, stop = pickle.loads(Path(folder, _FILE).read_bytes())
    except Exception:  # it may need modules that only the other process has
        return None
    return searcher, scheduler, trials, stop


def _take(mine: Any, theirs: Any) -> None:
    if type(mine).__qualname__ != type(theirs).__qualname__ or not hasattr(mine, "__dict__"):
        return
    state = dict(theirs.__dict__)
    for name in ("searcher", "_base"):  # the wrapped object is also one of the script's objects
        if name in state and name in mine.__dict__:
            _take(mine.__dict__[name], state.pop(name))
    mine.__dict__.update(state)
