"""Checkpoints with shards, saved and restored by the ranks of a gang."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_gang import FORK, Ranks, Worker, ranks
from outbid import CheckpointError, Trial
from outbid._training import gang_loop, tensors, trial_loop
from outbid._training.manifest import is_manifest
from outbid.v1 import session_pb2


class Store:
    """The files that the workers of a gang have stored. A checkpoint counts once its manifest is stored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.shards: dict[tuple[int, int], Path] = {}
        self.complete: dict[int, Path] = {}
        self.metrics: dict[int, float] = {}

    def put(self, saved: session_pb2.ProcessSaved, rank: int) -> session_pb2.SaveDone:
        """Store a file, and return the worker's answer."""
        done = session_pb2.SaveDone(fork=FORK, step=saved.step)
        data = Path(saved.path).read_bytes()
        path = self.folder / f"{saved.step}-{rank}-{'shard' if saved.HasField('shard') else 'manifest'}"
        path.write_bytes(data)
        with self.lock:
            if saved.HasField("shard"):
                assert saved.step not in self.complete
                self.shards[saved.step, rank] = path
                done.shard.rank, done.shard.bytes = rank, len(data)
                done.shard.sha256 = hashlib.sha256(data).hexdigest()
                return done
            assert rank == 0
            named = json.loads(data)["shards"]
            for i, shard in enumerate(named):
                assert hashlib.sha256(self.shards[saved.step, i].read_bytes()).hexdigest() == shard["sha256"]
            assert (saved.shards, saved.shard_bytes) == (len(named), sum(s["bytes"] for s in named))
            self.complete[saved.step] = path
            self.metrics[saved.step] = saved.metric
        return done

    def start(self, step: int, ranks: list[int] | None = None) -> dict[str, Any]:
        """Return the fields of an assignment that starts from a checkpoint."""
        files = [
            session_pb2.ShardFile(rank=rank, path=str(path))
            for (at, rank), path in self.shards.items()
            if at == step and (ranks is None or rank in ranks)
        ]
        return {"start_step": step, "checkpoint_path": str(self.complete[step]), "start_shards": files}


class Storing(Worker):
    """A worker that stores checkpoints, except for the first `failures` of them."""

    def __init__(self, store: Store, rank: int, failures: int = 0) -> None:
        super().__init__()
        self._store, self._rank, self._failures = store, rank, failures

    def store(self, saved: session_pb2.ProcessSaved) -> session_pb2.SaveDone:
        if self._failures:
            self._failures -= 1
            return session_pb2.SaveDone(fork=FORK, step=saved.step, error="the disk is full", shard=saved.shard)
        return self._store.put(saved, self._rank)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep a lost rank from ending this process, and do not wait after errors."""
    monkeypatch.setattr(gang_loop, "exit_lost", lambda: None)
    monkeypatch.setattr(gang_loop, "_NEWS", 0.0)
    monkeypatch.setattr(trial_loop, "_FIRST_RETRY", 0.01)
    yield


@pytest.fixture
def store(tmp_path: Path) -> Store:
    folder = tmp_path / "store"
    folder.mkdir()
    return Store(folder)


def gang(tmp_path: Path, store: Store, size: int = 3, failures: int = 0, **fields: Any) -> Any:
    """Start a gang; the last rank's worker fails to store a number of shards."""
    workers = [Storing(store, rank, failures if rank == size - 1 else 0) for rank in range(size)]
    folder = tmp_path / f"gang-{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return ranks(folder, size, workers=workers, sharded_checkpoints=True, **fields)


def weights(trial: Trial, step: int) -> dict[str, Any]:
    return {"w": np.full(4, 100 * step + trial.rank)}


def train(trial: Trial) -> None:
    for step in trial.steps():
        trial.save(weights(trial, step), {"step": step}, sharded=True)
        trial.report(loss=abs(step - 2))
    trial._finish("", "")


def restore(r: Ranks, **given: Any) -> list[Any]:
    """Return what each rank restores, or why it cannot."""

    def one(trial: Trial) -> Any:
        try:
            found = trial.checkpoint(**given)
        except CheckpointError as failure:
            return failure
        return int(found["w"][0]) if isinstance(found, dict) else found

    return [one(trial) for trial in r.trials]


def test_every_rank_gets_its_shard_back(tmp_path: Path, store: Store) -> None:
    with gang(tmp_path, store, until_step=4) as r:
        r.workers[0].targets = [6]
        assert r.run(train) == [None] * 3
        assert all(not w.said[-1].ended.error for w in r.workers)
    assert sorted(store.complete) == [4, 6]
    assert store.metrics == {4: 2.0, 6: 4.0}
    assert is_manifest(store.complete[6])
    with gang(tmp_path, store, **store.start(6)) as r:
        assert restore(r) == [600, 601, 602]
        assert r.trials[0].metadata == {"step": 6}
        assert restore(r, shard=1) == [601] * 3


def test_a_shard_that_is_not_stored_delays_the_checkpoint(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    with gang(tmp_path, store, failures=2, until_step=4) as r:
        assert r.run(train) == [None] * 3
    assert sorted(store.complete) == [4]
    kinds = [kind for m in r.workers[0].said if (kind := m.WhichOneof("kind")) != "waiting"]
    assert kinds == ["saved"] * 4 + ["reached", "ended"]  # three times its shard, and one manifest
    assert "step 4 is not stored yet: the shard of rank 2: the disk is full" in capsys.readouterr().err


class Slow(Storing):
    """A worker that stores its shards only once `go` is set."""

    def __init__(self, store: Store, rank: int, go: threading.Event) -> None:
        super().__init__(store, rank)
        self._go = go

    def send(self, message: session_pb2.AttachRequest) -> None:
        if not message.HasField("saved"):
            super().send(message)
            return
        self.said.append(message)

        def later() -> None:
            assert self._go.wait(30)
            self.inbox.put(session_pb2.AttachResponse(save_done=self.store(message.saved)))

        threading.Thread(target=later, daemon=True).start()


class Leading(Storing):
    """The worker of rank 0, which sets `told` when it learns that rank 0 waits for other workers."""

    def __init__(self, store: Store, told: threading.Event) -> None:
        super().__init__(store, 0)
        self._told = told

    def send(self, message: session_pb2.AttachRequest) -> None:
        super().send(message)
        if message.HasField("waiting"):
            self._told.set()


def test_rank_0_says_that_it_waits_for_other_workers(tmp_path: Path, store: Store) -> None:
    told, late = threading.Event(), threading.Event()

    def one(trial: Trial) -> None:
        for step in trial.steps():
            if trial.rank == 1:
                assert late.wait(30)  # this rank may hang
            trial.save(weights(trial, step), sharded=True)
            trial.report(loss=1.0)
            if trial.rank == 0:
                leader, drain = trial._leader, trial._drain
                assert leader is not None

                def watch(leader: Any = leader, drain: Any = drain) -> None:
                    drain()
                    if 2 in leader._storing and not late.is_set():
                        assert not told.is_set()
                        late.set()

                trial._drain = watch  # type: ignore[method-assign]
        trial._finish("", "")

    workers = [Leading(store, told), Storing(store, 1), Slow(store, 2, told)]
    with ranks(tmp_path, workers=workers, sharded_checkpoints=True, until_step=1) as r:
        assert r.run(one) == [None] * 3
    assert sorted(store.complete) == [1]
    kinds = [m.WhichOneof("kind") for m in workers[0].said]
    assert kinds == ["saved", "waiting", "saved", "reached", "ended"]


def test_the_shards_of_the_best_report_are_kept(tmp_path: Path, store: Store) -> None:
    with gang(tmp_path, store, until_step=5, keep_best=True, mode="min", failures=1) as r:
        assert r.run(train) == [None] * 3
    assert sorted(store.complete) == [2, 5]
    assert store.metrics == {2: 0.0, 5: 3.0}
    with gang(tmp_path, store, **store.start(2)) as r:
        assert restore(r) == [200, 201, 202]


def test_shards_of_a_loop_that_ends_by_itself_are_stored(tmp_path: Path, store: Store) -> None:
    def ends(trial: Trial) -> None:
        for step in trial.steps():
            trial.save(weights(trial, step), sharded=True)
            if step == 3:
                break
        trial._finish("", "")

    with gang(tmp_path, store) as r:
        assert r.run(ends) == [None] * 3
    assert sorted(store.complete) == [3]


def test_reports_without_a_loop_name_the_step(tmp_path: Path, store: Store) -> None:
    def ends(trial: Trial) -> None:
        for step in range(1, 4):
            trial.save(weights(trial, step), sharded=True)
            trial.report(loss=1.0)
        trial._finish("", "")

    with gang(tmp_path, store) as r:
        assert r.run(ends) == [None] * 3
    assert sorted(store.complete) == [3]


def test_a_rank_without_a_shard(tmp_path: Path, store: Store) -> None:
    def one(trial: Trial) -> None:
        for step in trial.steps():
            if trial.rank != 1:
                trial.save(weights(trial, step), sharded=True)
            trial.report(loss=1.0)

    with gang(tmp_path, store, until_step=2) as r:
        (failure,) = r.run(one, [1])
    assert str(failure) == (
        "rank 1 has no shard of step 2: call trial.save(..., sharded=True) on every rank of a gang, in the same steps"
    )
    assert not store.complete


def test_a_rank_that_ends_without_a_shard(tmp_path: Path, store: Store) -> None:
    ended = threading.Barrier(2)

    def one(trial: Trial) -> str:
        if trial.rank:
            trial._finish("", "")
            ended.wait(30)
            return ""
        ended.wait(30)
        assert trial._gang is not None
        while not trial._gang.has_ended(1):
            trial._wait(None)
        trial.save(weights(trial, 0), sharded=True)
        trial._known = 1
        trial._finish("", "")
        return str(trial._session.said[-1].ended.error)  # type: ignore[attr-defined]

    with gang(tmp_path, store, size=2) as r:
        assert r.run(one)[0].startswith("CheckpointError: rank 1 ended without its shard of step 1: call trial.save")
    assert not store.complete


def test_another_number_of_ranks_reads_the_shards(tmp_path: Path, store: Store) -> None:
    with gang(tmp_path, store, until_step=2) as r:
        r.run(train)
    with gang(tmp_path, store, size=2, **store.start(2)) as r:
        for failure in restore(r):
            assert str(failure) == (
                "checkpoint: 3 ranks saved it and now there are 2: read the shards with checkpoint(shard=0) to "
                "checkpoint(shard=2), or save directories of a library that works with any number of ranks, such as "
                "torch.distributed.checkpoint"
            )
        assert restore(r, shard=2) == [202, 202]
        assert sorted(r.trials[1].checkpoint_shards) == [0, 1, 2]
        with pytest.raises(CheckpointError, match="shard must be from 0 to 2, got 3"):
            r.trials[0].checkpoint(shard=3)
    with gang(tmp_path, store, **store.start(2, [1])) as r:
        with pytest.raises(CheckpointError, match="shard 0 is not on this node, which has the shards of ranks 1"):
            r.trials[0].checkpoint()
    with gang(tmp_path, store, **store.start(2, [])) as r:
        with pytest.raises(CheckpointError, match="the worker is too old"):
            r.trials[0].checkpoint()


def save_directory(trial: Trial) -> None:
    folder = trial.scratch / "files"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / f"{trial.rank}.bin").write_bytes(bytes([trial.rank]) * 3)
    (folder / "config.json").write_text("{}")
    (folder / "own").write_text(str(trial.rank))
    if trial.rank == 0:
        (folder / ".metadata").write_text("all")
    for _ in trial.steps():
        trial.save(folder, sharded=True)
    trial._finish("", "")


def test_directories_are_joined(tmp_path: Path, store: Store) -> None:
    with gang(tmp_path, store, until_step=1) as r:
        assert r.run(save_directory) == [None] * 3
    with gang(tmp_path, store, **store.start(1)) as r:
        for rank, place in enumerate(restore(r)):
            names = sorted(str(p.relative_to(place)) for p in place.rglob("*") if p.is_file())
            assert names == [".metadata", "config.json", "deep/0.bin", "deep/1.bin", "deep/2.bin", "own"]
            assert (place / "own").read_text() == str(rank)
            assert (place / "deep" / "2.bin").read_bytes() == b"\x02" * 3
    with gang(tmp_path, store, size=2, **store.start(1)) as r:
        for failure in restore(r):
            assert "the ranks 0 and 1 saved different files 'own'" in str(failure)
        (place, _) = restore(r, shard=1)
        assert (place / "own").read_text() == "1"


def test_one_process_has_one_shard(tmp_path: Path, store: Store) -> None:
    def start(**fields: Any) -> Trial:
        assignment = session_pb2.TrialAssignment(
            fork=FORK, config_json="{}", scratch=str(tmp_path), metric="loss", sharded_checkpoints=True, **fields
        )
        return Trial(assignment, Storing(store, 0))

    train(start(until_step=2))
    assert sorted(store.complete) == [2]
    assert start(**store.start(2)).checkpoint()["w"][0] == 200


def test_shards_are_refused(tmp_path: Path) -> None:
    def start(**fields: Any) -> Trial:
        assignment = session_pb2.TrialAssignment(fork=FORK, config_json="{}", scratch=str(tmp_path), **fields)
        return Trial(assignment, Worker())

    with pytest.raises(CheckpointError, match="sharded=True needs a newer Outbid on the server and on the workers"):
        start().save({"w": np.zeros(1)}, sharded=True)
    with pytest.raises(ValueError, match=r"sharded=True cannot be used with Resources\(forks=\)"):
        start(sharded_checkpoints=True, part={"count": 2}).save({"w": np.zeros(1)}, sharded=True)
    path = tmp_path / "whole.safetensors"
    tensors.write(str(path), {"w": np.zeros(1)}, "")
    with pytest.raises(CheckpointError, match="leave out shard"):
        start(checkpoint_path=str(path)).checkpoint(shard=0)
    (tmp_path / "broken").write_text('{"outbid.shards":1}')
    with pytest.raises(CheckpointError, match="cannot read the manifest"):
        start(checkpoint_path=str(tmp_path / "broken")).checkpoint()
