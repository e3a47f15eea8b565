"""The saved weights of a trial: the newest, and those of the best report, are in memory until they are written."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outbid._training import tensors
from outbid._training.session import WorkerSession
from outbid.v1 import session_pb2

if TYPE_CHECKING:
    import numpy.typing as npt


# between writes of the best weights: minimum seconds, and multiples of the duration of a write
_BEST_PAUSE, _BEST_SHARE = 1.0, 10.0


@dataclass
class _Weights:
    """Weights that training code saved. `step` is None until the next report names it.

    `metric` is the value reported at that step, or the last one before it. If `sharded` is set, they are this rank's
    shard of a checkpoint.
    """

    step: int | None
    arrays: dict[str, npt.NDArray[Any]]
    metadata: str
    metric: float | None
    sharded: bool = False
    copied: bool = False
    """Whether the arrays are copies, which no other code uses."""


class Checkpointer:
    """Holds a trial's newest weights, writes them when needed, and tracks whether they are stored."""

    def __init__(self, assignment: session_pb2.TrialAssignment, session: WorkerSession) -> None:
        self._a = assignment
        self._session = session
        self._held: _Weights | None = None
        self._offered: _Weights | None = None
        self._offers = 0
        self._asked = False
        self._every = assignment.save_every.ToTimedelta().total_seconds()
        self._last = time.monotonic()
        self._metric: float | None = None  # the newest value
        self._top: tuple[int, float] | None = None  # step and value of the best report
        self._best: _Weights | None = None  # the weights of that step, unless they were written
        self._began = 0.0
        self._quiet_until = time.monotonic() + _BEST_PAUSE
        self.error = ""
        """Why the last offer was not stored; "" if it was, or if there was none."""

    @property
    def pending(self) -> bool:
        """Whether there are weights that are not stored."""
        return self.offered or self._best is not None or (self._held is not None and self._held.step is not None)

    @property
    def offered(self) -> bool:
        """Whether the worker has not answered an offer yet."""
        return self._offered is not None

    @property
    def due(self) -> bool:
        """Whether a checkpoint is needed although the trial continues."""
        return self._asked or 0 < self._every <= time.monotonic() - self._last

    @property
    def best_passed(self) -> bool:
        """Whether to write the best report's weights now: later ones are worse, and the last write is long ago."""
        return self._best is not None and self._best is not self._held and time.monotonic() >= self._quiet_until

    def is_best(self, step: int) -> bool:
        """Whether the best report is at `step`."""
        return self._a.keep_best and self._top is not None and self._top[0] == step

    def hold(
        self,
        step: int | None,
        weights: Any,
        metadata: Mapping[str, Any] | None,
        *,
        copy: bool,
        sharded: bool = False,
    ) -> None:
        """Replace the newest weights. If `step` is None, a later call of `name` sets it."""
        encoded = tensors.encode_metadata(metadata)
        into = self._reusable() if copy else {}
        try:
            arrays = tensors.to_arrays(weights, copy=copy, into=into)
        except (TypeError, ValueError):
            raise  # nothing is copied yet
        except BaseException:
            if into:
                self._held = None  # some of its arrays may have newer values
            raise
        self._held = _Weights(step, arrays, encoded, self._metric, sharded, copied=copy)
        if step is not None and self.is_best(step):
            self._best = self._held

    def _reusable(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return the arrays of the newest weights, which are about to be replaced, if nothing else needs them."""
        held = self._held
        if held is None or not held.copied or held is self._best or held is self._offered:
            return {}
        return held.arrays

    def name(self, step: int) -> None:
        """Set the step of the newest weights if it is unknown."""
        if self._held is not None and self._held.step is None:
            self._held.step = step

    def measured(self, step: int, metric: float) -> None:
        """Record the value of the sweep's metric at a step."""
        self._metric = metric
        mine = self._held if self._held is not None and self._held.step == step else None
        if mine is not None:
            mine.metric = metric
        if self._a.keep_best and math.isfinite(metric) and (self._top is None or self._better(metric, self._top[1])):
            self._top, self._best = (step, metric), mine

    def ask(self) -> None:
        """Make a checkpoint due."""
        self._asked = True

    def postpone(self, seconds: float) -> None:
        """Exclude waiting time from the interval between checkpoints."""
        self._last += seconds

    def offer(self) -> None:
        """Write the newest weights, or else the best ones, and offer them to the worker.

        Does nothing while an offer is pending.
        """
        if self._held is not None and self._held.step is not None:
            if self._write(self._held):
                self._asked, self._last, self._held = False, time.monotonic(), None
        else:
            self.offer_best()

    def offer_best(self) -> None:
        """Write the best report's weights and offer them to the worker, unless an offer is pending."""
        if self._best is not None:
            self._write(self._best)

    def stored(self, done: session_pb2.SaveDone) -> None:
        """Handle the answer to an offer. If storing failed, hold the weights again unless there are newer ones."""
        if self._offered is None or self._offered.step != done.step:
            return
        if done.error and done.error != self.error:
            note = f"outbid: the checkpoint of step {done.step} is not stored yet: {done.error}"
            print(note, file=sys.stderr, flush=True)
        if done.error:
            if self.is_best(done.step):
                self._best = self._best or self._offered
            self._held = self._held or self._offered
        took = time.monotonic() - self._began
        self._quiet_until = time.monotonic() + max(_BEST_PAUSE, _BEST_SHARE * took)
        self.error = done.error
        self._offered = None

    def report_wait(self) -> None:
        """Tell the worker if this process waits for something that the worker cannot know."""

    def abandon(self) -> None:
        """Drop shards that are not being stored yet: after an error the other ranks may have none of the same step."""
        if self._held is not None and self._held.sharded:
            self._held = None
        if self._best is not None and self._best.sharded:
            self._best = None

    def _better(self, value: float, than: float) -> bool:
        return value > than if self._a.mode == "max" else value < than

    def _write(self, weights: _Weights) -> bool:
        """Write weights and offer the file. Returns False if an offer is pending."""
        if self._offered is not None:
            return False
        self._begin(weights)
        path = self._path(weights, "safetensors")
        tensors.write(path, weights.arrays, weights.metadata)
        self._send(session_pb2.ProcessSaved(path=path, metric=weights.metric), weights)
        return True

    def _begin(self, weights: _Weights) -> None:
        """Record that these weights are being stored."""
        self._began = time.monotonic()
        self._offered = weights
        if weights is self._best:
            self._best = None

    def _path(self, weights: _Weights, suffix: str) -> str:
        """Return the path of a new file, which the worker moves away."""
        self._offers += 1
        return os.path.join(self._a.scratch, f"{weights.step or 0:012d}-{self._offers}.{suffix}")

    def _send(self, saved: session_pb2.ProcessSaved, weights: _Weights) -> None:
        """Offer a file to the worker."""
        saved.fork.CopyFrom(self._a.fork)
        saved.step = weights.step or 0
        self._session.send(session_pb2.AttachRequest(saved=saved))
