"""Outbid on a real Ray cluster whose nodes are added, drained, and killed."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

import outbid as ob
from integrations.on_ray.cluster import PATIENCE, TESTS, RayCluster, eventually
from outbid.v1 import event_pb2
from outbid.v1 import service_pb2 as pb

pytestmark = pytest.mark.filterwarnings("ignore")  # from Ray itself
OPTIONS = ["--lease", "3s"]


def train(trial: ob.Trial) -> None:
    """Train and save at each step until the file `go` exists."""
    import os
    import time
    from pathlib import Path

    place = Path(trial.config.place)
    (place / f"{trial.number}-{trial.start_step}-{os.environ['OUTBID_NODE']}").touch()
    for step in trial.steps():
        trial.save({"step": float(step)})
        trial.report(loss=trial.config.x / step)
        if (place / "go").exists():
            break
        time.sleep(0.05)


def starts(place: Path) -> list[tuple[int, int, str]]:
    """Return all starts: the trial, its first step, and the worker."""
    found = (path.name.split("-", 2) for path in place.glob("[0-9]*-*"))
    return sorted((int(number), int(step), node) for number, step, node in found)


def states(client: ob.Client) -> dict[str, Any]:
    """Return the server's nodes by name."""
    return {node.info.name: node for node in client.rpc.list_nodes(pb.ListNodesRequest()).nodes}


def worker_on(cluster: Any, node: Any) -> str:
    """Return the name of the worker on a node. Not every worker that ran is: `add` may have replaced a crashed node."""
    there = lambda: [one.name for one in cluster.workers() if one.node == node.node_id and one.state == "up"]  # noqa: E731
    return str(eventually("a worker is on the node", there)[0])


def sweep(place: Path, trials: int) -> ob.Sweep:
    space = {"x": ob.uniform(0, 1), "place": ob.constant(str(place))}
    keep = ob.Checkpoints(every=1)
    tuner = ob.Random(seed=0)
    return ob.Sweep(train, space, metric="loss", mode="min", tuner=tuner, trials=trials, checkpoints=keep)


def test_nodes_come_and_go_in_mid_sweep(nodes: RayCluster, tmp_path: Path) -> None:
    import outbid.ray

    place = tmp_path / "trials"
    place.mkdir()
    with outbid.ray.up(data=tmp_path / "data", server_options=OPTIONS) as cluster:
        cluster.wait(2)
        handle = sweep(place, 3).submit(client=cluster.client)
        eventually("two trials run", lambda: len(starts(place)) >= 2)
        assert len({node for _, _, node in starts(place)}) == 2

        # A new node is used.
        first = nodes.add(1)
        third = worker_on(cluster, first)
        eventually("the third runs there", lambda: [s for s in starts(place) if s[0] == 2 and s[2] == third])
        assert third not in {node for number, _, node in starts(place) if number != 2}

        # The trial of a killed node continues from its checkpoint on the next new node.
        saved = lambda: handle.trials()[2].checkpoints  # noqa: E731
        eventually("the third has saved", saved)
        nodes.kill(first, [states(cluster.client)[third].info.pid])
        again = worker_on(cluster, nodes.add(1))
        gone_on = lambda: nodes.check() and [s for s in starts(place) if s[0] == 2 and s[1] > 0 and s[2] == again]  # noqa: E731
        eventually("the third goes on there", gone_on)
        assert again != third

        # Trials on a draining node save first.
        there = next(worker for worker in cluster.workers() if worker.name == again)
        nodes.drain(there.node)
        eventually(
            "the worker has left in good order",
            lambda: states(cluster.client)[again].state == event_pb2.NODE_STATE_LEFT,
        )
        assert again not in {worker.name for worker in cluster.workers() if worker.state == "up"}
        (place / "go").touch()
        result = handle.wait(PATIENCE)
        assert [trial.state for trial in result.trials] == ["completed"] * 3
        assert result.trials[2].restarts == 0
        nodes.remove(there.node)


END = """
import sys, outbid as ob, outbid.ray
cluster = outbid.ray.up(workers=1, data=sys.argv[1], name="passing", server_options=["--lease", "3s"]).wait(1)
print(cluster.url, flush=True)
sys.stdin.read()
"""


def test_everything_ends_with_the_driver(nodes: RayCluster, tmp_path: Path) -> None:
    with nodes.driver(END, str(tmp_path / "data")) as driver:
        with ob.connect(driver.says("http")) as client:
            handle = sweep(tmp_path, 1).submit(client=client)
            eventually("the trial has done three steps", lambda: handle.trials()[0].step >= 3)
            worker = next(iter(states(client).values())).info.pid
        os.kill(driver.pid, signal.SIGKILL)
    eventually("the worker has ended", lambda: not Path(f"/proc/{worker}").exists())
    # The server ends last, and removes the file when it has shut down properly.
    eventually("the server has ended", lambda: not (tmp_path / "data" / "server.json").exists())
    # The next server continues where it stopped, with the final checkpoints.
    import outbid.ray

    with outbid.ray.up(workers=1, data=tmp_path / "data", server_options=OPTIONS) as cluster:
        handle = cluster.client.attach(handle.id)
        eventually("the trial goes on", lambda: [s for s in starts(tmp_path) if s[1] >= 3])
        (tmp_path / "go").touch()
        assert [trial.state for trial in handle.wait(PATIENCE).trials] == ["completed"]
        assert handle.trials()[0].restarts == 0


DETACHED = """
import sys, outbid.ray
outbid.ray.up(workers=1, data=sys.argv[1], name="stays", detached=True, secure=True).wait(1)
"""


def test_a_detached_cluster_stays_and_is_found(nodes: RayCluster, tmp_path: Path) -> None:
    import outbid.ray

    with nodes.driver(DETACHED, str(tmp_path / "data")) as driver:
        assert driver.wait(2 * PATIENCE) == 0
    (tmp_path / "go").touch()
    cluster = outbid.ray.attach("stays")
    assert cluster.url.startswith("https://127.0.0.1:") and cluster.token
    with pytest.raises(ob.UnauthenticatedError):
        ob.connect(cluster.url, ca_file=cluster.ca_file)
    with pytest.raises(ob.ConflictError, match="stays"):
        outbid.ray.up(workers=1, name="stays", data=tmp_path / "other")
    with cluster:
        result = sweep(tmp_path, 1).run(client=cluster.client, display=False, timeout=PATIENCE)
        assert result.trials[0].state == "completed"
    outbid.ray.attach("stays").down()
    with pytest.raises(ob.NotFoundError, match="detached=True"):
        outbid.ray.attach("stays")


def use_ray(trial: ob.Trial) -> None:
    """Use Ray like a training function of Ray Tune; the trial's bundle has all CPUs."""
    import tempfile
    from pathlib import Path

    import ray

    import outbid.ray

    def group() -> str:
        return str(ray.util.get_current_placement_group().id.hex())

    def outer() -> list[str]:
        return [group(), ray.get(ray.remote(group).remote())]

    there = outbid.ray.connect().placement_group.id.hex()
    tasks = ray.get(ray.remote(outer).remote())
    actor = ray.remote(type("Counter", (), {"group": lambda self: group()})).remote()
    trial.report(tasks=float(tasks == [there] * 2), actors=float(ray.get(actor.group.remote()) == there))
    ray.kill(actor)

    import ray.data

    squares = ray.data.range(100, override_num_blocks=2).map_batches(lambda b: {"id": b["id"] ** 2})
    trial.report(rows=float(sum(row["id"] for row in squares.random_shuffle(seed=1).take_all())))

    from ray import train
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer  # the base class of TorchTrainer and others

    def loop() -> None:
        context = train.get_context()
        with tempfile.TemporaryDirectory() as place:  # Ray Train returns reports with a checkpoint
            (Path(place) / "weights").write_text("1")
            held = train.Checkpoint.from_directory(place) if context.get_world_rank() == 0 else None
            train.report({"world": context.get_world_size()}, checkpoint=held)

    with tempfile.TemporaryDirectory() as place:
        trainer = DataParallelTrainer(
            loop, scaling_config=train.ScalingConfig(num_workers=2), run_config=train.RunConfig(storage_path=place)
        )
        trial.report(world=float(trainer.fit().metrics["world"]))
        try:
            DataParallelTrainer(
                loop, scaling_config=train.ScalingConfig(num_workers=3), run_config=train.RunConfig(storage_path=place)
            ).fit()
        except ValueError as error:
            trial.report(refused=float("3 workers need 3 CPU" in str(error)))


def test_a_trial_uses_ray_on_its_bundle(nodes: RayCluster, tmp_path: Path) -> None:
    import outbid.ray

    with outbid.ray.up(workers=1, resources={"CPU": 2}, devices="slot:1", data=tmp_path / "data") as cluster:
        result = ob.Sweep(use_ray, {"x": ob.constant(1)}, metric="refused", mode="max", trials=1).run(
            client=cluster.client, display=False, timeout=2 * PATIENCE
        )
        (trial,) = result.trials
        assert trial.state == "completed", trial.reason
        seen: dict[str, float] = {}
        for report in trial.reports():
            seen.update(report.metrics)
        wanted = {"tasks": 1, "actors": 1, "rows": 328350, "world": 2, "refused": 1}
        assert {name: seen.get(name) for name in wanted} == wanted


def test_the_guide_runs_as_printed(nodes: RayCluster, tmp_path: Path) -> None:
    guide = TESTS.parents[1] / "docs" / "guides" / "ray.md"
    first, second, third, last = re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "last.py").write_text(last)
    # The next blocks' functions are for more sweeps, and the last block's experiment joins while the cluster exists.
    more = """
        inside = ob.Sweep(evaluate, {"x": ob.constant(1)}, metric="parts", mode="max", trials=1)
        print(dict(inside.run(client=cluster.client, display=False).best.metrics))
        with_ray = ob.Sweep(train_with_ray, {"lr": ob.constant(0.1)}, metric="loss", mode="min", trials=1)
        print(with_ray.run(client=cluster.client, display=False).best.step, "steps")
        import subprocess, sys
        subprocess.run([sys.executable, "last.py"], check=True)
"""
    (tmp_path / "guide.py").write_text(first.replace("def train(", f"{second}\n\n{third}\n\ndef train(") + more)
    with nodes.program("guide.py", cwd=tmp_path) as run:
        output = run.communicate(timeout=2 * PATIENCE)[0]
    assert run.returncode == 0, output
    assert "'parts': 14.0" in output and "9 steps" in output and "{'lr': 0.1}" in output, output


def neighbour(trial: ob.Trial) -> None:
    """Train like the experiments, in an Outbid sweep."""
    from pathlib import Path

    from integrations.on_ray.tune_program import STEPS, use_device

    for step in trial.steps():
        use_device(Path(trial.config.place), f"sweep {trial.config.x} {step}", 0.3)
        trial.save({"step": float(step)})
        trial.report(loss=(trial.config.x - 0.3) ** 2 + 1 / step)
        if step == STEPS:
            break


def test_experiments_of_ray_tune_share_with_a_sweep(nodes: RayCluster, tmp_path: Path) -> None:
    import outbid.ray
    from integrations.on_ray.tune_program import GRID, STEPS

    options = [*OPTIONS, "--policy-option", "lease=15s"]
    trained = tmp_path / "steps"
    trained.touch()
    with outbid.ray.up(workers=2, name="shared", data=tmp_path / "data", server_options=options) as cluster:
        cluster.wait(2)
        program = str(Path(__file__).parent / "tune_program.py")
        programs = [nodes.program(program, str(tmp_path), name, "shared") for name in ("one", "two")]
        try:
            # The experiments train until the file `go` exists. A new sweep gets a share nevertheless.
            eventually("both train", lambda: {line.split()[0] for line in lines(trained)} == {"one", "two"})
            space = {"x": ob.choice(GRID), "place": ob.constant(str(tmp_path))}
            sweep = ob.Sweep(neighbour, space, metric="loss", mode="min", tuner=ob.Grid(), name="sweep")
            result = sweep.run(client=cluster.client, display=False, timeout=2 * PATIENCE)
            (tmp_path / "go").touch()
            told = [json.loads(one.communicate(timeout=2 * PATIENCE)[0].splitlines()[-1]) for one in programs]
        finally:
            for one in programs:
                one.kill()
                one.communicate()
        # All end with the best result that they would have found alone.
        best = pytest.approx(1 / STEPS)
        assert told == [{"best": 0.3, "loss": best, "errors": []}] * 2
        assert result.best.config.x == 0.3 and result.best.metric == best
        assert not (tmp_path / "too-many").exists(), "more trials trained at once than there are devices"
        # Tune's trials were paused and continued where they were: no step is missing, and none was repeated.
        for name in ("one", "two"):
            for x in GRID:
                steps = [int(line.split()[2]) for line in lines(trained) if line.startswith(f"{name} {x} ")]
                assert steps == list(range(1, max(steps) + 1)) and max(steps) >= STEPS
        eventually("all are done", lambda: {info.state for info in cluster.client.sweeps()} == {"done"})


def lines(path: Path) -> list[str]:
    """Return the complete lines of a file."""
    return path.read_text().split("\n")[:-1]
