"""A gang whose ranks save shards: four processes on two workers, which are killed within saves."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outbid as ob
from live_gang import DEADLINE, STEPS, Cluster, pace, running, started, trains, until

CHECKPOINT = 1 << 16  # bytes of a shard


def die_in_write(trial: ob.Trial, folder: Path) -> None:
    """Make the kernel kill this rank once it has written a part of its next shard, if the test asks for it."""
    if (limit := folder / f"limit-{trial.rank}").exists():
        limit.unlink()
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (CHECKPOINT // 2, CHECKPOINT // 2))


def hold_manifest(trial: ob.Trial, folder: Path) -> None:
    """Make rank 0 stop when all shards of its next checkpoint are stored, if the test asks for it."""
    if trial.rank == 0 and (folder / "hold").exists():
        from outbid._training.gang_checkpointer import LeadingCheckpointer

        def hold(*_: Any) -> None:
            (folder / "held").touch()
            threading.Event().wait()

        setattr(LeadingCheckpointer, "_offer_manifest", hold)  # noqa: B010


def restored(trial: ob.Trial) -> float:
    """Return the weight, and check that the checkpoint has the shard of every rank for the step that it names."""
    if trial.checkpoint_path is None:
        return 0.0
    if len(shards := trial.checkpoint_shards) == trial.world_size:
        shards = {trial.rank: shards[trial.rank]}
        assert trial.checkpoint()["rank"][0] == trial.rank
    for rank in shards:
        found = trial.checkpoint(shard=rank)
        assert (found["w"][0], found["rank"][0]) == (10.0 * trial.start_step, rank)
    assert trial.metadata == {"step": trial.start_step}
    return 10.0 * trial.start_step


def train(trial: ob.Trial) -> None:
    """Add 10 in each step."""
    folder = Path(os.environ["GANG_FOLDER"])
    w = restored(trial)
    with (folder / "processes").open("a") as file:
        start = [trial.rank, os.getpid(), os.environ["OUTBID_NODE"], trial.start_step, trial.world_size]
        print(json.dumps(start), file=file)
    pause = threading.Event()
    while not (folder / "begin").exists():
        pause.wait(0.02)
    for step in trial.steps():
        w += 10
        pace(folder, pause)
        die_in_write(trial, folder)
        hold_manifest(trial, folder)
        weights = {"w": np.full(CHECKPOINT // 8, w), "rank": np.array([trial.rank])}
        trial.save(weights, {"step": step}, sharded=True)
        trial.report(loss=w + trial.rank, reduce="mean")
    with (folder / "ends").open("a") as file:
        print(json.dumps([trial.rank, step]), file=file)


def train_directories(trial: ob.Trial) -> None:
    """Save a directory on every rank, and read those of all ranks."""
    folder = Path(os.environ["GANG_FOLDER"])
    if place := trial.checkpoint():
        names = sorted(file.name for file in place.iterdir())
        saved_by = int((place / "ranks").read_text())
        assert names == sorted(["ranks", *(f"{rank}.bin" for rank in range(saved_by))])
        assert {(place / f"{rank}.bin").read_text() for rank in range(saved_by)} == {str(trial.start_step)}
    with (folder / "processes").open("a") as file:
        start = [trial.rank, os.getpid(), os.environ["OUTBID_NODE"], trial.start_step, trial.world_size]
        print(json.dumps(start), file=file)
    pause = threading.Event()
    for step in trial.steps():
        pace(folder, pause)
        if trial.save_due:
            own = trial.scratch / f"save-{step}"
            own.mkdir()
            (own / f"{trial.rank}.bin").write_text(str(step))
            (own / "ranks").write_text(str(trial.world_size))
            trial.save(own, sharded=True)
        trial.report(loss=10.0 * step)


LEASE_ENDED = "no orders from the orchestrator for the duration of the lease"


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


def stored(cluster: Cluster, handle: Any) -> set[str]:
    """Return the names of a sweep's manifests and shards in the store."""
    files = (cluster.folder / "data").rglob("*-*.shards*")
    return {file.name for file in files if handle.id in file.parts}


def check(cluster: Cluster, handle: Any) -> None:
    """Check that the trial has ended, that no step was lost, and that its checkpoints have all shards."""
    cluster.begin()
    result = handle.wait(timeout=DEADLINE)
    assert (result.best.step, result.best.metric) == (STEPS, 10 * STEPS + 1.5)
    reports = {(r.step, r.metrics["loss"]) for r in result.reports()}
    assert sorted(reports) == [(k, 10 * k + 1.5) for k in range(1, STEPS + 1)]
    names = [Path(checkpoint.key).name for checkpoint in handle.trials()[0].checkpoints]
    assert names and all({name, *(f"{name}.{rank}" for rank in range(4))} <= stored(cluster, handle) for name in names)


def stopped_within_upload(cluster: Cluster) -> tuple[list[list[Any]], list[str]]:
    """Stop the server while both nodes upload shards, so that no upload ends; return the processes and the nodes.

    Processes whose next shards take longer than the workers' lease end without the server, and then it starts again.
    """
    for times in range(len(cluster.lines("processes")) // 4, 30):
        processes = started(cluster, times)
        nodes = [processes[0][2], processes[2][2]]
        ended = cluster.log.read_text().count(LEASE_ENDED)
        cluster.server.send_signal(signal.SIGSTOP)

        def lost(before: int = ended) -> bool:
            return cluster.log.read_text().count(LEASE_ENDED) > before

        def settled(both: list[str] = nodes, lost: Callable[[], bool] = lost) -> bool:
            return all(map(cluster.saving, both)) or lost()

        until(settled, "shards are being uploaded", cluster.log)
        if not lost():
            return processes, nodes
        cluster.server.send_signal(signal.SIGCONT)
    raise AssertionError("both nodes never uploaded within a lease")


def test_shards_are_stored_and_deleted(cluster: Cluster) -> None:
    handle = cluster.submit()
    check(cluster, handle)
    (kept,) = handle.trials()[0].checkpoints
    name = Path(kept.key).name
    whole = {name, *(f"{name}.{rank}" for rank in range(4))}
    until(lambda: stored(cluster, handle) == whole, "earlier shards are deleted", cluster.log)
    assert kept.size > 4 * CHECKPOINT and kept.shards == 4
    trial = handle.trials()[0]
    parts = trial.checkpoint()
    assert [(part["w"][0], part["rank"][0]) for part in parts] == [(10.0 * STEPS, rank) for rank in range(4)]
    assert trial.metadata() == {"step": STEPS}
    file = cluster.folder / "best.shards"
    subprocess.run(
        [os.environ["OUTBID_BIN"], "best", handle.id, "--server", cluster.info["api"], "--checkpoint", str(file)],
        check=True,
        timeout=DEADLINE,
    )
    names = sorted(f.name for f in cluster.folder.glob("best.shards*"))
    assert names == ["best.shards", *(f"best.shards.{rank}" for rank in range(4))]
    with pytest.raises(ob.CheckpointError, match="shards cannot be averaged"):
        handle.wait(timeout=DEADLINE).soup(k=1)
    assert not cluster.failures()


def test_killed_ranks_restart_the_gang(cluster: Cluster) -> None:
    handle = cluster.submit()
    victims = []
    for rank in range(4):
        processes = started(cluster, rank + 1)
        trains(cluster, handle, after=processes[0][3])
        victims.append(processes[rank])
        os.kill(processes[rank][1], signal.SIGKILL)
        assert started(cluster, rank + 2)[0][3] > processes[0][3]
    check(cluster, handle)
    for rank, (victim, failure) in enumerate(zip(victims, cluster.failures(), strict=True)):
        assert failure["detail"].startswith(f"rank {rank} on node {victim[2]}: killed by signal 9")


def test_kills_within_a_write(cluster: Cluster) -> None:
    handle = cluster.submit()
    for rank in range(4):
        (_, _, _, start, _), *_ = started(cluster, rank + 1)
        trains(cluster, handle, after=start)
        cluster.touch(f"limit-{rank}")
        assert started(cluster, rank + 2)[0][3] > start
    check(cluster, handle)
    for rank, failure in enumerate(cluster.failures()):
        assert f"rank {rank} on node" in failure["detail"] and "killed by signal 25" in failure["detail"]
    assert len(cluster.failures()) == 4


@pytest.mark.parametrize("victims", [["rank 0", "rank 1", "rank 2", "rank 3"], ["first", "second"], ["server"]])
def test_kills_within_an_upload(cluster: Cluster, victims: list[str]) -> None:
    handle = cluster.submit()
    started(cluster)
    for victim in victims:
        trains(cluster, handle, after=cluster.lines("processes")[-1][3])
        try:
            processes, nodes = stopped_within_upload(cluster)
            times = len(cluster.lines("processes")) // 4
            if victim.startswith("rank"):
                os.kill(processes[int(victim[-1])][1], signal.SIGKILL)
            else:
                cluster.kill({"first": nodes[0], "second": nodes[1]}.get(victim, "server"))
        finally:
            cluster.server.send_signal(signal.SIGCONT)
        if victim != "server":
            started(cluster, times + 1)
    check(cluster, handle)


def test_kills_before_the_manifest_is_stored(cluster: Cluster) -> None:
    handle = cluster.submit()
    for times, victim in enumerate((0, 2), 1):
        processes = started(cluster, times)
        trains(cluster, handle, after=processes[0][3])
        cluster.touch("hold")
        until((cluster.place / "held").exists, "all shards are stored", cluster.log)
        for name in ("hold", "held"):
            (cluster.place / name).unlink()
        kept = [checkpoint.step for checkpoint in handle.trials()[0].checkpoints]
        os.kill(processes[victim][1], signal.SIGKILL)
        assert started(cluster, times + 1)[0][3] == kept[-1]
    check(cluster, handle)


def test_pause_and_resume(cluster: Cluster) -> None:
    handle = cluster.submit()
    started(cluster)
    trains(cluster, handle)
    handle.pause()
    until(lambda: len(cluster.lines("ends")) == 4, "all ranks have ended", cluster.log)
    (step,) = {step for _, step in cluster.lines("ends")}
    until(lambda: not handle.trials()[0].leases, "the trial has paused", cluster.log)
    handle.resume()
    assert [p[3] for p in started(cluster, 2)] == [step] * 4
    check(cluster, handle)
    assert not cluster.failures()


def test_another_number_of_ranks_reads_the_shards(cluster: Cluster) -> None:
    handle = cluster.submit(devices=(1, 4))
    node = started(cluster)[2][2]
    trains(cluster, handle)
    cluster.workers[node].kill()
    cluster.workers[node].wait()
    cluster.begin()
    result = handle.wait(timeout=DEADLINE)
    assert result.best.metric == 10 * STEPS + 0.5
    assert [(p[3] > 0, p[4]) for p in cluster.lines("processes")[4:]] == [(True, 2), (True, 2)]


def test_directories_are_joined(tmp_path: Path) -> None:
    with running(tmp_path, train_directories) as cluster:
        handle = cluster.submit(devices=(1, 4))
        node = started(cluster)[2][2]
        trains(cluster, handle)
        cluster.workers[node].kill()
        cluster.workers[node].wait()
        cluster.begin()
        assert handle.wait(timeout=DEADLINE).best.metric == 10 * STEPS
        assert [(p[3] > 0, p[4]) for p in cluster.lines("processes")[4:]] == [(True, 2), (True, 2)]
        place = handle.trials()[0].checkpoint(STEPS)
        assert sorted(file.name for file in place.iterdir()) == ["0.bin", "1.bin", "ranks"]
        shutil.rmtree(place)
        cluster.worker(node)
