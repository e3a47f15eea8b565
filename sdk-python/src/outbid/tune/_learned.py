"""What a search algorithm and a scheduler learn beside the server, for the script's own objects to know it too."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

from outbid.tune.schedulers._base import FIFOScheduler

_FILE = ".learned.pkl"
"""Of an experiment's directory."""

_SHARE = 20  # of the time between writes that one may take


class Learned:
    """Writes down from time to time what was learned; where the experiment's directory is not there, nothing."""

    def __init__(self) -> None:
        self._not_before = 0.0

    def keep(self, experiment: Any, *, last: bool) -> None:
        """Write it down if it is time to, or if nothing more will be learned."""
        began = time.monotonic()
        nothing = experiment.searcher is None and type(experiment.scheduler) is FIFOScheduler
        if nothing or (began < self._not_before and not last):
            return
        import cloudpickle

        file = Path(experiment.plan.folder, _FILE)
        try:
            made = file.with_suffix(".new")
            made.write_bytes(cloudpickle.dumps((experiment.searcher, experiment.scheduler)))
            made.replace(file)
        except OSError:  # no such directory here
            pass
        now = time.monotonic()
        self._not_before = now + _SHARE * (now - began)


def learn(folder: str, searcher: Any, scheduler: Any) -> None:
    """Let a script's objects know what was learned, so that they can be saved, or used once more."""
    try:
        found = pickle.loads(Path(folder, _FILE).read_bytes())
    except Exception:  # there is nothing, or it needs what only the other process has
        return
    for mine, theirs in zip((searcher, scheduler), found, strict=True):
        _take(mine, theirs)


def _take(mine: Any, theirs: Any) -> None:
    if type(mine).__qualname__ != type(theirs).__qualname__ or not hasattr(mine, "__dict__"):
        return
    state = dict(theirs.__dict__)
    for name in ("searcher", "_base"):  # what it stands around is an object of the script's as well
        if name in state and name in mine.__dict__:
            _take(mine.__dict__[name], state.pop(name))
    mine.__dict__.update(state)
