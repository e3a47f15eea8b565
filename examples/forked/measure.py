"""Measures forks against one process and data-parallel ranks, on workers whose shares of the processor are 4:2:1.

The protocol was written in advance and is in docs/research/forks.md. This needs root, for control groups (version 1),
and takes about five minutes per seed: sudo .cache/venv/bin/python examples/forked/measure.py --seeds 0 --out
forks.jsonl
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import outbid as ob

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import models

CGROUP = Path("/sys/fs/cgroup/cpu")
QUOTAS = {"fast": 40, "middle": 20, "slow": 10}  # per cent of a core
POLICIES = {"single": "hadar", "forks": "hadare", "ranks": "hadar", "local": "hadar"}
OPTIONS = ["round=6s", "restart=1s"]
BINARY = os.environ.get("OUTBID_BIN") or shutil.which("outbid") or "bin/outbid"


@contextlib.contextmanager
def groups() -> Iterator[dict[str, Path]]:
    """Create a control group for each worker."""
    parent = CGROUP / f"outbid-forks-{os.getpid()}"
    parent.mkdir()
    (parent / "cpu.shares").write_text(str(256 * 1024))
    made = {}
    try:
        for name, share in QUOTAS.items():
            made[name] = parent / name
            made[name].mkdir()
            (made[name] / "cpu.cfs_period_us").write_text("100000")
            (made[name] / "cpu.cfs_quota_us").write_text(str(share * 1000))
        yield made
    finally:
        for group in [*made.values(), parent]:
            for _ in range(100):  # until its last process has ended
                try:
                    group.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)


@contextlib.contextmanager
def cluster(way: str, folder: Path, where: dict[str, Path], torch: bool = False) -> Iterator[ob.Client]:
    """Run a server, and a worker in each control group; with torch, the workers' processes import it in advance."""
    data = folder / way
    data.mkdir(parents=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(HERE), *sys.path])
    ready = data / "ready.json"
    command = [BINARY, "up", "--data", str(data), "--api", "127.0.0.1:0", "--nats-port", "0"]
    command += ["--ready-file", str(ready), "--workers", "0", "--policy", POLICIES[way]]
    for option in OPTIONS:
        command += ["--policy-option", option]
    processes = []
    with (folder / f"{way}.log").open("ab") as log, contextlib.ExitStack() as stack:

        def start(command: list[str], group: Path | None = None) -> None:
            if group is not None:
                command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]
            processes.append(subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

        def stop() -> None:
            for process in reversed(processes):
                process.send_signal(signal.SIGTERM)
                process.wait()

        stack.callback(stop)
        start(command)
        wait(ready.exists)
        at = json.loads(ready.read_text())
        for name, group in where.items():
            worker = [BINARY, "worker", "--keys", str(data / "keys"), "--nats", at["nats"], "--name", name]
            worker += ["--devices", f"{name}:1", "--dir", str(data / name), "--python", sys.executable]
            worker += ["--pass-env", "PYTHONPATH,OMP_NUM_THREADS,OPENBLAS_NUM_THREADS"]
            start(worker, group)
        client = stack.enter_context(ob.connect(at["api"]))
        for name in QUOTAS:  # each worker starts Python once and keeps it; measurements should not include that
            for model in ["images", *(models.TORCH if torch else [])]:
                submit(client, model, folder, 0, 2, ob.Resources(types=[name]), name=f"warm-{name}").wait()
        yield client


def wait(holds) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + 60
    while not holds():
        if time.monotonic() > end:
            sys.exit("not in time")
        time.sleep(0.02)


def training(model: str, folder: str, seed: int):
    """Return the function that trains a model. It need not consider forks."""

    def train(trial):
        from pathlib import Path

        import models
        import numpy as np

        net = models.make(model, Path(folder), seed)
        if "lr" in trial.config:
            net.settings = {**net.settings, "lr": trial.config["lr"]}
        if checkpoint := trial.checkpoint():
            net.state = {key: np.array(value) for key, value in checkpoint.items()}
        draw = np.random.default_rng(trial.fork.seed)
        for _ in trial.steps():
            models.train_step(net, draw, np.arange(net.samples))
            trial.save(net.state)
            trial.report(quality=net.quality())

    return train


def submit(client, model, folder, seed, steps, resources, name="", tuner=None, space=None) -> ob.SweepHandle:
    """Submit a sweep of one trial, or with a tuner."""
    return ob.Sweep(
        training(model, str(folder), seed),
        name=name or model,
        space=space or {"model": ob.constant(model)},
        metric="quality",
        mode="min",
        tuner=tuner or ob.Random(max_steps=steps, seed=seed),
        trials=None if tuner else 1,
        resources=resources,
        checkpoints=ob.Checkpoints(last=True, every="1h"),
    ).submit(client)


def ranked(client, way, model, folder, seed, steps) -> ob.SweepHandle:
    """Submit a trial of three data-parallel ranks."""
    return ob.Sweep(
        program=ob.Program([sys.executable, str(HERE / "ranks.py"), model, str(folder), str(seed), way]),
        name=model,
        space={"model": ob.constant(model)},
        metric="quality",
        mode="min",
        tuner=ob.Random(max_steps=steps, seed=seed),
        trials=1,
        resources=ob.Resources(devices=len(QUOTAS), spread=True, mixed=True, processes="per_device"),
    ).submit(client)


def run(client, way: str, workload: str, seed: int, folder: Path) -> dict:
    """Run a workload with one method and return the results."""
    many = ob.Resources(devices=1, forks="auto" if way == "forks" else None)
    steps = 1200 if workload.startswith("job") else 400
    if workload == "sweep":
        tuner = ob.ASHA(max_steps=900, min_steps=100, eta=3, seed=seed)
        space = {"lr": ob.loguniform(3e-4, 3e-2)}
        sweep = ob.Sweep(
            training("images", str(folder), seed), name="asha", space=space, metric="quality", mode="min", tuner=tuner,
            trials=9, resources=many, checkpoints=ob.Checkpoints(last=True, every="1h"),
        )  # fmt: skip
        handles = {"images": sweep.submit(client)}
    else:
        names = {"job": ["images"], "job-torch": list(models.TORCH), "mix": list(models.MODELS)}.get(workload)
        if workload == "mix-torch":  # replaces the model that is trained on the same images
            names = [*models.TORCH, *(name for name in models.MODELS if name != "images")]
        handles = {
            name: ranked(client, way, name, folder, seed, steps)
            if way in ("ranks", "local")
            else submit(client, name, folder, seed, steps, many)
            for name in names
        }
    for handle in handles.values():
        handle.wait(600)
    rows = {name: outcome(handle, folder, name, seed) for name, handle in handles.items()}
    began = min(row.pop("began") for row in rows.values())
    ends = [row.pop("over") - began for row in rows.values()]
    return {
        "workload": workload,
        "way": way,
        "seed": seed,
        "makespan": round(max(ends), 2),
        "mean_jct": round(statistics.fmean(ends), 2),
        "load": os.getloadavg()[0],
        "models": rows,
    }


def outcome(handle, folder: Path, model: str, seed: int) -> dict:
    """Return a sweep's results: its time, steps, quality, and forks."""
    info, trials = handle.info(), handle.trials()
    times = [report.time.timestamp() for report in handle.reports()]
    best = min((t for t in trials if t.metric is not None), key=lambda t: t.metrics["quality"])
    merges = [merge for trial in trials for merge in trial.merges]
    off = {"first": [], "later": []}
    for merge in merges:
        for fork in merge.forks:
            if fork.forecast and fork.steps_per_second:
                off["first" if merge.round == 1 else "later"].append(abs(fork.forecast / fork.steps_per_second - 1))
    return {
        "began": info.submitted.timestamp(),
        "over": info.ended.timestamp(),
        "trained_seconds": round(max(times) - min(times), 2),
        "steps": sum(trial.step for trial in trials),
        "quality": best.metrics["quality"],
        "rounds": sum(trial.rounds for trial in trials),
        "averaged": sum(bool(merge.averaged_on) for merge in merges),
        "forks_at_most": max((len(merge.forks) for merge in merges), default=1),
        "forecast_off": {when: round(statistics.median(errors), 3) for when, errors in off.items() if errors},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0", help="separated by commas")
    parser.add_argument("--ways", default="single,forks,local")
    parser.add_argument("--workloads", default="job,mix,sweep", help="also job-torch and mix-torch, which take torch")
    parser.add_argument("--out", type=Path, required=True, help="file to which a line is added for each run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, groups() as where:
        folder = Path(scratch)
        models.prepare(folder)
        torch = "torch" in options.workloads
        for way in options.ways.split(","):
            with cluster(way, folder, where, torch) as client, options.out.open("a") as out:
                for seed in map(int, options.seeds.split(",")):
                    for workload in options.workloads.split(","):
                        if workload == "sweep" and way in ("ranks", "local"):
                            continue
                        line = json.dumps(run(client, way, workload, seed, folder))
                        print(line, flush=True)
                        out.write(line + "\n")
                        out.flush()


if __name__ == "__main__":
    main()
