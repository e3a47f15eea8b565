"""A gang whose processes are trials in threads of one process, connected on the loopback address."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outbid import StopTrial, Trial
from outbid._training.session import Incoming
from outbid.v1 import bus_pb2, event_pb2, node_pb2, session_pb2

FORK = node_pb2.ForkRef(sweep="s-1", trial=0, lease_id=1)


class Worker:
    """The session of one rank; `said` is what it has sent to its worker."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self.said: list[session_pb2.AttachRequest] = []
        self.reports: list[event_pb2.Report] = []
        self.targets: list[int] = []

    def report(self, fork: node_pb2.ForkRef, report: event_pb2.Report) -> None:
        self.reports.append(report)

    def send(self, message: session_pb2.AttachRequest) -> None:
        self.said.append(message)
        if message.HasField("saved"):
            self.inbox.put(session_pb2.AttachResponse(save_done=self.store(message.saved)))
        if message.HasField("reached"):
            self.direct("TRAIN", self.targets.pop(0)) if self.targets else self.direct("STOP")

    def store(self, saved: session_pb2.ProcessSaved) -> session_pb2.SaveDone:
        """Store a checkpoint."""
        return session_pb2.SaveDone(fork=FORK, step=saved.step)

    def direct(self, verdict: str, until_step: int = 0) -> None:
        order = session_pb2.Directive(fork=FORK, until_step=until_step)
        order.verdict = bus_pb2.Verdict.Value(f"VERDICT_{verdict}")
        self.inbox.put(session_pb2.AttachResponse(directive=order))


class Ranks:
    """The trials of a gang."""

    def __init__(self, tmp_path: Path, size: int, workers: Sequence[Worker] = (), **fields: Any) -> None:
        with socket.create_server(("", 0)) as control, socket.create_server(("", 0)) as rendezvous:
            self.control, self.port = control.getsockname()[1], rendezvous.getsockname()[1]
        self.workers = workers or [Worker() for _ in range(size)]
        self.trials = []
        for rank, worker in enumerate(self.workers):
            (tmp_path / str(rank)).mkdir()
            where = session_pb2.GangRank(
                rank=rank,
                world_size=size,
                local_rank=rank,
                address="127.0.0.1",
                control_port=self.control,
                port=self.port,
                secret="s",
            )
            assignment = session_pb2.TrialAssignment(
                fork=FORK, config_json="{}", scratch=str(tmp_path / str(rank)), metric="loss", rank=where, **fields
            )
            self.trials.append(Trial(assignment, worker))

    def run(self, function: Callable[[Trial], Any], ranks: Sequence[int] = ()) -> list[Any]:
        """Run a function on all ranks, and return what it returns or raises on these, or on all."""
        found: dict[int, queue.SimpleQueue[Any]] = {trial.rank: queue.SimpleQueue() for trial in self.trials}

        def one(trial: Trial) -> None:
            assert trial._join()
            try:
                found[trial.rank].put(function(trial))
            except (Exception, StopTrial) as failure:
                found[trial.rank].put(failure)

        for trial in self.trials:
            threading.Thread(target=one, args=(trial,), daemon=True).start()
        return [found[rank].get(timeout=30) for rank in ranks or found]


@contextmanager
def ranks(tmp_path: Path, size: int = 3, **fields: Any) -> Iterator[Ranks]:
    found = Ranks(tmp_path, size, **fields)
    try:
        yield found
    finally:
        for trial in reversed(found.trials):
            assert trial._gang is not None
            trial._gang.say_goodbye()
            trial._gang.close()
