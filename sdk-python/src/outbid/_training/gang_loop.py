"""The part of a trial for a process of a gang: what rank 0 decides, and how the other ranks follow it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable

from outbid._core.errors import CheckpointError, one_line
from outbid._training.gang import Gang, Message, claim_ports, exit_lost, reduced
from outbid._training.gang_checkpointer import FollowingCheckpointer, LeadingCheckpointer
from outbid._training.session import WorkerSession
from outbid._training.trial_loop import TrialLoop
from outbid.v1 import bus_pb2, session_pb2

_JOIN = 600.0  # seconds that the ranks may take to start
_TRY = 0.1  # seconds between two attempts to connect to rank 0
_LONG = 5.0  # seconds of waiting after which a rank tells rank 0 where it waits
_NEWS = 1.0  # seconds after an error in which the loss of another rank may become known


class GangLoop(TrialLoop):
    """A `TrialLoop` that may be a process of a gang."""

    def __init__(self, assignment: session_pb2.TrialAssignment, session: WorkerSession) -> None:
        super().__init__(assignment, session)
        self._gang: Gang | None = None
        self._claim: socket.socket | None = None  # keeps the rendezvous port of a gang of one process
        self._until = self._a.until_step  # the target that all ranks know
        self._ends = threading.Lock()  # held for good by the thread that ends the trial in this process
        if self._a.rank.world_size > 1:
            self._gang = Gang(self._a.rank, self._session.inbox, self._peer_lost)
        self._follower: FollowingCheckpointer | None = None
        self._leader: LeadingCheckpointer | None = None
        if self._gang is not None and self._follows:
            self._checkpointer = self._follower = FollowingCheckpointer(assignment, session, self._gang.send)
        else:
            self._checkpointer = self._leader = LeadingCheckpointer(assignment, session, self._gang)

    @property
    def rank(self) -> int:
        """This process's rank in the trial's gang, from 0 to `world_size` - 1; 0 if it is the only process."""
        return self._a.rank.rank

    @property
    def world_size(self) -> int:
        """The number of processes of the trial's gang; 1 unless `Resources(processes="per_device")` starts several."""
        return max(1, self._a.rank.world_size)

    @property
    def _follows(self) -> bool:
        """Whether rank 0, which reports and saves, is another process."""
        return self._gang is not None and not self._gang.leads

    def _join(self) -> bool:
        """Wait until all ranks have started. Returns False if the trial has to end before."""
        with self._lock:
            if self._gang is None:
                if self._a.rank.port:
                    self._claim, port = claim_ports(self._a.rank.control_port, self._a.rank.port)
                    os.environ["MASTER_PORT"] = str(port)
                return True
            self._gang.open()
            end = time.monotonic() + _JOIN
            while missing := self._gang.missing():
                if time.monotonic() > end:
                    raise TimeoutError(f"rank {missing[0]} has not started within {_JOIN:.0f} s")
                self._wait(_TRY)
                if self._ending():
                    self._obeyed = True
                    return False
                self._gang.open()
            if self._gang.port:
                os.environ["MASTER_PORT"] = str(self._gang.port)
            return True

    def _boundary(self) -> bool:
        if self._gang is None:
            return super()._boundary()
        if self._gang.leads:
            on = super()._boundary()
            if self._leader is not None:
                self._leader.announce_best()
            self._until = self._target
            self._gang.decide({"step": self._step, "on": on, "until": self._target, "obeyed": self._obeyed})
            return on
        decision = self._decision("step")
        if decision is None:
            self._obeyed = self._obeyed or self._ending()
            return False
        if decision["step"] != self._step:
            raise RuntimeError(
                f"rank {self._gang.rank} has done step {self._step} and rank 0 step {decision['step']}: "
                "every rank of a gang must do and report the same steps"
            )
        self._until, self._obeyed = decision["until"], decision["obeyed"]
        return bool(decision["on"])

    def _agree(self, question: str, decide: Callable[[], bool]) -> bool:
        """Return rank 0's answer to a question that every rank asks in the same step."""
        if self._gang is None or self._gang.leads:
            answer = decide()
            if self._gang is not None:
                self._gang.decide({"answer": question, "is": answer})
            return answer
        decision = self._decision(question)
        return True if decision is None else bool(decision["is"])

    def _decision(self, kind: str) -> Message | None:
        """Wait for rank 0's next decision of a kind. Returns None if rank 0 has ended."""
        assert self._gang is not None
        decisions, asked = self._gang.decisions, time.monotonic()
        while True:
            while decisions:
                if self._obey_save():
                    asked = asked and time.monotonic()
                    continue
                found = decisions[0].get("answer", "step")
                if found == kind:
                    return decisions.popleft()
                if kind != "step":
                    raise RuntimeError(
                        f"rank {self._gang.rank} asks for {kind} and rank 0 does not: ask on every rank of a gang"
                    )
                decisions.popleft()  # only rank 0 has asked
            if self._gang.has_ended(0):
                return None
            if self._verdict in (bus_pb2.VERDICT_PAUSE, bus_pb2.VERDICT_STOP):
                self._gang.forward(self._verdict)
            if asked and time.monotonic() - asked > _LONG:
                asked = 0.0
                self._gang.send({"waits": self._gang.decided})
            self._wait(_LONG if asked else None)

    def _obey_save(self) -> bool:
        """Do what rank 0 has decided about shards, if that is its next decision."""
        assert self._gang is not None
        if self._follower is None or "save" not in self._gang.decisions[0]:
            return False
        self._follower.obey(self._gang.decisions.popleft())
        return True

    def _finish_saves(self) -> None:
        """Store the newest shards on rank 0, or else help it with that until it has ended."""
        gang = self._gang
        assert gang is not None
        with self._lock:
            self._drain()
            self._checkpointer.name(self._known)
            if self._leader is not None:
                if self._leader.shares and self._verdict != bus_pb2.VERDICT_STOP:
                    self._secure()
                return
            while self._follower is not None and self._follower.shares and self._verdict != bus_pb2.VERDICT_STOP:
                while gang.decisions:
                    if not self._obey_save():
                        gang.decisions.popleft()
                if gang.has_ended(0):
                    return
                gang.send({"waits": gang.decided})
                self._wait(None)

    def _reduce(self, how: str, step: int, values: dict[str, float]) -> dict[str, float]:
        """Return the values of all ranks, reduced, on rank 0; the other ranks send theirs to it."""
        gang = self._gang
        if gang is None:
            return values
        mine = {"reduce": how, "at": step, "values": values}
        if not gang.leads:
            gang.send(mine)
            return values
        found = [values]
        for rank in gang.others:
            while not gang.reduces[rank]:
                if gang.has_ended(rank) or gang.waiting.get(rank) == gang.decided:
                    raise RuntimeError(
                        f"report: rank {rank} does not report step {step} with reduce={how!r}; "
                        "every rank of a gang must"
                    )
                self._wait(None)
            theirs = gang.reduces[rank].popleft()
            if any(theirs[k] != mine[k] for k in ("reduce", "at")) or set(theirs["values"]) != set(values):
                raise RuntimeError(
                    f"report: {_described(0, mine)}, and {_described(rank, theirs)}: "
                    "every rank of a gang must report the same metrics at the same steps"
                )
            found.append(theirs["values"])
        return reduced(how, found)

    def _reachable(self) -> int:
        """Return the target, which in a gang is the same on all ranks."""
        if self._gang is None:
            self._drain()
            return self._target
        return self._until

    def _heard(self, rank: int, message: Message) -> None:
        assert self._gang is not None
        verdict = message.get("verdict")
        if "shard" in message and self._leader is not None:
            self._leader.gather(rank, message)
        elif "offered" in message and self._leader is not None:
            self._leader.offered_by(rank, message["offered"])
        elif verdict is None:
            self._gang.take(rank, message)
        elif self._verdict != bus_pb2.VERDICT_STOP:
            self._verdict, self._leaving = verdict, True  # no later order to train reverses it

    def _finish(self, error: str, trace: str) -> None:
        if self._gang is None:
            super()._finish(error, trace)
            if self._claim is not None:
                self._claim.close()
            return
        if error:
            # The error may only follow from the loss of another rank, which ends this process.
            time.sleep(_NEWS)
            self._checkpointer.abandon()
        else:
            try:
                self._finish_saves()
            except CheckpointError as failure:
                error = one_line(failure)
        self._ends.acquire()
        if not error:
            self._gang.say_goodbye()  # first, because the worker may kill this process once it knows of the end
        super()._finish(error, trace)
        self._gang.close()

    def _peer_lost(self, rank: int) -> None:
        """End this process, because another one of its gang is gone. Called by a thread of the gang."""
        if not self._ends.acquire(blocking=False):
            return  # the trial has ended here
        error = f"it lost contact with rank {rank}"
        ended = session_pb2.ProcessEnded(fork=self._fork, step=self._known, error=error, peer_lost=True)
        self._session.send(session_pb2.AttachRequest(ended=ended))
        exit_lost()


def _described(rank: int, reduce: Message) -> str:
    return (
        f"rank {rank} has {', '.join(sorted(reduce['values']))} at step {reduce['at']} with reduce={reduce['reduce']!r}"
    )
