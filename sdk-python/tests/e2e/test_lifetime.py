"""Programs that are interrupted or killed, and the servers that they started."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import SRC

DEADLINE = 500.0

SWEEP = """
import os, sys, time
import numpy as np
import outbid as ob

GO_ON = os.path.abspath("go-on")  # until it is there, nothing ends while a test is still about to stop it

def train(trial):
    weights = trial.checkpoint() or {"done": np.zeros((), dtype=np.int64)}
    for step in trial.steps():
        weights["done"] += 1
        assert weights["done"] == step
        time.sleep(0.05 if step < 10 or os.path.exists(GO_ON) else 1)
        trial.save(weights)
        trial.report(step=step, loss=trial.config.x / step, pid=os.getpid())

class Told(ob.Callback):
    def on_report(self, trial, report):
        print("report", trial.number, report.step, int(report.metrics["pid"]), flush=True)

sweep = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", name="long",
                 tuner=ob.Random(max_steps=40, seed=1), trials=4, checkpoints=ob.Checkpoints(every=0.2))
"""
RUN = SWEEP + "sweep.run(display=False, callbacks=[Told()])\n"
GO_ON = """
import outbid as ob
open("go-on", "w").close()
handle = ob.attach("long")
before = {t.number: t.step for t in handle.trials()}
result = handle.resume().wait()
reports = [(r.trial, r.step) for r in result.reports()]
assert len(reports) == len(set(reports)), "a step was counted twice"
print("steps before", max(before.values()))
print("ended", result.sweep.state, [t.step for t in result.trials], int(result.best.checkpoint()["done"]))
"""
ENDED = "ended done [40, 40, 40, 40] 40"


class Program:
    """A Python program in a new directory, whose output is read as it arrives."""

    def __init__(self, place: Path, text: str) -> None:
        env = {k: v for k, v in os.environ.items() if k not in ("OUTBID_URL", "OUTBID_TOKEN")}
        self.lines: list[str] = []
        self.pids: set[int] = set()
        self.process = subprocess.Popen(
            [sys.executable, "-c", text],
            cwd=place,
            env={**env, "PYTHONPATH": SRC},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def until(self, text: str) -> None:
        """Read until a line with this prefix, or to the end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            words = line.split()
            if words and words[0] == "report":
                self.pids.add(int(words[3]))
            if line.startswith(text) and text:
                return
        assert not text, f"it never said {text!r}: {self.lines}"

    def end(self) -> int:
        """Read to the end; returns the exit code."""
        self.until("")
        return self.process.wait(DEADLINE)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[str], Program]]:
    made: list[Program] = []

    def start(text: str) -> Program:
        made.append(Program(tmp_path, text))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        assert one.process.stdout is not None
        one.process.stdout.close()
        print(one.text)  # shown if a test fails
    end_server(tmp_path)


def end_server(place: Path) -> None:
    """Kill the server, if it runs: a server that was killed leaves its id, which another process may have by now."""
    try:
        file = (place / ".outbid" / "server.json").open()
    except FileNotFoundError:
        return
    with file, contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return
    os.kill(server_pid(place), signal.SIGKILL)


def server_pid(place: Path) -> int:
    try:
        return int(json.loads((place / ".outbid" / "server.json").read_text())["pid"])
    except FileNotFoundError:
        return 0


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def await_end(*pids: int) -> float:
    """Wait until processes have ended; returns the seconds that it took."""
    start = time.monotonic()
    while any(alive(pid) for pid in pids):
        assert time.monotonic() - start < DEADLINE, f"{pids} are still there"
        time.sleep(0.02)
    return time.monotonic() - start


def goes_on(program: Callable[[str], Program]) -> None:
    """Check that a new program continues from the checkpoints, and that all results are complete."""
    after = program(GO_ON)
    assert after.end() == 0, after.text
    assert ENDED in after.lines, after.text  # on a busy machine the server may add that it is still saving
    at = after.lines.index(ENDED)
    assert int(after.lines[at - 1].split()[-1]) >= 5, "it began anew"


def test_interrupt_saves_and_pauses(program: Callable[[str], Program], tmp_path: Path) -> None:
    first = program(RUN)
    first.until("report 0 5 ")
    server = server_pid(tmp_path)
    first.interrupt()
    assert first.end() in (-signal.SIGINT, 130), first.text
    assert "long-1 is paused, and its trials are saved" in first.text
    assert "Traceback" not in first.text and "KeyboardInterrupt" not in first.text, first.text
    assert "continue with ob.attach('long-1').resume().wait(display=True)" in first.text
    assert "`outbid up` and, in another shell, `outbid resume long-1`" in first.text
    assert not alive(server), "the server ended before the program did"
    await_end(*first.pids)
    goes_on(program)


OPTIMIZE = """
import time
import outbid.optuna

def objective(trial):
    time.sleep(0.05)
    return trial.suggest_float("x", 0, 1)

def told(study, trial):
    print("told", trial.number, flush=True)

outbid.optuna.optimize(objective, 1000, callbacks=[told], display=False)
"""


def test_interrupt_of_an_optuna_study_says_where_that_is(program: Callable[[str], Program]) -> None:
    pytest.importorskip("optuna")
    first = program(OPTIMIZE)
    first.until("told 2")
    first.interrupt()
    assert first.end() in (-signal.SIGINT, 130), first.text
    assert "Traceback" not in first.text and "KeyboardInterrupt" not in first.text, first.text
    assert "  continue with ob.attach(" in first.text and "  its study: optuna.load_study(" in first.text, first.text


def test_second_interrupt_ends_at_once(program: Callable[[str], Program], tmp_path: Path) -> None:
    first = program(RUN.replace("time.sleep(0.05 if step", "time.sleep(2 if step in (6, 7) else 0.05 if step"))
    first.until("report 0 5 ")
    server = server_pid(tmp_path)
    first.interrupt()
    first.until("long-1: saving its trials and pausing")
    first.interrupt()
    assert first.end() in (-signal.SIGINT, 130), first.text
    assert "long-1 is being paused" in first.text and "Traceback" not in first.text, first.text
    await_end(server, *first.pids)
    goes_on(program)


def test_in_a_shell_it_goes_on_with_what_was_printed(program: Callable[[str], Program], tmp_path: Path) -> None:
    first = program(RUN)
    first.until("report 0 5 ")
    first.interrupt()
    first.end()
    (tmp_path / "go-on").touch()
    env = {**os.environ, "PYTHONPATH": SRC}
    binary = os.environ["OUTBID_BIN"]
    up = subprocess.Popen([binary, "up"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert up.stdout is not None
        up.stdout.readline()
        resume = subprocess.run([binary, "resume", "long-1"], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert resume.returncode == 0 and resume.stdout.startswith("long-1 is running"), resume.stderr
        watch = subprocess.run([binary, "watch", "long-1"], cwd=tmp_path, env=env, timeout=DEADLINE)
        assert watch.returncode == 0
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=DEADLINE)


def test_killed_python_takes_server_and_trials_along(program: Callable[[str], Program], tmp_path: Path) -> None:
    first = program(RUN)
    first.until("report 0 5 ")
    server = server_pid(tmp_path)
    first.process.kill()
    first.end()
    took = await_end(server, *first.pids)
    assert took < 60, f"the server outlived its only client by {took:.0f} s"
    log = (tmp_path / ".outbid" / "server.log").read_text()
    assert "the last client has gone" in log
    # It was not paused, so it continues as soon as there is a server.
    after = program(GO_ON.replace(".resume()", ""))
    assert after.end() == 0, after.text
    assert ENDED in after.lines, after.text  # on a busy machine the server may add that it is still saving
    at = after.lines.index(ENDED)
    assert int(after.lines[at - 1].split()[-1]) >= 5, "it began anew"


OTHER = """
import outbid as ob
sweep = ob.Sweep(lambda trial: 1.0, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", name="other", trials=1)
print("other", sweep.run(display=False).sweep.state)
print("long", ob.attach("long").info().state)
"""


def test_a_killed_programs_sweep_is_paused_by_the_next_one(program: Callable[[str], Program], tmp_path: Path) -> None:
    first = program(RUN)
    first.until("report 0 5 ")
    first.process.kill()
    first.end()
    await_end(server_pid(tmp_path))
    paused = (
        "outbid: paused long-1: the program that submitted it has ended. Continue it with ob.attach('long-1').resume()"
    )
    for told in (1, 0):
        after = program(OTHER)
        assert after.end() == 0, after.text
        assert after.text.count(paused) == told and {"other done", "long paused"} <= set(after.lines)


def test_a_second_client_keeps_the_server(program: Callable[[str], Program], tmp_path: Path) -> None:
    first = program(RUN)
    first.until("report 0 5 ")
    server = server_pid(tmp_path)
    wait = GO_ON.replace(".resume()", "").replace("before =", "print('attached', flush=True); before =")
    wait = wait.replace('open("go-on", "w").close()', "")
    second = program(textwrap.dedent(wait))
    second.until("attached")
    first.process.kill()
    first.end()
    (tmp_path / "go-on").touch()
    assert second.end() == 0, second.text
    assert ENDED in second.lines, second.text
    assert (tmp_path / ".outbid" / "server.log").read_text().count(" is up at ") == 1, "it was the same server"
    await_end(server)


def test_interrupted_notebook(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.v4.new_notebook()
    book.cells = [
        nbformat.v4.new_code_cell(text)
        for text in (
            SWEEP,
            "sweep.run(callbacks=[Told()])",
            "open(GO_ON, 'w').close(); result = sweep.handle.resume().wait(); result.sweep.state",
        )
    ]
    book.cells[1].metadata["tags"] = ["raises-exception"]
    env = {k: v for k, v in os.environ.items() if k not in ("OUTBID_URL", "OUTBID_TOKEN")}
    pressed = threading.Event()

    class Client(nbclient.NotebookClient):  # type: ignore[misc, name-defined]
        printed = ""  # on a busy machine a kernel splits a line into several messages

        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            self.printed += str(msg["content"].get("text", ""))
            if "report 0 5 " in self.printed and not pressed.is_set():
                pressed.set()
                os.kill(self.km.provisioner.process.pid, signal.SIGINT)  # like the button does
            return super().process_message(msg, cell, cell_index)

    client = Client(book, timeout=DEADLINE, resources={"metadata": {"path": str(tmp_path)}})
    try:
        client.execute(env={**env, "PYTHONPATH": SRC, "JUPYTER_PLATFORM_DIRS": "1"})
    except nbclient.exceptions.CellExecutionError:
        pytest.fail(f"a cell failed; the interrupted one said {book.cells[1].outputs}")
    assert pressed.is_set()
    said = "".join(o["text"] for o in book.cells[1].outputs if o.get("name") == "stderr")
    assert "continue with ob.attach('long-1').resume().wait(display=True)\n  or `outbid resume long-1`" in said
    assert [o for o in book.cells[1].outputs if o["output_type"] == "error"] == [], "no traceback: all was said"
    assert book.cells[2].outputs[-1]["data"]["text/plain"] == "'done'"
    if pid := server_pid(tmp_path):
        await_end(pid)
