"""Two different workers train one trial at the same time, with real training, and every step is counted once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import live_server
import outbid as ob
from server_log import check_log

SRC = str(Path(__file__).resolve().parents[2] / "src")
DEADLINE = 500.0
STEPS = 1500
until = partial(live_server.until, deadline=DEADLINE)


def regression(trial: ob.Trial) -> None:
    """Train a linear model on this fork's samples, and write the work of each fork to its file."""
    data = np.random.default_rng(5)
    x = data.normal(size=(600, 20))
    y = x @ np.arange(20.0)
    state = trial.checkpoint() or {"w": np.zeros(20), "steps": np.array(0)}
    w, done = state["w"], int(state["steps"])
    mine = trial.shard(len(x))
    draw = np.random.default_rng(trial.fork.seed)
    pause = threading.Event()
    for _ in trial.steps():
        rows = draw.choice(mine, 32)
        w = w - 0.01 * x[rows].T @ (x[rows] @ w - y[rows]) / len(rows)
        done += 1
        pace(trial, pause)
        trial.save({"w": w, "steps": np.array(done)}, metadata={"samples": len(mine), "of": trial.fork.count})
        loss = float(np.mean((x @ w - y) ** 2))
        trial.report(loss=loss, forks=trial.fork.count, samples=len(mine), pid=os.getpid())


def biased(trial: ob.Trial) -> None:
    """Learn with a bias that differs between forks, so that only their mean is right."""
    w = (trial.checkpoint() or {"w": np.zeros(4)})["w"]
    target = np.arange(4.0) + (1 if trial.fork.index % 2 else -1) * (trial.fork.count > 1)
    pause = threading.Event()
    trial.report(loss=float(np.mean((w - np.arange(4.0)) ** 2)))
    for _ in trial.steps():
        w = w + 0.1 * (target - w)
        pace(trial, pause)
        trial.save({"w": w})
        trial.report(loss=float(np.mean((w - np.arange(4.0)) ** 2)))


def permuted(trial: ob.Trial) -> None:
    """Train a network whose hidden units are permuted in each fork, which only affects averages."""
    data = np.random.default_rng(5)
    x = data.normal(size=(200, 6))
    y = np.tanh(x @ data.normal(size=(6, 8))) @ data.normal(size=8)
    first = {"in": data.normal(size=(6, 24)), "out": data.normal(size=24) / 24}
    net = dict(trial.checkpoint() or first)
    order = np.random.default_rng(trial.fork.seed).permutation(24)
    net = {"in": net["in"][:, order], "out": net["out"][order]}

    def hidden() -> Any:
        return np.tanh(x @ net["in"])

    def loss() -> float:
        return float(np.mean((hidden() @ net["out"] - y) ** 2))

    pause = threading.Event()
    trial.report(loss=loss())
    for _ in trial.steps():
        h = hidden()
        off = (h @ net["out"] - y)[:, None] / len(x)
        back = off * net["out"] * (1 - h * h)
        net = {"in": net["in"] - 0.1 * x.T @ back, "out": net["out"] - 0.1 * (h.T @ off)[:, 0]}
        pace(trial, pause)
        trial.save(net)
        trial.report(loss=loss())


def importing(trial: ob.Trial) -> None:
    """On the slow worker, wait before the first step, like an import does; then train like `regression`."""
    folder, pause = Path(os.environ["FORKS_GATE"]).parent, threading.Event()
    if trial.devices[0].type == "slow" and not (folder / "imported").exists():
        with (folder / "imports").open("a") as file:
            print(os.getpid(), file=file)
        while not (folder / "imported").exists():
            pause.wait(0.02)
    regression(trial)


def pace(trial: ob.Trial, pause: threading.Event) -> None:
    """Wait for the duration of a step, which is long until the gate is open."""
    slow = 1 + 2 * (trial.devices[0].type == "slow")
    pause.wait((0.002 if Path(os.environ["FORKS_GATE"]).exists() else 0.08) * slow)


class Served:
    """A server with two different workers under HadarE."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "server.log"

    def start(self) -> None:
        """Start the server, possibly again."""
        env = {**os.environ, "PYTHONPATH": SRC}
        env.pop("OUTBID_DEVICES", None)
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [os.environ["OUTBID_BIN"], "up", "--data", str(self.folder / "data"), "--api", "127.0.0.1:0"]
        command += ["--nats-port", "0", "--ready-file", str(ready), "--python", sys.executable, "--workers", "2"]
        command += ["--devices", "fast:1", "--devices", "slow:1", "--policy", "hadare"]
        command += ["--policy-option", "round=4s", "--policy-option", "restart=100ms"]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, env=env, stderr=log, stdout=log)
        until(ready.exists, "the server is ready", self.log)
        self.url = json.loads(ready.read_text())["api"]
        until(lambda: self.nodes() == 2, "both workers have joined", self.log)

    def gate(self, train: Callable[[ob.Trial], None]) -> Path:
        """Return the file that makes the trials of a function end soon."""
        return self.folder / f"{train.__name__}.gate"

    def nodes(self) -> int:
        """Return the number of nodes that are up."""
        return live_server.nodes_up(self.url, DEADLINE)

    def events(self) -> list[dict[str, Any]]:
        """Return all events in the ledger."""
        return live_server.events(self.folder / "data")

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of a kind."""
        return [event[kind] for event in self.events() if kind in event]

    def kill(self) -> None:
        """Kill the server, and with it its workers and their processes."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Run a server until the end of the context."""
    server = Served(folder)
    try:
        server.start()
        yield server
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
        check_log(server.log)


def submit(server: Served, merge: str = "steps", train: Callable[[ob.Trial], None] = regression) -> Any:
    """Submit a sweep of one trial that may be forked; it ends soon after its gate is open."""
    sweep = ob.Sweep(
        train,
        {"x": ob.uniform(0, 1)},
        metric="loss",
        mode="min",
        tuner=ob.Random(max_steps=STEPS, seed=1),
        trials=1,
        resources=ob.Resources(devices=1, forks="auto", forks_merge=merge),
        checkpoints=ob.Checkpoints(last=True, every="500ms"),
        env={"FORKS_GATE": str(server.gate(train)), "OMP_NUM_THREADS": "1"},
    )
    return sweep.submit(ob.connect(server.url))


def averaged(handle: Any) -> list[Any]:
    """Return the fork slots of a sweep's only trial in which several forks were averaged."""
    return [merge for trial in handle.trials() for merge in trial.merges if merge.averaged_on]


def check_steps(server: Served, trial: Any) -> None:
    """Check that each step was counted once, and that a fork slot was averaged."""
    begins = [e for e in server.of("forks_began") if e["sweep"] == trial.sweep]
    ends = [e for e in server.of("forks_ended") if e["sweep"] == trial.sweep]
    assert any(len(end.get("forks", [])) == 2 for end in ends), f"no round was averaged: {ends}"
    for began, end in zip(begins, ends, strict=True):
        did = sum(int(fork.get("steps", 0)) for fork in end.get("forks", []))
        at = int(began.get("start", {}).get("step", 0))
        assert int(end.get("step", 0)) == at + did, f"{at} and {did} steps are not {end}"
    assert trial.step == STEPS


def check(server: Served, trial: Any) -> None:
    """Check that each step was counted once, and that the trial learned its target."""
    check_steps(server, trial)
    weights = trial.checkpoint()
    assert int(weights["steps"]) <= STEPS  # an integer is taken from the fork with the most steps
    assert float(np.max(np.abs(weights["w"] - np.arange(20.0)))) < 0.5


def show(server: Served, trial: str) -> str:
    """Return the command line's description of a trial."""
    command = [os.environ["OUTBID_BIN"], "--server", server.url, "show", trial]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_shown(server: Served, handle: Any) -> None:
    """Check that a trial's forks are shown while they train."""

    def forks() -> Any:
        trials = handle.trials()
        now = trials[0].round if trials else None
        return now.forks if now else ()

    until(
        lambda: len(forks()) == 2 and all(f.steps_per_second for f in forks()), "its forks' rates are shown", server.log
    )
    shown = handle.trials()[0]
    if shown.round is not None:  # the fork slot may have just ended
        assert {place.type for fork in shown.round.forks for place in fork.places} == {"fast", "slow"}
        assert "fork 0" in shown._repr_html_()
    until(lambda: "(fast)" in show(server, shown.id), "the command line shows them", server.log)


def check_merges(server: Served, trial: Any) -> None:
    """Check that the trial's averages are the same as in the ledger."""
    ends = server.of("forks_ended")
    assert trial.round is None
    assert trial.rounds == len(ends)
    for merge, end in zip(trial.merges, ends[-len(trial.merges) :], strict=True):
        assert merge.step == int(end.get("step", 0))
        counted = {fork.lease_id: fork.counted for fork in merge.forks if fork.counted}
        assert counted == {int(f["lease_id"]): int(f["steps"]) for f in end.get("forks", [])}
        assert merge.step - merge.from_step == sum(counted.values())
    averaged = [merge for merge in trial.merges if merge.averaged_on]
    assert averaged, trial.merges
    # The shares of the first slot are made before any measurement, and those of later slots from measurements.
    assert all(fork.forecast > 0 and fork.steps_per_second > 0 for fork in averaged[-1].forks)
    text = show(server, trial.id)
    assert f"step {averaged[-1].from_step:,} to {averaged[-1].step:,}, averaged on" in text, text
    assert "(fast)" in text and "(slow)" in text, text


def test_a_trial_is_trained_by_forks_on_unlike_workers(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        handle = submit(server)
        check_shown(server, handle)
        until(lambda: bool(averaged(handle)), "a round is averaged", server.log)
        server.gate(regression).touch()
        result = handle.wait(DEADLINE)
        check(server, result.trials[0])
        check_merges(server, handle.trials()[0])
        reports = [r for r in handle.reports() if r.metrics["forks"] == 2]
        assert reports, "no report was made by one of two forks"
        assert max(r.step for r in handle.reports()) == STEPS
        assert all(0 < r.metrics["samples"] < 600 for r in reports), "forks train on samples of their own"


def test_a_fork_and_a_server_are_killed_in_mid_round(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        handle = submit(server)
        pids: set[int] = set()

        def forked() -> bool:
            pids.update(int(r.metrics["pid"]) for r in handle.reports() if r.metrics["forks"] == 2)
            return len(pids) == 2

        until(forked, "two forks train", server.log)
        os.kill(max(pids), signal.SIGKILL)
        # The next slot begins when that of the killed fork ends.
        until(lambda: len(server.of("forks_began")) >= 2, "another round begins", server.log)
        assert len(server.of("forks_ended")) >= 1
        server.kill()
        server.start()
        again = ob.connect(server.url).attach(handle.id)
        until(lambda: bool(averaged(again)), "a round is averaged", server.log)
        server.gate(regression).touch()
        result = again.wait(DEADLINE)
        check(server, result.trials[0])
        assert result.trials[0].restarts == 0, "that forks fail is no restart of the trial"


def test_a_fork_that_has_not_begun_holds_up_no_round(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        handle = submit(server, train=importing)

        def moved() -> int:  # on a busy machine the fast worker's import may also take its first slot
            return sum(merge.step > merge.from_step for trial in handle.trials() for merge in trial.merges)

        until(lambda: moved() >= 3, "the fast worker's steps count in three rounds", server.log)
        imports = (tmp_path / "imports").read_text().split()
        assert len(imports) == 1, f"the slow worker's import was begun anew, by {imports}"
        (tmp_path / "imported").touch()
        until(lambda: bool(averaged(handle)), "a round is averaged", server.log)
        server.gate(importing).touch()
        result = handle.wait(DEADLINE)
        check(server, result.trials[0])
        trained = {int(r.metrics["pid"]) for r in handle.reports()}
        assert int(imports[0]) in trained, "the process that had imported did not train"
        assert result.trials[0].restarts == 0, "a fork that is late is no restart of the trial"


def test_an_outer_optimizer_goes_on_from_round_to_round(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        handle = submit(server, "outer(0.9, 0.2)")
        until(lambda: len(averaged(handle)) >= 2, "two rounds are averaged", server.log)
        server.gate(regression).touch()
        trial = handle.wait(DEADLINE).trials[0]
        merged = [end["checkpoint"] for end in server.of("forks_ended") if len(end.get("forks", [])) == 2]
        outer = [checkpoint for checkpoint in merged if "outer" in checkpoint]
        assert len(merged) >= 2, f"too few rounds were averaged: {merged}"
        assert outer, f"no round moved on from another: {merged}"
        assert float(np.max(np.abs(trial.checkpoint()["w"] - np.arange(20.0)))) < 0.5
        left = [path.name for path in (tmp_path / "data").rglob("*.outer")]
        assert len(left) <= 2, f"states that nothing needs are left: {left}"


def test_only_averages_that_help_are_kept(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        for train, verdict in ((permuted, "dropped"), (biased, "kept")):
            handle = submit(server, "best", train)
            until(
                lambda handle=handle, verdict=verdict: any(m.verdict == verdict for m in averaged(handle)),  # type: ignore[misc]
                f"an average of {train.__name__} is {verdict}",
                server.log,
            )
            merge = next(m for m in averaged(handle) if m.verdict == verdict)
            worse = merge.metric is not None and merge.metric > merge.best_metric
            assert worse == (verdict == "dropped"), merge
            trial = handle.trials()[0]
            assert trial.step >= merge.step, f"steps were taken back: {trial}, {merge}"
            shown = show(server, trial.id)
            assert f"{verdict}: " in shown and "and the best fork" in shown, shown
            server.gate(train).touch()
            result = handle.wait(DEADLINE)
            check_steps(server, result.trials[0])
            assert max(r.step for r in handle.reports() if not r.superseded) == STEPS
        judged = server.of("merge_judged")
        dropped = [e for e in judged if e["verdict"] == "MERGE_VERDICT_DROPPED"]
        assert dropped and all(e["metric"] > e["best"] for e in dropped)
        instead = {e["checkpoint"]["key"] for e in dropped}
        assert instead.isdisjoint(e["key"] for e in judged), "an average is gone on from"
        metrics = urllib.request.urlopen(f"{server.url}/metrics", timeout=DEADLINE).read().decode()
        assert f'outbid_merges_total{{what="dropped"}} {len(dropped)}' in metrics
