"""RunningTime: how long an experiment has run, across interruptions, for its time budgets."""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outbid.tune._config import TuneConfig, seconds
from outbid.tune.stopper import CombinedStopper, TimeoutStopper

_FILE = ".running_time.json"
"""The file's name in an experiment's directory."""

_EVERY = 1.0  # seconds between writes


class RunningTime:
    """Counts the seconds that an experiment has run, without the time in which it was paused or stopped."""

    def __init__(self, folder: str, *, new: bool = False) -> None:
        self._file = Path(folder, _FILE)
        self.seconds = 0.0
        self._at: float | None = None  # when it last was known to run
        self._before: float | None = None  # the same, in the earlier process that followed it
        self._written = 0.0
        if new:
            self._file.unlink(missing_ok=True)
            return
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(self._file.read_text())
            self.seconds, self._before = float(found["seconds"]), found["running_at"]

    def resume(self, *, ran_on: bool) -> None:
        """Start counting again. With `ran_on`, the time since it was last followed counts too."""
        self._at = self._before if ran_on else None
        self.tick(running=True)

    def tick(self, *, running: bool) -> None:
        """Add the time since the last call if the experiment was running, and write the sum periodically."""
        now = time.time()
        if self._at is not None:
            self.seconds += max(0.0, now - self._at)
        self._at = now if running else None
        if not running or now - self._written >= _EVERY:
            self._written = now
            with contextlib.suppress(OSError):
                made = self._file.with_suffix(".new")
                made.write_text(json.dumps({"seconds": self.seconds, "running_at": self._at}))
                made.replace(self._file)


def budget(tune: TuneConfig, stop: Any) -> float | None:
    """Return an experiment's smallest time budget in seconds of running; None if it has none."""
    spans = [one.timeout for one in _timeouts(stop)]
    if (span := seconds(tune.time_budget_s)) is not None:
        spans.append(span)
    return min(spans, default=None)


def spend(stop: Any, spent: float) -> None:
    """Subtract running time of an experiment from the budgets of its stoppers."""
    for one in _timeouts(stop):
        one.spend(spent)


def longer(submitted: datetime.datetime | None, left: float) -> float:
    """Return the wall-time limit, from a sweep's submission, that leaves it `left` seconds from now."""
    since = 0.0 if submitted is None else time.time() - submitted.timestamp()
    return max(since, 0.0) + left


def _timeouts(stop: Any) -> Iterator[TimeoutStopper]:
    if isinstance(stop, TimeoutStopper):
        yield stop
    elif isinstance(stop, CombinedStopper):
        for one in stop._stoppers:
            yield from _timeouts(one)
