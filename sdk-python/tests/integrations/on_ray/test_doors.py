"""The ways to connect to a Ray cluster, and the environment of workers there, each in a separate program."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import outbid as ob
from integrations.on_ray.cluster import PATIENCE, Program, RayCluster, eventually
from outbid._client.local_server import find_binary
from outbid.v1 import event_pb2
from outbid.v1 import service_pb2 as pb

pytestmark = pytest.mark.filterwarnings("ignore")  # from Ray itself


SWEEP = """
import json, os, sys
import ray, outbid as ob, outbid.ray

def train(trial):
    return (trial.config.x - 0.3) ** 2

if __name__ == "__main__":
    address, data = sys.argv[1:]
    if address:
        ray.init(address, log_to_driver=False)
    with outbid.ray.up(workers=2, data=data, name="door") as cluster:
        sweep = ob.Sweep(train, {"x": ob.choice([0.1, 0.3, 0.5])}, metric="result", mode="min", tuner=ob.Grid())
        result = sweep.run(client=cluster.client, display=False)
        try:
            outbid.ray.up(workers=1, name="door")
            again = "no error"
        except ob.ConflictError as error:
            again = str(error)
        if address:
            outbid.ray.up(workers=1, data=data + "-stays", name="stays", detached=True)
        print(json.dumps({"best": result.best.config.x, "states": [t.state for t in result.trials],
                          "up": [w.state for w in cluster.workers()], "again": again}), flush=True)
"""
WANTED = {"best": 0.3, "states": ["completed"] * 3}


def told(output: str) -> dict[str, object]:
    """Return the program's result of its sweep."""
    lines = [line for line in output.splitlines() if line.startswith('{"best"')]
    assert lines, output
    found: dict[str, object] = json.loads(lines[-1])
    assert "attach('door')" in str(found.pop("again"))
    assert found.pop("up") == ["up", "up"]
    return found


def test_ray_client(nodes: RayCluster, tmp_path: Path) -> None:
    """Everything goes through the head's port, like from a laptop. Then the program is killed."""
    import outbid.ray

    data = tmp_path / "data"
    with nodes.driver(SWEEP + "        sys.stdin.read()", nodes.client, str(data)) as driver:
        assert told(driver.says('{"best"')) == WANTED
        assert (data / "server.json").exists()
        driver.kill()
    eventually("the server has ended", lambda: not (data / "server.json").exists())
    # A detached cluster remains, and can be found from another program.
    with outbid.ray.attach("stays").wait(1) as cluster:
        assert [worker.state for worker in cluster.workers()] == ["up"]
    cluster = outbid.ray.attach("stays")
    cluster.down()
    assert not (tmp_path / "data-stays" / "server.json").exists()


def test_ray_job_submit(nodes: RayCluster, tmp_path: Path) -> None:
    """A job runs on the head, in its directory that Ray has unpacked."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "sweep.py").write_text(SWEEP)
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ray"), "job", "submit", "--address", nodes.jobs,
            "--working-dir", str(tmp_path / "job"), "--", sys.executable, "sweep.py", "", str(tmp_path / "data"),
        ],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert told(done.stdout) == WANTED
    assert not (tmp_path / "data" / "server.json").exists(), "the server has not ended with the job"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Start a server outside of Ray, with a certificate and a token."""
    outbid, place = find_binary(), tmp_path / "elsewhere"
    place.mkdir()

    def run(*words: str) -> str:
        done = subprocess.run([outbid, *words], check=True, capture_output=True, text=True, timeout=PATIENCE)
        return done.stdout.strip()

    run("tls", "new", "--dir", str(place / "tls"), "--host", "127.0.0.1")
    token = run("token", "new", "--file", str(place / "tokens"), "--name", "a", "--tenant", "*", "--role", "admin")
    ready = place / "ready.json"
    words = ["--data", str(place / "data"), "--ready-file", str(ready), "--tokens", str(place / "tokens")]
    words += ["--tls-cert", str(place / "tls" / "cert.pem"), "--tls-key", str(place / "tls" / "key.pem")]
    words += ["--api", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--lease", "3s"]
    with (place / "log").open("w") as log, Program([outbid, "serve", *words], stdout=log, stderr=log) as serve:
        try:
            eventually("the server is ready", ready.exists)
            url = json.loads(ready.read_text())["api"]
            yield {"server": url, "token": token, "ca_file": str(place / "tls" / "ca.pem")}
        finally:
            serve.terminate()


JOIN = """
import json, sys, outbid.ray
given = json.loads(sys.argv[1])
with outbid.ray.up(workers=2, name="joined", worker_options=["--trust-trials"], **given).wait(2) as cluster:
    print("up", flush=True)
    sys.stdin.readline()
"""


def train(trial: ob.Trial) -> float:
    """Return a loss."""
    return float((trial.config.x - 0.3) ** 2)


def test_a_server_that_runs_elsewhere(nodes: RayCluster, elsewhere: dict[str, str]) -> None:
    with nodes.driver(JOIN, json.dumps(elsewhere)) as driver:
        assert driver.stdin
        driver.says("up")
        with ob.connect(elsewhere["server"], token=elsewhere["token"], ca_file=elsewhere["ca_file"]) as client:
            sweep = ob.Sweep(train, {"x": ob.choice([0.1, 0.3])}, metric="result", mode="min", tuner=ob.Grid())
            result = sweep.run(client=client, display=False, timeout=PATIENCE)
            assert result.best.config.x == 0.3 and {t.state for t in result.trials} == {"completed"}
            driver.stdin.write("\n")
            driver.stdin.flush()
            assert driver.wait(PATIENCE) == 0
            # The workers have left properly, and did not end the server, which is not theirs.
            nodes_there = client.rpc.list_nodes(pb.ListNodesRequest()).nodes
            assert [node.state for node in nodes_there] == [event_pb2.NODE_STATE_LEFT] * 2


GPUS = """
import os, socket, sys, outbid as ob, outbid.ray

def shown(trial):
    with socket.create_connection(("127.0.0.1", trial.config.port), timeout=trial.config.patience) as meeting:
        meeting.sendall((os.environ["OUTBID_NODE"] + " " + os.environ["CUDA_VISIBLE_DEVICES"]).encode())
        meeting.recv(1)  # both train at once: the test answers when both are there
    return 1.0

with outbid.ray.up(workers=2, resources={"GPU": 1}, devices="a100:1", data=sys.argv[1], name="gpus").wait(2) as cluster:
    space = {"port": ob.constant(int(sys.argv[2])), "patience": ob.constant(float(sys.argv[3]))}
    result = ob.Sweep(shown, space, metric="result", mode="max", trials=2).run(client=cluster.client, display=False)
    print([t.state for t in result.trials])
"""


def test_a_worker_offers_the_gpus_of_its_bundle(nodes: RayCluster, tmp_path: Path) -> None:
    """Ray says which GPUs these are. The test machines have none, so the workers declare them."""
    with socket.create_server(("127.0.0.1", 0)) as meeting:
        meeting.settimeout(2 * PATIENCE)
        port = str(meeting.getsockname()[1])
        with nodes.driver(GPUS, str(tmp_path / "data"), port, str(2 * PATIENCE)) as driver:
            trials = [meeting.accept()[0] for _ in range(2)]
            seen = []
            for trial in trials:
                trial.settimeout(PATIENCE)
                seen.append(trial.recv(1000).decode().split())
            for trial in trials:
                trial.close()
            output = driver.communicate(timeout=2 * PATIENCE)[0]
    assert driver.returncode == 0 and "['completed', 'completed']" in output, output
    workers, devices = zip(*seen, strict=True)
    assert len(set(workers)) == 2 and sorted(devices) == ["0", "1"]


SCALED = """
import ray, sys, time, outbid as ob, outbid.ray
resources = {"GPU": 1, "more": 1}
with outbid.ray.up(workers=1, resources=resources, devices="a100:1", data=sys.argv[1], name="scaled") as cluster:
    while not (there := cluster.workers()):
        time.sleep(0.05)
    print(there[0].state, flush=True)
    space = {"x": ob.choice([1, 2])}
    sweep = ob.Sweep(lambda trial: trial.config.x, space, metric="result", mode="min", tuner=ob.Grid())
    print(sweep.run(client=cluster.client, display=False).best.config.x, flush=True)
    print(sum(node["Alive"] for node in ray.nodes()), flush=True)
"""


def test_the_autoscaler_adds_what_a_worker_waits_for(nodes: RayCluster, tmp_path: Path) -> None:
    """No node has the resources of the worker's bundle until Ray's autoscaler reacts to its waiting."""
    before = len(nodes.alive())
    with nodes.autoscaled(tmp_path, {"GPU": 1, "more": 1}):
        with nodes.driver(SCALED, str(tmp_path / "data")) as driver:
            output = driver.communicate(timeout=2 * PATIENCE)[0]
        assert driver.returncode == 0 and output.split() == ["waiting", "1", str(before + 1)], output
        eventually("the node is idle and goes", lambda: len(nodes.alive()) == before)
