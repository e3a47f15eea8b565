"""The weights that a trial has saved: the newest is held in memory until a checkpoint is wanted."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outbid import _tensors
from outbid._session import Link
from outbid.v1 import session_pb2

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass
class _Weights:
    """Weights that training code saved. step is None until the report that follows names it."""

    step: int | None
    arrays: dict[str, npt.NDArray[Any]]
    metadata: str


class Keeper:
    """Holds a trial's newest weights, writes them when asked, and knows whether they are in the store."""

    def __init__(self, assignment: session_pb2.TrialAssignment, link: Link) -> None:
        self._a = assignment
        self._link = link
        self._held: _Weights | None = None
        self._offered: _Weights | None = None
        self._offers = 0
        self._asked = False
        self._every = assignment.save_every.ToTimedelta().total_seconds()
        self._last = time.monotonic()
        self.error = ""
        """Why the last offer is not in the store; "" if it is, or if there was none."""

    @property
    def pending(self) -> bool:
        """Whether there are weights that are not in the store."""
        return self.offered or (self._held is not None and self._held.step is not None)

    @property
    def offered(self) -> bool:
        """Whether the worker has yet to say what became of an offer."""
        return self._offered is not None

    @property
    def due(self) -> bool:
        """Whether a checkpoint is wanted though the trial goes on."""
        return self._asked or 0 < self._every <= time.monotonic() - self._last

    def hold(self, step: int | None, weights: Any, metadata: Mapping[str, Any] | None, *, copy: bool) -> None:
        """Keep weights in place of those held before; `step` may be told later, by `name`."""
        self._held = _Weights(step, _tensors.to_arrays(weights, copy=copy), _tensors.encode_metadata(metadata))

    def name(self, step: int) -> None:
        """Tell the step of the held weights, if they have none yet."""
        if self._held is not None and self._held.step is None:
            self._held.step = step

    def ask(self) -> None:
        """Make a checkpoint due."""
        self._asked = True

    def postpone(self, seconds: float) -> None:
        """Let time that was spent waiting not count towards the next checkpoint."""
        self._last += seconds

    def offer(self, metric: float | None) -> None:
        """Write the held weights and offer them to the worker, unless an offer is under way."""
        if self._held is None or self._held.step is None or self._offered is not None:
            return
        self._offers += 1  # a file of its own for each offer, as the worker takes them away
        self._asked = False
        self._last = time.monotonic()
        path = os.path.join(self._a.scratch, f"{self._held.step:012d}-{self._offers}.safetensors")
        _tensors.write(path, self._held.arrays, self._held.metadata)
        saved = session_pb2.ProcessSaved(fork=self._a.fork, path=path, step=self._held.step, metric=metric)
        self._held, self._offered = None, self._held
        self._link.send(session_pb2.AttachRequest(saved=saved))

    def stored(self, done: session_pb2.SaveDone) -> None:
        """Take in what became of an offer. What did not get into the store is held again, unless newer is."""
        if self._offered is None or self._offered.step != done.step:
            return
        if done.error and done.error != self.error:
            note = f"outbid: the checkpoint of step {done.step} is not stored yet: {done.error}"
            print(note, file=sys.stderr, flush=True)
        if done.error:
            self._held = self._held or self._offered
        self.error = done.error
        self._offered = None
