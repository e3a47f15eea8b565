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
from live_gang import DEADLINE, STEPS, Cluster, pace, running, started, trains, until

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
        pace(folder, pause)
        assert round(w) == 10 * step
        die_in_write(trial, folder)
        trial.save({"w": np.full(CHECKPOINT // 8, w)})
        trial.report(loss=w + trial.rank, mine=trial.rank, reduce="mean")
    with (folder / "ends").open("a") as file:
        print(json.dumps([trial.rank, step]), file=file)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster."""
    with running(tmp_path_factory.mktemp("gangs"), train) as cluster:
        yield cluster


@pytest.fixture
def cluster(servers: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """Return the cluster."""
    with servers.testing(tmp_path):
        yield servers


def check(cluster: Cluster, handle: Any) -> None:
    """Check that the trial has ended, and that no step was lost or done twice."""
    cluster.begin()
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


@pytest.mark.parametrize("stage", ["first", "training"])
def test_killed_ranks_restart_the_gang(cluster: Cluster, stage: str) -> None:
    handle = cluster.submit()
    victims = []
    for rank in range(4):
        processes = started(cluster, rank + 1)
        if stage == "training":
            trains(cluster, handle, after=processes[0][3])
        victims.append(processes[rank])
        os.kill(processes[rank][1], signal.SIGKILL)
        again = started(cluster, rank + 2)
        assert (again[0][3] > processes[0][3]) is (stage == "training")
    check(cluster, handle)
    for rank, (victim, failure) in enumerate(zip(victims, cluster.failures(), strict=True)):
        assert failure["detail"].startswith(f"rank {rank} on node {victim[2]}: killed by signal 9")
        assert failure["node"] == victim[2]


@pytest.mark.parametrize("place", [0, 2])
def test_killed_workers_restart_the_gang(cluster: Cluster, place: int) -> None:
    handle = cluster.submit()
    nodes = []
    for times in (1, 2):
        processes = started(cluster, times)
        if times == 2:
            trains(cluster, handle)
        nodes.append(processes[place][2])
        cluster.kill(nodes[-1])
        again = started(cluster, times + 1)
        assert (again[0][3] > 0) is (times == 2)
    check(cluster, handle)
    for node, failure in zip(nodes, cluster.failures(), strict=True):
        assert failure["kind"] == "FAILURE_KIND_NODE_LOST"
        assert failure["node"] == node


def test_a_server_that_is_killed_before_the_gang_starts_loses_no_step(cluster: Cluster) -> None:
    node = cluster.workers["b"]
    node.kill()
    node.wait()
    handle = cluster.submit()
    cluster.kill("server")
    cluster.worker("b")
    started(cluster)
    check(cluster, handle)


def test_a_server_that_is_killed_loses_no_step(cluster: Cluster) -> None:
    handle = cluster.submit()
    started(cluster)
    cluster.kill("server")
    trains(cluster, handle)
    cluster.kill("server")
    cluster.begin()
    until(lambda: len(cluster.lines("ends")) == 4, "all ranks have ended", cluster.log)
    cluster.kill("server")
    check(cluster, handle)
    assert not cluster.failures()


def test_kills_within_an_upload(cluster: Cluster) -> None:
    handle = cluster.submit()
    times = 1
    for victim in ("server", "rank", "worker"):
        processes = started(cluster, times)
        trains(cluster, handle, after=processes[0][3])
        _, pid, node, *_ = processes[0]
        cluster.server.send_signal(signal.SIGSTOP)  # so that no upload ends
        try:
            until(lambda node=node: cluster.saving(node), "a checkpoint is being uploaded", cluster.log)  # type: ignore[misc]
            if victim == "rank":
                os.kill(pid, signal.SIGKILL)
            else:
                cluster.kill("server" if victim == "server" else node)
        finally:
            cluster.server.send_signal(signal.SIGCONT)
        times += victim != "server"
    started(cluster, times)
    check(cluster, handle)


def test_a_kill_within_a_write(cluster: Cluster) -> None:
    handle = cluster.submit()
    started(cluster)
    trains(cluster, handle)
    cluster.touch("limit")
    assert started(cluster, 2)[0][3] > 0
    check(cluster, handle)
    (failure,) = cluster.failures()
    assert "rank 0 on node" in failure["detail"] and "killed by signal 25" in failure["detail"]


def test_pause_and_resume(cluster: Cluster) -> None:
    handle = cluster.submit()
    started(cluster)
    trains(cluster, handle)
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
    trains(cluster, handle)
    handle.stop()
    until(lambda: len(cluster.lines("ends")) == 4, "all ranks have ended", cluster.log)
    assert len({step for _, step in cluster.lines("ends")}) == 1
    assert not cluster.failures()


def test_a_gang_continues_to_its_next_target(cluster: Cluster) -> None:
    cluster.begin()
    handle = cluster.submit(ob.SuccessiveHalving(trials=2, eta=2, min_steps=10, max_steps=20))
    result = handle.wait(timeout=DEADLINE)
    assert sorted(t.step for t in result.trials) == [10, 20]
    assert len({(r.trial, r.step) for r in result.reports()}) == len(result.reports()) == 30
    assert not cluster.failures()


def test_a_gang_on_one_node(cluster: Cluster) -> None:
    cluster.begin()
    result = cluster.submit(devices=2, spread=False).wait(timeout=DEADLINE)
    assert result.best.metric == 10 * STEPS + 0.5
    assert len({p[2] for p in cluster.lines("processes")}) == 1
    assert [p[4] for p in cluster.lines("processes")] == [2, 2]


def test_an_elastic_gang_shrinks(cluster: Cluster) -> None:
    handle = cluster.submit(devices=(1, 4))
    node = started(cluster)[2][2]
    trains(cluster, handle)
    cluster.workers[node].kill()
    cluster.workers[node].wait()
    cluster.begin()
    result = handle.wait(timeout=DEADLINE)
    assert result.best.metric == 10 * STEPS + 0.5
    assert [p[4] for p in cluster.lines("processes")[4:]] == [2, 2]
    assert [p[3] > 0 for p in cluster.lines("processes")[4:]] == [True, True]
