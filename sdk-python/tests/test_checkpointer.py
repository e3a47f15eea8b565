"""The memory of saved weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_gang import FORK, Worker
from outbid._training import tensors
from outbid._training.checkpointer import Checkpointer
from outbid.v1 import session_pb2


class Silent(Worker):
    """A worker that does not answer."""

    def send(self, message: session_pb2.AttachRequest) -> None:
        self.said.append(message)


def start(tmp_path: Path, **fields: Any) -> Checkpointer:
    assignment = session_pb2.TrialAssignment(fork=FORK, scratch=str(tmp_path), **fields)
    return Checkpointer(assignment, Silent())


def hold(checkpointer: Checkpointer, step: int, copy: bool = True) -> Any:
    """Save weights with the step as their value, and return the array that is held."""
    checkpointer.hold(step, {"w": np.full(3, float(step))}, None, copy=copy)
    assert checkpointer._held is not None
    array = checkpointer._held.arrays["w"]
    assert array.tolist() == [step] * 3
    return array


def test_replaced_weights_give_their_memory_to_the_next(tmp_path: Path) -> None:
    c = start(tmp_path)
    first = hold(c, 1)
    assert hold(c, 2) is first
    shared = hold(c, 3, copy=False)
    assert hold(c, 4) is not shared and shared.tolist() == [3, 3, 3]


def test_weights_that_are_needed_keep_their_memory(tmp_path: Path) -> None:
    c = start(tmp_path, keep_best=True, mode="min")
    best = hold(c, 1)
    c.measured(1, 0.5)
    newest = hold(c, 2)
    assert newest is not best
    c.measured(2, 0.7)
    assert hold(c, 3) is newest and best.tolist() == [1, 1, 1]
    c.offer()
    offered = newest
    newest = hold(c, 4)
    assert newest is not offered and offered.tolist() == [3, 3, 3]
    c.stored(session_pb2.SaveDone(step=3, error="full"))
    assert hold(c, 5) is newest
    c.offer()
    c.stored(session_pb2.SaveDone(step=5, error="full"))
    assert hold(c, 6) is newest  # its file has the values of step 5
    c.offer_best()
    assert best.tolist() == [1, 1, 1]


def test_a_copy_that_is_interrupted_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    c = start(tmp_path)
    hold(c, 1)
    with pytest.raises(TypeError, match="must be an array"):
        c.hold(2, {"w": None}, None, copy=True)
    assert c._held is not None and c._held.step == 1

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(tensors, "_copy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        c.hold(2, {"w": np.zeros(3)}, None, copy=True)
    assert not c.pending
