"""User-defined tuners and bidders, run like in their examples with the real binary."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from server_log import check_log

ROOT = Path(__file__).resolve().parents[3]
DEADLINE = 500.0


class Server:
    """A new `outbid up`, started at the top of the repository like in the READMEs."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.log, self.data = folder / "log", folder / "data"
        ready = folder / "ready.json"
        # python3 must be the Python that runs the tests.
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        launcher = bin_folder / "python3"
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        launcher.chmod(0o755)
        env = {
            **os.environ,
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "sdk-python" / "src"),
        }
        for name in ("OUTBID_URL", "OUTBID_TOKEN"):
            env.pop(name, None)
        command = [os.environ["OUTBID_BIN"], "up", "--data", str(self.data), "--api", "127.0.0.1:0"]
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--ready-file", str(ready), "--devices", "cpu:4", "--log-level", "info", *args],
                cwd=ROOT,
                env=env,
                stderr=log,
                stdout=log,
            )
        self.until(ready.exists, "the server is ready")
        at = json.loads(ready.read_text())
        self._env = {**env, "OUTBID_URL": at["api"]}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + DEADLINE
        pause = threading.Event()
        while not holds():
            assert self._process.poll() is None and time.monotonic() < end, (
                f"not in time: {what}\n{self.log.read_text()}"
            )
            pause.wait(0.02)

    def says(self, *words: str) -> bool:
        """Return whether any line of the log has all the words."""
        return any(all(word in line for word in words) for line in self.log.read_text().splitlines())

    def outbid(self, *args: str, stdin: str = "") -> str:
        """Run a command with the server."""
        done = subprocess.run(
            [os.environ["OUTBID_BIN"], *args],
            input=stdin,
            cwd=ROOT,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert done.returncode == 0, f"outbid {' '.join(args)}: {done.stderr}\n{self.log.read_text()}"
        return done.stdout

    def best(self, sweep: str) -> float:
        """Return the best loss of a sweep."""
        return float(json.loads(self.outbid("best", sweep, "-o", "json"))[0]["metric"])

    def bidders(self) -> Iterator[dict[str, Any]]:
        """Yield the records of every sweep in every round of the auctions."""
        for line in self.outbid("auction", "--list", "--limit", "1000", "-o", "jsonl").splitlines():
            round = json.loads(self.outbid("auction", str(json.loads(line)["round"]), "-o", "json"))
            yield from (round.get("auction") or {}).get("bidders", [])  # some rounds have no auction

    def stop(self) -> None:
        """Stop the server."""
        self._process.terminate()
        self._process.wait(DEADLINE)
        check_log(self.log)


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a server."""
    servers: list[Server] = []

    def make(*args: str) -> Server:
        servers.append(Server(tmp_path, *args))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


SPHERE = """
name: {name}
space:
  x: {{float: {{low: -5, high: 5}}}}
  y: {{float: {{low: -5, high: 5}}}}
  z: {{float: {{low: -5, high: 5}}}}
metric: loss
mode: min
tuner:
  plugin:
    command: [python3, examples/optuna-tuner/tuner.py]
    settings: {{sampler: {sampler}, trials: 60}}
    max_steps: 1
  seed: {seed}
limits: {{concurrency: 1}}
program:
  shell: |
    loss=$(awk "BEGIN {{{{ print ({{x}} - 1) ^ 2 + ({{y}} - 1) ^ 2 + ({{z}} - 1) ^ 2 }}}}")
    echo "{{{{\\"step\\": 1, \\"loss\\": $loss}}}}" >> "$OUTBID_REPORT"
"""


def test_optunas_samplers_beat_chance_in_real_sweeps(start: Start) -> None:
    pytest.importorskip("optuna")
    pytest.importorskip("cmaes")
    server = start()

    def best(name: str, seed: int) -> float:
        spec = SPHERE.format(name=f"{name}-with-seed-{seed}", sampler=name, seed=seed)
        said = server.outbid("run", "-", stdin=spec)
        assert f"{name}-with-seed-{seed}-1 done: 60 trials" in said
        return server.best(f"{name}-with-seed-{seed}-1")

    # Each sweep runs one trial after another, so its results do not depend on concurrent sweeps.
    with ThreadPoolExecutor() as pool:
        runs = {name: pool.submit(best, name, 1) for name in ("random", "tpe", "cmaes")}
        found = {name: run.result() for name, run in runs.items()}
    for name in ("tpe", "cmaes"):
        assert found[name] < 0.7 * found["random"], found


def test_the_sweep_of_the_optuna_example(start: Start) -> None:
    pytest.importorskip("optuna")
    server = start()
    assert "optuna-tuner-1 done: 60 trials" in server.outbid("run", "examples/optuna-tuner/sweep.yaml")


def test_the_sweep_of_the_tuner_example(start: Start) -> None:
    server = start()
    assert "own-tuner-1 done: 12 trials" in server.outbid("run", "examples/own-tuner/sweep.yaml")


def test_the_sweep_of_the_bidder_example(start: Start) -> None:
    server = start("--policy", "themis", "--bidder", "frugal=python3 examples/own-bidder/bidder.py")
    server.until(lambda: server.says("a bidder is up", "bidder=frugal"), "the bidder is up")
    assert "own-bidder-1 done: 6 trials" in server.outbid("run", "examples/own-bidder/sweep.yaml")
    said = [b.get("refused", "") for b in server.bidders() if b["sweep"] == "own-bidder-1"]
    assert any("it will be done in" in text for text in said), said
    assert not server.says("lost its bid")


def test_a_bidder_that_lies_loses_its_bid_and_the_cluster_goes_on(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "liar.py"
    program.write_text(
        "from outbid import plugin\n"
        "class Liar(plugin.Bidder):\n"
        "    def bid(self, offer, app):\n"
        "        return plugin.Bid(9, 1, (plugin.Row(1, (plugin.Gangs('cpu', 400),)),))\n"
        "plugin.serve(Liar())\n"
    )
    server = start("--policy", "themis", "--bidder", f"liar=python3 {program}")
    server.until(lambda: server.says("a bidder is up", "bidder=liar"), "the bidder is up")
    text = (ROOT / "examples/own-bidder/sweep.yaml").read_text()
    text = text.replace("plugin: frugal", "plugin: liar").replace("  settings: {minutes: 3}\n", "")
    assert "own-bidder-1 done: 6 trials" in server.outbid("run", "-", stdin=text)
    assert server.says("a bidder lost its bid", "bidder=liar", "own-bidder-1", "400 cpu")
    server.until(lambda: server.log.read_text().count("a bidder is up") > 1, "the bidder is up again")
    assert any("bidder liar lost its bid" in b.get("refused", "") for b in server.bidders())


def test_rounds_with_a_bidder_that_cannot_be_asked_again_are_replayed(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "dice.py"
    program.write_text(
        "import random\n"
        "from outbid import plugin\n"
        "class Dice(plugin.Bidder):\n"
        "    def bid(self, offer, app):\n"
        "        own = app.own\n"
        "        rows = tuple(plugin.Row(row.rho * random.random(), row.gangs) for row in own.rows)\n"
        "        return plugin.Bid(own.rho * (1 + random.random()), own.ideal, rows)\n"
        "plugin.serve(Dice())\n"
    )
    option = ("--policy-option", "lease=1s")
    server = start("--policy", "themis", *option, "--bidder", f"dice=python3 {program}")
    server.until(lambda: server.says("a bidder is up", "bidder=dice"), "the bidder is up")
    text = (ROOT / "examples/own-bidder/sweep.yaml").read_text()
    text = text.replace("  settings: {minutes: 3}\n", "").replace("trials: 6", "trials: 12")
    mine = text.replace("plugin: frugal", "plugin: dice")
    other = text.replace("agent:\n  plugin: frugal\n", "").replace("name: own-bidder", "name: other")
    server.outbid("submit", "-", stdin=mine)
    assert "other-1 done: 12 trials" in server.outbid("run", "-", stdin=other)
    server.outbid("watch", "own-bidder-1")
    assert [b for b in server.bidders() if b["sweep"] == "own-bidder-1" and b.get("bids")]
    ledger = tmp_path / "ledger.jsonl"
    server.outbid("export", "--ledger", str(ledger), "--data", str(server.data))
    assert "0 differ" in server.outbid("replay", str(ledger), *option)
