"""A function as a gang: four processes on two workers, whose processes and workers are killed."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outbid as ob
from live_gang import DEADLINE, STEPS, Cluster, running, started, until

CHECKPOINT = 1 << 16  # bytes of the weights


def ring(trial: ob.Trial) -> Callable[[float], float]:
    """Return an all-reduce over sockets, with the rendezvous of torchrun's variables."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if trial.rank:
        pause = threading.Event()
        while True:
            try:
                link = socket.create_connection((host, port), timeout=DEADLINE)
                break
            except OSError:
                pause.wait(0.02)

        def follow(value: float) -> float:
            link.sendall(struct.pack("d", value))
            return float(struct.unpack("d", link.recv(8, socket.MSG_WAITALL))[0])

        return follow
    server = socket.create_server(("", port))
    links = [server.accept()[0] for _ in range(trial.world_size - 1)]

    def lead(value: float) -> float:
        total: float = value + sum(struct.unpack("d", link.recv(8, socket.MSG_WAITALL))[0] for link in links)
        for link in links:
            link.sendall(struct.pack("d", total))
        return total

    return lead


def die_in_write(trial: ob.Trial, folder: Path) -> None:
    """Make the kernel kill rank 0 once it has written a part of its next checkpoint, if the test asks for it."""
    if trial.rank == 0 and (folder / "limit").exists():
        (folder / "limit").unlink()
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (CHECKPOINT // 2, CHECKPOINT // 2))


def train(trial: ob.Trial) -> None:
    """Add what the ranks agree on; the sum shows whether a step was lost or done twice."""
    folder = Path(os.environ["GANG_FOLDER"])
    with (folder / "processes").open("a") as file:
        start = [trial.rank, os.getpid(), os.environ["OUTBID_NODE"], trial.start_step, trial.world_size]
        print(json.dumps([*start, os.environ["RANK"], os.environ["LOCAL_RANK"]]), file=file)
    pause = threading.Event()
    while not (folder / "begin").exists():
        pause.wait(0.02)
    all_reduce = ring(trial)
    w = float((trial.checkpoint() or {"w": np.zeros(1)})["w"][0])
    for step in trial.steps():
        total = trial.world_size * (trial.world_size + 1) / 2
        w += all_reduce(trial.rank + 1.0) * 10 / total
        pause.wait(0.02)
        assert round(w) == 10 * step
        die_in_write(trial, folder)
        trial.save({"w": np.full(CHECKPOINT // 8, w)})
        trial.report(loss=w + trial.rank, mine=trial.rank, reduce="mean")
    with (folder / "ends").open("a") as file:
        print(json.dumps([trial.rank, step]), file=file)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Run a cluster."""
    with running(tmp_path, train) as cluster:
        yield cluster


def check(cluster: Cluster, handle: Any) -> None:
    """Check that the trial has ended, and that no step was lost or done twice."""
    cluster.touch("begin")
    result = handle.wait(timeout=DEADLINE)
    assert result.best.step == STEPS
    assert result.best.metric == 10 * STEPS + 1.5  # the mean over ranks
    # The steps after the last checkpoint are reported again, with the same values.
    reports = {(r.step, r.metrics["loss"], r.metrics["mine"]) for r in result.reports()}
    assert sorted(reports) == [(k, 10 * k + 1.5, 1.5) for k in range(1, STEPS + 1)]
    # The sweep ends when rank 0 has reached the last step, maybe before the functions have returned.
    ends = [[rank, STEPS] for rank in range(4)]
    until(lambda: sorted(cluster.lines("ends")[-4:]) == ends, "all ranks have ended", cluster.log)


def test_ranks_meet_and_reduce(cluster: Cluster) -> None:
    handle = cluster.submit()
    processes = started(cluster)
    assert [p[0] for p in processes] == [0, 1, 2, 3] == [int(p[5]) for p in processes]
    assert len({p[1] for p in processes}) == 4
    assert [p[6] for p in processes] == ["0", "1", "0", "1"]
    assert len({p[2] for p in processes[:2]}) == 1 != len({p[2] for p in processes})
    check(cluster, handle)


@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("stage", ["first", "training"])
def test_a_killed_rank_restarts_the_gang(cluster: Cluster, rank: int, stage: str) -> None:
    handle = cluster.submit()
    victim = started(cluster)[rank]
    if stage == "training":
        cluster.touch("begin")
        until(lambda: bool(handle.trials()[0].checkpoints), "a checkpoint is stored", cluster.log)
    os.kill(victim[1], signal.SIGKILL)
    again = started(cluster, 2)
    assert (again[0][3] > 0) is (stage == "training")
    check(cluster, handle)
    (failure,) = cluster.failures()
    assert failure["detail"].startswith(f"rank {rank} on node {victim[2]}: killed by signal 9")
    assert failure["node"] == victim[2]


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("stage", ["first", "training"])
def test_a_killed_worker_restarts_the_gang(cluster: Cluster, place: int, stage: str) -> None:
    handle = cluster.submit()
    node = started(cluster)[place][2]
    if stage == "training":
        cluster.touch("begin")
        until(lambda: bool(handle.trials()[0].checkpoints), "a checkpoint is stored", cluster.log)
    cluster.kill(node)
    started(cluster, 2)
    check(cluster, handle)
    (failure,) = cluster.failures()
    assert failure["kind"] == "FAILURE_KIND_NODE_LOST"
    assert failure["node"] == node


@pytest.mark.parametrize("stage", ["queued", "first", "training", "last"])
def test_a_killed_server_loses_no_step(cluster: Cluster, stage: str) -> None:
    if stage == "queued":
        node = cluster.workers["b"]
        node.kill()
        node.wait()
    handle = cluster.submit()
    if stage == "queued":
        cluster.kill("server")
        cluster.worker("b")
        started(cluster)
    else:
        started(cluster)
        if stage == "training":
            cluster.touch("begin")
            until(lambda: bool(handle.trials()[0].checkpoints), "a checkpoint is stored", cluster.log)
        if stage == "last":
            cluster.touch("begin")
            until(lambda: len(cluster.lines("ends")) == 4, "all ranks have ended", cluster.log)
        cluster.kill("server")
    check(cluster, handle)


@pytest.mark.parametrize("victim", ["rank", "worker", "server"])
def test_a_kill_within_an_upload(cluster: Cluster, victim: str) -> None:
    handle = cluster.submit()
    _, pid, node, *_ = started(cluster)[0]
    cluster.touch("begin")
    until(lambda: bool(handle.trials()[0].checkpoints), "a checkpoint is stored", cluster.log)
    cluster.server.send_signal(signal.SIGSTOP)  # so that no upload ends
    try:
        until(lambda: cluster.saving(node), "a checkpoint is being uploaded", cluster.log)
        if victim == "rank":
            os.kill(pid, signal.SIGKILL)
        else:
            cluster.kill("server" if victim == "server" else node)
    finally:
        cluster.server.send_signal(signal.SIGCONT)
    check(cluster, handle)


def test_a_kill_within_a_write(cluster: Cluster) -> None:
    handle = cluster.submit()
    started(cluster)
    cluster.touch("begin")
    until(lambda: bool(handle.trials()[0].checkpoints), "a checkpoint is stored", cluster.log)
    cluster.touch("limit")
    assert started(cluster, 2)[0][3] > 0
    check(cluster, handle)
    (failure,) = cluster.failures()
    assert "rank 0 on node" in failure["detail"] and "killed by signal 25" in failure["detail"]


def test_pause_and_resume(cluster: Cluster) -> None:
    handle = cluster.submit()
    started(cluster)
    cluster.touch("begin")
    until(lambda: handle.trials()[0].step >= 5, "it trains", cluster.log)
    handle.pause()
    until(lambda: len(cluster.lines("ends")) == 4, "all ranks have ended", cluster.log)
    ends = cluster.lines("ends")
    assert len({step for _, step in ends}) == 1
    until(lambda: not handle.trials()[0].leases, "the trial has paused", cluster.log)
    handle.resume()
    assert [p[3] for p in started(cluster, 2)] == [ends[0][1]] * 4
    check(cluster, handle)
    assert not cluster.failures()


def test_stop(cluster: Cluster) -> None:
    handle = cluster.submit()
    started(cluster)
    cluster.touch("begin")
    until(lambda: handle.trials()[0].step >= 5, "it trains", cluster.log)
    handle.stop()
    until(lambda: len(cluster.lines("ends")) == 4, "all ranks have ended", cluster.log)
    assert len({step for _, step in cluster.lines("ends")}) == 1
    assert not cluster.failures()


def test_a_gang_continues_to_its_next_target(cluster: Cluster) -> None:
    cluster.touch("begin")
    handle = cluster.submit(ob.SuccessiveHalving(trials=2, eta=2, min_steps=10, max_steps=20))
    result = handle.wait(timeout=DEADLINE)
    assert sorted(t.step for t in result.trials) == [10, 20]
    assert len({(r.trial, r.step) for r in result.reports()}) == len(result.reports()) == 30
    assert not cluster.failures()


def test_a_gang_on_one_node(cluster: Cluster) -> None:
    cluster.touch("begin")
    result = cluster.submit(devices=2, spread=False).wait(timeout=DEADLINE)
    assert result.best.metric == 10 * STEPS + 0.5
    assert len({p[2] for p in cluster.lines("processes")}) == 1
    assert [p[4] for p in cluster.lines("processes")] == [2, 2]


def test_an_elastic_gang_shrinks(cluster: Cluster) -> None:
    handle = cluster.submit(devices=(1, 4))
    node = started(cluster)[2][2]
    cluster.touch("begin")
    until(lambda: bool(handle.trials()[0].checkpoints), "a checkpoint is stored", cluster.log)
    cluster.workers[node].kill()
    cluster.workers[node].wait()
    result = handle.wait(timeout=DEADLINE)
    assert result.best.metric == 10 * STEPS + 0.5
    assert [p[4] for p in cluster.lines("processes")[4:]] == [2, 2]
    assert [p[3] > 0 for p in cluster.lines("processes")[4:]] == [True, True]
    cluster.worker(node)
