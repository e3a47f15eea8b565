"""Compare saving a checkpoint from four ranks on two workers with plain parallel uploads of as many bytes.

Both go through one MinIO server, and take turns. A plain upload is four processes that each send a file that exists in
parts of 16 MiB, four at once. A save lasts from trial.save on the ranks until the checkpoint counts.

    OUTBID_BIN=bin/outbid OUTBID_TEST_MINIO=$(.ci/tool minio) python sdk-python/benchmarks/sharded_save.py
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import hmac
import http.client
import json
import mmap
import multiprocessing
import os
import re
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import live_gang
import outbid as ob

RANKS, PART, AT_ONCE = 4, 16 << 20, 4
USER, REGION = "benchmark", "us-east-1"
ASKED = [0.0]
TICK = os.sysconf("SC_CLK_TCK")


def train(trial: ob.Trial) -> None:
    """Save a shard whenever the benchmark asks for it."""
    import numpy as np

    folder, mib = Path(os.environ["GANG_FOLDER"]), int(os.environ["SHARD_MIB"])
    random = np.random.default_rng(trial.rank)
    weights = {f"layer-{i}": random.integers(0, 255, mib << 17, dtype=np.uint8) for i in range(8)}
    with (folder / "processes").open("a") as file:
        print(json.dumps([trial.rank, os.getpid()]), file=file)
    saved = 0
    clock(trial, folder)
    for _ in trial.steps():
        time.sleep(0.03)
        if trial._agree("benchmark", (folder / f"go-{saved + 1}").exists):
            saved += 1
            trial.save(weights, copy="COPY" in os.environ, sharded=True)
            trial._checkpointer.ask()
        elif trial._agree("benchmark", (folder / f"next-{saved}").exists) and trial._checkpointer._held is None:
            trial.save(weights, copy="COPY" in os.environ, sharded=True)  # like a loop that saves in every step


def clock(trial: ob.Trial, folder: Path) -> None:
    """Write when a rank begins and ends each phase of a save."""
    from outbid._training import tensors
    from outbid._training.gang_checkpointer import LeadingCheckpointer, ShardWriter

    def timed(owner: Any, name: str, phase: str) -> None:
        original = getattr(owner, name)

        def measured(*args: Any, **given: Any) -> Any:
            began = time.monotonic()
            result = original(*args, **given)
            with (folder / "phases").open("a") as file:
                print(json.dumps([phase, trial.rank, began, time.monotonic()]), file=file)
            return result

        setattr(owner, name, measured)

    timed(tensors, "to_arrays", "copied")
    timed(tensors, "write", "written")
    timed(ShardWriter, "_answer", "stored")
    timed(LeadingCheckpointer, "_offer_manifest", "manifest")


class Store:
    """A MinIO server."""

    def __init__(self, folder: Path) -> None:
        self.password = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        env = {**os.environ, "MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": self.password, "MINIO_BROWSER": "off"}
        command = [os.environ["OUTBID_TEST_MINIO"], "server", "--quiet", "--address", self.address, str(folder)]
        self.process = subprocess.Popen(command, env={**env, "MINIO_UPDATE": "off"}, stdout=subprocess.DEVNULL)
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", int(self.address.partition(":")[2]))).close()
                break
            except OSError:
                time.sleep(0.05)
        time.sleep(1)

    def request(self, connection: Any, method: str, path: str, query: str = "", body: Any = b"") -> tuple[Any, bytes]:
        """Make a signed request, and return the answer and its body."""
        at = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": self.address, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": at}
        signed = "".join(f"{name}:{value}\n" for name, value in headers.items())
        text = "\n".join((method, path, query, signed, ";".join(headers), "UNSIGNED-PAYLOAD"))
        scope = f"{at[:8]}/{REGION}/s3/aws4_request"
        key = f"AWS4{self.password}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        to_sign = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(text.encode()).hexdigest()}"
        signature = hmac.new(key, to_sign.encode(), "sha256").hexdigest()
        names = ";".join(headers)
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={USER}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        headers["content-length"] = str(len(body))
        connection.request(method, f"{path}?{query}" if query else path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:200]!r}")
        return answer, data


def plain(store: Store, file: Path, begin: Any) -> None:
    """Upload a file in parts."""
    path = f"/plain/{file.name}"
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        begin.wait()
        data = memoryview(content)
        connections = [http.client.HTTPConnection(store.address) for _ in range(AT_ONCE)]
        _, found = store.request(connections[0], "POST", path, "uploads=")
        (upload,) = re.findall(rb"<UploadId>(.*)</UploadId>", found)
        upload_id = urllib.parse.quote(upload.decode(), safe="")

        def send(first: int) -> list[tuple[int, str]]:
            tags = []
            for i in range(first, -(-len(data) // PART), AT_ONCE):
                query = f"partNumber={i + 1}&uploadId={upload_id}"
                part = data[i * PART : (i + 1) * PART]
                answer, _ = store.request(connections[first], "PUT", path, query, part)
                part.release()
                tags.append((i + 1, answer.headers["ETag"]))
            return tags

        with ThreadPoolExecutor(AT_ONCE) as pool:
            tags = sorted(tag for found in pool.map(send, range(AT_ONCE)) for tag in found)
        parts = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>" for n, tag in tags)
        whole = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        store.request(connections[0], "POST", path, f"uploadId={upload_id}", whole)
        data.release()


def uploaded(store: Store, files: list[Path]) -> float:
    """Upload the files with one process each, and return how long that took."""
    context = multiprocessing.get_context("spawn")
    begin = context.Barrier(len(files) + 1)
    processes = [context.Process(target=plain, args=(store, file, begin)) for file in files]
    store_process, store.process = store.process, None  # type: ignore[assignment]
    for process in processes:
        process.start()
    store.process = store_process
    begin.wait()
    began = time.monotonic()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    took = time.monotonic() - began
    for file in files:
        store.request(http.client.HTTPConnection(store.address), "HEAD", f"/plain/{file.name}")
    return took


class Cluster(live_gang.Cluster):
    """A server and two workers that keep checkpoints in a MinIO server."""

    def __init__(self, folder: Path, store: Store) -> None:
        super().__init__(folder, train)
        url = f"s3://outbid/benchmark?endpoint=http://{store.address}&region={REGION}"
        self.env |= {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": store.password}
        self.url = url

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """Start the binary."""
        if command[0] == "serve":
            command = (*command, "--store", self.url)
        return super().run(*command)


@contextmanager
def running(folder: Path, store: Store) -> Iterator[Cluster]:
    """Run a cluster until the end of the context."""
    cluster = Cluster(folder, store)
    try:
        cluster.start()
        yield cluster
    finally:
        for process in [*cluster.workers.values(), cluster.server]:
            process.terminate()
        for process in [*cluster.workers.values(), cluster.server]:
            process.wait(60)


def busy(pid: int) -> float:
    """Return the processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def peak(pid: int) -> int:
    """Return the maximum of a process's memory in MiB, files that it maps excluded."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) >> 10


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=512, help="size of a shard")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-copy", action="store_true", help="save(copy=False)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as temporary:
        folder = Path(temporary)
        store = Store(folder / "minio")
        try:
            compare(folder, store, given)
        finally:
            store.process.terminate()
            store.process.wait()


def compare(folder: Path, store: Store, given: argparse.Namespace) -> None:
    """Print how long saves and plain uploads take in turns, and the ratio."""
    files = [folder / f"plain-{rank}" for rank in range(RANKS)]
    for file in files:
        file.write_bytes(secrets.token_bytes(1 << 20) * given.mib)
    connection = http.client.HTTPConnection(store.address)
    store.request(connection, "PUT", "/plain")
    with running(folder, store) as cluster:
        os.environ["SHARD_MIB"] = str(given.mib)
        env = {"GANG_FOLDER": str(folder), "SHARD_MIB": str(given.mib), "OMP_NUM_THREADS": "1"}
        sweep = ob.Sweep(
            train,
            {"x": ob.uniform(0, 1)},
            metric="loss",
            mode="max",
            tuner=ob.Random(max_steps=1_000_000, seed=1),
            trials=1,
            resources=ob.Resources(devices=RANKS, processes="per_device", spread=True),
            checkpoints=ob.Checkpoints(last=True, every="24h"),
            env=env if given.no_copy else {**env, "COPY": "1"},
        )
        handle = sweep.submit(cluster.client)
        live_gang.started(cluster)
        pids = {"minio": [store.process.pid], "server": [cluster.server.pid]}
        pids["workers"] = [w.pid for w in cluster.workers.values()]
        pids["ranks"] = [p[1] for p in cluster.lines("processes")]
        took: dict[str, list[float]] = {"plain": [], "sharded": []}
        for turn in range(given.rounds + 1):
            for way in ("plain", "sharded")[:: 1 if turn % 2 else -1]:
                before = {name: sum(map(busy, of)) for name, of in pids.items()}
                if way == "plain":
                    seconds = uploaded(store, files)
                else:
                    seconds = saved(cluster, handle, turn + 1)
                used = {name: round(sum(map(busy, of)) - before[name], 1) for name, of in pids.items()}
                if way == "sharded":
                    lines = cluster.lines("phases")
                    phases = [
                        (p, rank, b - ASKED[0], e - ASKED[0]) for p, rank, b, e in lines if e < ASKED[0] + seconds
                    ]
                    (cluster.folder / "phases").unlink()
                    print("; ".join(f"{p} {rank}: {b:.2f} to {e:.2f}" for p, rank, b, e in phases))
                if turn:  # the first turn only warms up
                    took[way].append(seconds)
                print(f"turn {turn} {way}: {seconds:.2f} s, processor seconds {used}", flush=True)
        ratios = [p / s for p, s in zip(took["plain"], took["sharded"], strict=True)]
        print(f"peak MiB: { ({name: [peak(pid) for pid in of] for name, of in pids.items()}) }")
        print(
            f"{RANKS} x {given.mib} MiB: plain {statistics.median(took['plain']):.2f} s, "
            f"sharded {statistics.median(took['sharded']):.2f} s; plain / sharded: median of the pairs "
            f"{statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}"
        )
        handle.stop()


def saved(cluster: Cluster, handle: Any, save: int) -> float:
    """Save a checkpoint, and return how long it took until it counted."""
    before = {checkpoint.step for checkpoint in handle.trials()[0].checkpoints}
    began = ASKED[0] = time.monotonic()
    cluster.touch(f"go-{save}")
    while {checkpoint.step for checkpoint in handle.trials()[0].checkpoints} <= before:
        time.sleep(0.03)
    took = time.monotonic() - began
    cluster.touch(f"next-{save}")
    time.sleep(2)
    return took


if __name__ == "__main__":
    main()
