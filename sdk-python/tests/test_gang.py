"""The processes of a gang, as trials in threads of one process that are connected on the loopback address."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_gang import FORK, Ranks, Worker, ranks
from outbid import StopTrial, Trial
from outbid._training import gang, gang_loop
from outbid.v1 import session_pb2


@pytest.fixture(autouse=True, scope="module")
def no_exit() -> Iterator[None]:
    """Keep threads that outlive their test from ending this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gang_loop, "exit_lost", lambda: None)
        yield


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Count the processes that would exit because a rank is gone."""
    count = threading.Semaphore(0)
    monkeypatch.setattr(gang_loop, "exit_lost", count.release)
    monkeypatch.setattr(gang_loop, "_NEWS", 0.0)
    return count


def test_one_process_is_rank_0(tmp_path: Path) -> None:
    worker = Worker()
    trial = Trial(session_pb2.TrialAssignment(fork=FORK, config_json="{}", scratch=str(tmp_path)), worker)
    assert (trial.rank, trial.local_rank, trial.world_size, trial._join()) == (0, 0, 1, True)
    trial.report(loss=2.0, reduce="sum")
    assert [r.metrics["loss"] for r in worker.reports] == [2.0]
    with pytest.raises(ValueError, match="report: reduce must be one of 'mean', 'sum', 'min', 'max' or None"):
        trial.report(loss=2.0, reduce="median")


def test_all_ranks_do_the_same_steps(tmp_path: Path, lost: threading.Semaphore) -> None:
    with ranks(tmp_path, start_step=1, until_step=4) as r:
        r.workers[0].targets = [6]

        def train(trial: Trial) -> tuple[list[int], list[int]]:
            done, targets = [], []
            for step in trial.steps():
                targets.append(trial.until_step)
                trial.save({"w": np.array([trial.rank])})
                trial.note(rank=trial.rank)
                trial.report(loss=trial.rank, reduce="mean")
                done.append(step)
            trial._finish("", "")
            return done, targets

        assert r.run(train) == [([2, 3, 4, 5, 6], [4, 4, 4, 6, 6])] * 3
        assert [(x.step, x.metrics["loss"]) for x in r.workers[0].reports] == [(k, 1.0) for k in range(2, 7)]
        assert not r.workers[1].reports and not r.workers[2].reports
        kinds = [[m.WhichOneof("kind") for m in w.said] for w in r.workers]
        assert kinds == [["saved", "reached", "saved", "reached", "ended"], ["ended"], ["ended"]]
        assert all(w.said[-1].ended.ordered for w in r.workers)


@pytest.mark.parametrize("how", ["mean", "sum", "min", "max"])
def test_reductions(how: str) -> None:
    rows = [{"a": 1.0, "b": math.nan}, {"a": 4.0, "b": 2.0}]
    found = gang.reduced(how, rows)
    assert found["a"] == {"mean": 2.5, "sum": 5.0, "min": 1.0, "max": 4.0}[how]
    assert math.isnan(found["b"])


@pytest.mark.parametrize("asked", [0, 2])
@pytest.mark.parametrize("verdict", ["PAUSE", "STOP"])
def test_an_order_to_any_rank_ends_all_at_one_step(
    tmp_path: Path, lost: threading.Semaphore, asked: int, verdict: str
) -> None:
    with ranks(tmp_path) as r:

        def train(trial: Trial) -> int:
            for step in trial.steps():
                if trial.rank == asked and step == 5:
                    r.workers[asked].direct(verdict)
                if trial.should_stop:
                    return step
            return trial._step

        ends = r.run(train)
        assert ends[0] >= 5 and ends == [ends[0]] * 3


def test_a_rank_that_has_closed_keeps_no_connection(tmp_path: Path) -> None:
    with ranks(tmp_path, size=2) as r:
        first, second = (trial._gang for trial in r.trials)
        assert first is not None and second is not None
        first.open()
        second.close()
        second.open()  # another thread may still be connecting
        assert second.missing() == [0]


def test_reports_without_a_loop_end_all_ranks(tmp_path: Path, lost: threading.Semaphore) -> None:
    with ranks(tmp_path, until_step=3) as r:
        seen = [0, 0, 0]

        def train(trial: Trial) -> None:
            while True:
                seen[trial.rank] += 1
                trial.report(loss=1.0)

        assert [type(end) for end in r.run(train)] == [StopTrial] * 3
        assert seen == [3, 3, 3]


@pytest.mark.parametrize(
    ("train", "rank", "error"),
    [
        (
            lambda t: t.report({f"m{t.rank % 2}": 1}, reduce="sum"),
            0,
            "rank 1 has m1 at step 1 with reduce='sum'",
        ),
        (
            lambda t: t.report(m=1, reduce="sum" if t.rank else "min"),
            0,
            "rank 0 has m at step 1 with reduce='min'",
        ),
        (lambda t: t.rank or t.report(m=1, reduce="sum"), 0, "rank 1 does not report step 1 with reduce='sum'"),
        (lambda t: t.report(m=1, step=1 + t.rank % 2), 1, "rank 1 has done step 2 and rank 0 step 1: every rank"),
        (
            lambda t: t.report(m=1) if t.rank == 0 else t.should_stop,
            1,
            "rank 1 asks for should_stop and rank 0",
        ),
    ],
)
def test_ranks_that_differ(
    tmp_path: Path, lost: threading.Semaphore, train: Callable[[Trial], Any], rank: int, error: str
) -> None:
    with ranks(tmp_path, size=2) as r:

        def whole(trial: Trial) -> Any:
            try:
                train(trial)
            except Exception as failure:
                trial._finish(str(failure), "")
                return failure
            trial._finish("", "")
            return None

        assert error in str(r.run(whole, [rank])[0])


def test_a_lost_rank_ends_the_others(tmp_path: Path, lost: threading.Semaphore) -> None:
    with ranks(tmp_path) as r:
        r.run(lambda trial: None)
        gone = r.trials[2]._gang
        assert gone is not None
        gone.close()
        for _ in range(2):
            assert lost.acquire(timeout=30)
        for worker in r.workers[:2]:
            ended = worker.said[-1].ended
            assert ended.peer_lost
            assert ended.error == "it lost contact with rank 2"
        assert not r.workers[2].said


@pytest.mark.parametrize("ended", [0, 2])
def test_a_process_that_is_killed_after_its_end_is_not_missed(
    tmp_path: Path, lost: threading.Semaphore, monkeypatch: pytest.MonkeyPatch, ended: int
) -> None:
    with ranks(tmp_path) as r:
        gone = r.trials[ended]._gang
        assert gone is not None
        send = r.workers[ended].send

        def kill(message: session_pb2.AttachRequest) -> None:
            send(message)
            gone.close()

        monkeypatch.setattr(r.workers[ended], "send", kill)

        def train(trial: Trial) -> None:
            mine = trial._gang
            assert mine is not None
            if trial.rank == ended:
                trial._finish("", "")
            elif 0 in (trial.rank, ended):  # it is connected with the rank that ends
                with trial._lock:
                    while not mine.has_ended(ended):
                        trial._wait(None)

        r.run(train)


def test_a_stranger_is_not_admitted(tmp_path: Path, lost: threading.Semaphore) -> None:
    with ranks(tmp_path, size=2) as r:
        leader, follower = (trial._gang for trial in r.trials)
        assert leader is not None and follower is not None
        leader.open()
        follower._key = b"guess"
        follower.open()
        assert follower.missing() == [0]
        assert leader.missing() == [1]
        follower._key = b"s"
        assert r.run(lambda trial: trial.rank) == [0, 1]


@pytest.mark.parametrize("taken", ["control", "rendezvous"])
def test_gangs_of_one_host_have_different_ports(
    tmp_path: Path, lost: threading.Semaphore, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    monkeypatch.setenv("MASTER_PORT", "1")
    with ranks(tmp_path) as r:
        with socket.create_server(("", r.control if taken == "control" else r.port)):
            # Another gang claims only the control port, until its training code opens the rendezvous port.
            (port,) = {int(port) for port in r.run(lambda trial: os.environ["MASTER_PORT"])}
        assert r.port < port < r.port + gang.PORTS  # the next one, unless another program of this machine has it
        assert {trial._gang.port for trial in r.trials if trial._gang} == {port}


def test_a_gang_of_one_process_has_its_own_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "1")
    gangs = Ranks(tmp_path, 1).trials + Ranks(tmp_path / "0", 1).trials
    gangs[1]._a.rank.CopyFrom(gangs[0]._a.rank)
    found = []
    for trial in gangs:
        assert trial._join()
        found.append(int(os.environ["MASTER_PORT"]))
    port = gangs[0]._a.rank.port
    assert port <= found[0] < found[1] < port + gang.PORTS
    for trial in gangs:
        trial._finish("", "")


def test_strangers_are_bounded(tmp_path: Path, lost: threading.Semaphore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang, "_PATIENCE", 60.0)  # so that no stranger is dropped because it took too long
    before = threading.active_count()
    with ranks(tmp_path, size=2) as r, contextlib.ExitStack() as strangers:
        leader = r.trials[0]._gang
        assert leader is not None
        leader.open()
        connections = []
        for _ in range(300):
            connection = strangers.enter_context(socket.create_connection(("127.0.0.1", r.control), timeout=30))
            connections.append(connection)
        waiting = [connection for connection in connections if connection.recv(1)]
        assert len(waiting) == gang._UNPROVEN
        assert threading.active_count() <= before + gang._UNPROVEN + 1
        assert leader.missing() == [1]
        waiting[0].close()  # a rank that tries again finds the place that becomes free
        assert r.run(lambda trial: trial.rank) == [0, 1]


def test_a_slow_stranger_is_dropped(tmp_path: Path, lost: threading.Semaphore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang, "_PATIENCE", 0.5)
    with ranks(tmp_path, size=2) as r:
        leader = r.trials[0]._gang
        assert leader is not None
        leader.open()
        with socket.create_connection(("127.0.0.1", r.control), timeout=30) as stranger:
            gang._exactly(stranger, gang._PROOF)
            began, pause = time.monotonic(), threading.Event()
            with contextlib.suppress(OSError):  # it sends a byte before each of its reads would time out
                while time.monotonic() < began + 30:
                    stranger.sendall(b"x")
                    pause.wait(0.1)
            assert time.monotonic() - began < 10


def test_a_rank_that_gives_up_joining_is_not_lost(
    tmp_path: Path, lost: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    prove, attempts = gang._prove, []

    class Silent:
        """A connection on which a rank does not say that it has joined."""

        def __init__(self, connection: socket.socket) -> None:
            self.settimeout, self.recv = connection.settimeout, connection.recv
            self._send = connection.sendall

        def sendall(self, data: bytes) -> None:
            if data == gang._JOINED:
                raise TimeoutError
            self._send(data)

    def gives_up_once(connection: Any, key: bytes, rank: int) -> int | None:
        attempts.append(rank)
        return prove(connection if len(attempts) > 1 else Silent(connection), key, rank)  # type: ignore[arg-type]

    monkeypatch.setattr(gang, "_prove", gives_up_once)
    with ranks(tmp_path, size=2) as r:
        assert r.run(lambda trial: trial.rank) == [0, 1]
        assert not r.trials[0]._gang.missing()  # type: ignore[union-attr]
    assert len(attempts) == 2
    assert not lost.acquire(blocking=False)


def test_a_trial_may_end_before_all_ranks_have_started(tmp_path: Path) -> None:
    with ranks(tmp_path) as r:
        r.workers[0].direct("STOP")
        assert not r.trials[0]._join()
