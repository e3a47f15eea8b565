"""Checkpoints with shards: every rank of a gang stores its own, and rank 0 their manifest once all are stored.

Rank 0 decides at the end of a step what is stored, and announces it like its other decisions, so every rank stores its
shard of the same step. A checkpoint without a manifest does not count, so it is always complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from outbid._core.errors import CheckpointError
from outbid._training import tensors
from outbid._training.checkpointer import Checkpointer, _Weights
from outbid._training.gang import Gang, Message
from outbid._training.manifest import Manifest, StoredShard
from outbid._training.opaque import is_directory
from outbid._training.session import WorkerSession
from outbid.v1 import session_pb2

_EVERY_RANK = "call trial.save(..., sharded=True) on every rank of a gang, in the same steps"


def check_shards(assignment: session_pb2.TrialAssignment) -> None:
    """Raise CheckpointError or ValueError if this trial cannot save shards."""
    if not assignment.sharded_checkpoints:
        raise CheckpointError(
            "save: sharded=True needs a newer Outbid on the server and on the workers: update them, or gather the "
            "weights on rank 0 and save them without sharded=True"
        )
    if assignment.HasField("part"):
        raise ValueError("save: sharded=True cannot be used with Resources(forks=): forks' weights are averaged")


class ShardWriter(Checkpointer):
    """A `Checkpointer` of a process that may save shards."""

    def __init__(self, assignment: session_pb2.TrialAssignment, session: WorkerSession) -> None:
        super().__init__(assignment, session)
        self.shares = False
        """Whether training code has saved a shard."""

    def hold(
        self,
        step: int | None,
        weights: Any,
        metadata: Mapping[str, Any] | None,
        *,
        copy: bool,
        sharded: bool = False,
    ) -> None:
        """Replace the newest weights."""
        super().hold(step, weights, metadata, copy=copy, sharded=sharded)
        self.shares = self.shares or sharded

    def _offer_shard(self, weights: _Weights) -> None:
        """Write this rank's shard, and offer it to the worker."""
        path = self._path(weights, "safetensors")
        tensors.write(path, weights.arrays, "")
        saved = session_pb2.ProcessSaved(path=path)
        saved.shard.rank = self._a.rank.rank
        self._send(saved, weights)

    def _answer(self, done: session_pb2.SaveDone) -> Message:
        """Return the message to rank 0 about this rank's shard."""
        return {
            "shard": done.step,
            "error": done.error,
            "bytes": done.shard.bytes,
            "sha256": done.shard.sha256,
            "crc64nvme": done.shard.crc64nvme,
            "directory": self._offered is not None and is_directory(self._offered.arrays),
        }


class LeadingCheckpointer(ShardWriter):
    """The checkpoints of rank 0, which decides when the ranks store their shards, and of a trial with one process."""

    def __init__(self, assignment: session_pb2.TrialAssignment, session: WorkerSession, gang: Gang | None) -> None:
        super().__init__(assignment, session)
        self._gang = gang
        self._size = max(1, assignment.rank.world_size)
        self._shards: dict[int, Message] = {}  # the answers of the ranks about the shards being stored
        self._storing: set[int] = set()  # the other ranks whose workers have the shards being stored
        self._waits = False  # whether the worker knows that this process waits for them
        self._complete: set[int] = set()  # the steps whose shards are in the store
        self._announced = -1  # the step whose shards the other ranks keep as the best

    def announce_best(self) -> None:
        """Tell the other ranks which step's shards they keep because the best report is of that step."""
        step = -1 if self._best is None or not self._best.sharded or self._best.step is None else self._best.step
        if step != self._announced:
            self._announced = step
            self._decide({"save": "best", "at": step})

    def gather(self, rank: int, answer: Message) -> None:
        """Handle a rank's answer about its shard. Once all ranks have stored theirs, offer the manifest."""
        offered = self._offered
        if offered is None or offered.step != answer["shard"] or rank in self._shards:
            return
        self._shards[rank] = answer
        if len(self._shards) < self._size:
            return
        failed = [(r, a["error"]) for r, a in sorted(self._shards.items()) if a["error"]]
        if failed:
            rank, error = failed[0]
            self.stored(session_pb2.SaveDone(step=answer["shard"], error=f"the shard of rank {rank}: {error}"))
        else:
            self._offer_manifest(offered)

    def offered_by(self, rank: int, step: int) -> None:
        """Record that another rank has offered its shard to its worker."""
        if self._offered is not None and self._offered.step == step:
            self._storing.add(rank)

    def report_wait(self) -> None:
        """Tell the worker once that this process waits only for the workers of the other ranks.

        A rank that has not offered its shard may hang, which the worker of rank 0 must notice.
        """
        if self._waits or self._offered is None or not self._offered.sharded:
            return
        if all(rank in self._storing or rank in self._shards for rank in range(1, self._size)):
            self._waits = True
            waiting = session_pb2.ProcessWaiting(fork=self._a.fork)
            self._session.send(session_pb2.AttachRequest(waiting=waiting))

    def stored(self, done: session_pb2.SaveDone) -> None:
        """Handle the worker's answer about a checkpoint, a manifest or a shard of this rank."""
        if done.HasField("shard"):
            self.gather(0, self._answer(done))
            return
        offered = self._offered
        super().stored(done)
        if offered is not None and offered.sharded and offered.step == done.step:
            if not done.error:
                self._complete.add(done.step)
            self._decide({"save": "done", "at": done.step, "failed": bool(done.error)})

    def _write(self, weights: _Weights) -> bool:
        if not weights.sharded:
            return super()._write(weights)
        if self._offered is not None:
            return False
        if weights.step in self._complete:  # its shards would replace those that the manifest names
            if weights is self._best:
                self._best = None
            return True
        for rank in range(1, self._size):
            if self._gang is not None and self._gang.has_ended(rank):
                raise CheckpointError(f"rank {rank} ended without its shard of step {weights.step}: {_EVERY_RANK}")
        self._begin(weights)
        self._shards, self._storing, self._waits = {}, set(), self._size == 1
        self._decide({"save": "store", "at": weights.step})
        self._offer_shard(weights)
        return True

    def _offer_manifest(self, weights: _Weights) -> None:
        answers = [self._shards[rank] for rank in range(self._size)]
        stored = [StoredShard(a["bytes"], a["sha256"], a["crc64nvme"]) for a in answers]
        self._waits = True  # now only for its worker, which knows that
        path = self._path(weights, "shards")
        Manifest(weights.metadata, all(a["directory"] for a in answers), stored).write(path)
        size = sum(shard.bytes for shard in stored)
        saved = session_pb2.ProcessSaved(path=path, metric=weights.metric, shards=self._size, shard_bytes=size)
        self._send(saved, weights)

    def _decide(self, decision: Message) -> None:
        if self._gang is not None:
            self._gang.decide(decision)


class FollowingCheckpointer(ShardWriter):
    """The shards of another rank, which are stored when rank 0 says so."""

    def __init__(
        self,
        assignment: session_pb2.TrialAssignment,
        session: WorkerSession,
        tell: Callable[[Message], None],
    ) -> None:
        super().__init__(assignment, session)
        self._tell = tell

    @property
    def pending(self) -> bool:
        """Return False, because rank 0 waits for this rank's shards."""
        return False

    def obey(self, decision: Message) -> None:
        """Do what rank 0 has decided about the shards of a step. Raises CheckpointError if this rank has none."""
        step = decision["at"]
        if decision["save"] == "best":
            self._best = self._find(step)
        elif decision["save"] == "store":
            weights = self._find(step)
            if weights is None:
                raise CheckpointError(f"rank {self._a.rank.rank} has no shard of step {step}: {_EVERY_RANK}")
            self._begin(weights)
            if weights is self._held:
                self._held = None
            self._offer_shard(weights)
            self._tell({"offered": step})
        elif self._offered is not None and self._offered.step == step:
            if decision["failed"]:
                self._held, self._best = self._held or self._offered, self._best or self._offered
            self._offered = None

    def stored(self, done: session_pb2.SaveDone) -> None:
        """Tell rank 0 the worker's answer about a shard."""
        if self._offered is not None and self._offered.step == done.step:
            self._tell(self._answer(done))

    def _find(self, step: int) -> _Weights | None:
        """Return this rank's shard of a step, or None."""
        for weights in (self._held, self._best, self._offered):
            if weights is not None and weights.step == step:
                return weights
        return None
