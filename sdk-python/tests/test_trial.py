"""The training process: the real `python -m outbid.trial_process` with a fake worker."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fake_worker import DEADLINE, FakeWorker
from outbid import Trial
from outbid.v1 import bus_pb2

Make = Callable[..., FakeWorker]


def stepping(trial: Trial) -> None:
    weights: dict[str, Any] = {"w": np.zeros(3, dtype=np.float32)}
    if (checkpoint := trial.checkpoint()) is not None:
        weights = checkpoint
    for step in trial.steps():
        weights["w"] += 1
        trial.save(weights, metadata={"step": step})
        trial.report(step=step, loss=1 / step)
    print("the loop ended")


def test_hello_shows_the_secret(worker: Make) -> None:
    hello = worker(stepping).hear("hello")
    assert hello.session == "secret"
    assert hello.sdk_version


def test_target_save_reach_and_train_on(worker: Make) -> None:
    w = worker(stepping)
    w.hear("hello")
    w.assign(until_step=2)
    reports = w.reports(2)
    assert [(r.seq, r.step, dict(r.metrics)) for r in reports] == [(1, 1, {"loss": 1.0}), (2, 2, {"loss": 0.5})]
    assert all(r.HasField("time") and r.train_seconds >= 0 for r in reports)
    saved = w.hear("saved")
    assert saved.step == 2
    assert saved.metric == 0.5
    assert Path(saved.path).parent == w.scratch
    np.testing.assert_array_equal(load_file(saved.path)["w"], np.full(3, 2, dtype=np.float32))
    assert w.said.empty(), "Reached must wait until the checkpoint is in the store"
    w.save_done(2)
    assert w.hear("reached").step == 2
    w.direct("train", until_step=3)
    assert w.reports(1)[0].step == 3
    assert w.hear("saved").step == 3
    w.save_done(3)
    assert w.hear("reached").step == 3
    w.direct("stop")
    ended = w.hear("ended")
    assert (ended.step, ended.error, ended.ordered) == (3, "", True)


def test_a_fork_of_a_round_says_once_that_it_begins(worker: Make) -> None:
    w = worker(stepping)
    w.hear("hello")
    w.assign(until_step=2, part=bus_pb2.ForkPart(count=2, share=2))
    assert w.hear("began").fork.lease_id
    w.reports(2)
    w.hear("saved")
    w.save_done(2)
    w.hear("reached")
    w.direct("stop")
    w.hear("ended")
    w.assign(until_step=2)  # without a round
    w.reports(2)


def test_a_fork_that_is_stopped_before_its_first_step_does_not_begin(worker: Make) -> None:
    w = worker(stepping)
    w.hear("hello")
    w.assign(until_step=2, start_step=2, part=bus_pb2.ForkPart(count=2, share=2))
    w.hear("reached")
    w.direct("stop")
    w.hear("ended")


def test_resume_from_a_checkpoint(worker: Make, tmp_path: Path) -> None:
    start = tmp_path / "start.safetensors"
    save_file({"w": np.full(3, 7, dtype=np.float32)}, start)
    w = worker(stepping)
    w.hear("hello")
    w.assign(start_step=7, until_step=8, checkpoint_path=str(start))
    assert w.reports(1)[0].step == 8
    np.testing.assert_array_equal(load_file(w.hear("saved").path)["w"], np.full(3, 8, dtype=np.float32))


def test_start_at_the_target_reaches_at_once(worker: Make, tmp_path: Path) -> None:
    start = tmp_path / "start.safetensors"
    save_file({"w": np.zeros(3, dtype=np.float32)}, start)
    w = worker(stepping)
    w.hear("hello")
    w.assign(start_step=4, until_step=4, checkpoint_path=str(start))
    assert w.hear("reached").step == 4
    w.direct("pause")
    assert w.hear("ended").ordered


def test_pause_at_the_target(worker: Make) -> None:
    w = worker(stepping)
    w.hear("hello")
    w.assign(until_step=1)
    w.reports(1)
    w.hear("saved")
    w.save_done(1)
    w.hear("reached")
    w.direct("pause")
    ended = w.hear("ended")
    assert (ended.step, ended.ordered) == (1, True)


def gated(trial: Trial) -> None:
    """Do a step for each byte in a pipe, so that a test controls what happens during a step."""
    with open(trial.config.gate, "rb", buffering=0) as gate:
        for step in trial.steps():
            trial.save({"w": np.array([step])})
            trial.report(step=step, loss=1.0)
            gate.read(1)


class Gate:
    """The test's end of the pipe."""

    def __init__(self, tmp: Path) -> None:
        self.path = str(tmp / "gate")
        os.mkfifo(self.path)
        self.config = json.dumps({"gate": self.path})
        self._pipe = open(self.path, "r+b", buffering=0)

    def open(self, steps: int = 1) -> None:
        """Let the trial finish this many steps."""
        self._pipe.write(b"." * steps)

    def pass_reports(self, w: FakeWorker) -> tuple[int, Any]:
        """Continue until the trial sends a message other than a report. Return the last step and the message."""
        step = 1
        while (message := w.said.get(timeout=DEADLINE)).WhichOneof("kind") == "reports":
            step = message.reports.reports[-1].step
            self.open()
        return step, message


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made._pipe.close()


def test_pause_in_the_middle_saves_the_body_that_ran(worker: Make, gate: Gate) -> None:
    w = worker(gated)
    w.hear("hello")
    w.assign(gate.config)
    w.reports(1)
    w.direct("pause")
    assert w.said.empty()
    gate.open()
    # The directive may arrive after the step: then one more step is done before it is noticed.
    step, message = gate.pass_reports(w)
    assert message.saved.step == step
    w.save_done(step)
    ended = w.hear("ended")
    assert (ended.step, ended.ordered, ended.error) == (step, True, "")


def test_stop_in_the_middle_saves_nothing(worker: Make, gate: Gate) -> None:
    w = worker(gated)
    w.hear("hello")
    w.assign(gate.config)
    gate.open(4)
    w.reports(5)
    w.direct("stop")
    gate.open()
    _, message = gate.pass_reports(w)
    assert message.ended.ordered


def test_save_directive_saves_and_goes_on(worker: Make, gate: Gate) -> None:
    w = worker(gated)
    w.hear("hello")
    w.assign(gate.config)
    w.reports(1)
    w.direct(save=True)
    gate.open()
    step, message = gate.pass_reports(w)
    assert message.saved.step >= step
    gate.open()
    assert w.until("reports").reports[0].step > step
    w.direct("stop")
    gate.open()
    assert gate.pass_reports(w)[1].ended.ordered


def valley(trial: Trial) -> None:
    for step in trial.steps():
        trial.save({"w": np.array([step])})
        trial.report(loss=abs(step - 3))


@pytest.mark.parametrize("keep", [True, False])
def test_the_weights_of_the_best_report_are_saved_too(worker: Make, keep: bool) -> None:
    w = worker(valley)
    w.assign(until_step=7, keep_best=keep)
    newest = w.until("saved")
    assert (newest.step, newest.metric) == (7, 4.0)
    w.save_done(7)
    if keep:
        best = w.until("saved")
        assert (best.step, best.metric) == (3, 0.0)
        assert load_file(best.path)["w"].tolist() == [3]
        w.save_done(3)
    assert w.until("reached").step == 7
    w.direct("train", until_step=9)
    assert w.until("saved").step == 9, "a stored step is not stored again"
    w.save_done(9)
    w.until("reached")
    w.direct("stop")


def test_save_every(worker: Make) -> None:
    w = worker(stepping)
    w.hear("hello")
    w.assign(save_every=1e-6)
    saved = w.until("saved")
    w.save_done(saved.step)
    later = w.until("saved")
    assert later.step > saved.step
    w.direct("stop")
    assert w.until("ended").ordered


def test_store_down_keeps_trying(worker: Make) -> None:
    w = worker(stepping)
    w.hear("hello")
    w.assign(until_step=1)
    w.reports(1)
    first = w.hear("saved")
    w.save_done(1, error="object store is unavailable")
    again = w.hear("saved")
    assert again.step == 1
    assert again.path != first.path
    w.save_done(1, error="object store is unavailable")
    w.hear("saved")
    w.save_done(1)
    w.hear("reached")
    w.shutdown()
    w.until("ended")
    assert "not stored yet: object store is unavailable" in w.output()[1]


def test_stop_ends_the_waiting_for_the_store(worker: Make) -> None:
    w = worker(stepping)
    w.hear("hello")
    w.assign(until_step=1)
    w.reports(1)
    w.hear("saved")
    w.save_done(1, error="object store is full")
    w.direct("stop")
    assert w.until("ended").ordered


def returns_early(trial: Trial) -> None:
    for step in trial.steps():
        trial.save({"w": np.array([step])})
        trial.report(loss=1.0)
        if step == 3:
            break


def test_return_before_the_target(worker: Make) -> None:
    w = worker(returns_early)
    w.hear("hello")
    w.assign(until_step=10)
    assert [r.step for r in w.reports(3)] == [1, 2, 3]
    assert w.hear("saved").step == 3, "the newest weights are kept"
    w.save_done(3)
    ended = w.hear("ended")
    assert (ended.step, ended.error, ended.ordered) == (3, "", False)


def only_reports(trial: Trial) -> None:
    for _ in range(trial.start_step, 100):
        trial.save({"w": np.array([1.0])})
        trial.report(loss=1.0)


def test_reports_alone_count_steps_and_hold_at_the_target(worker: Make) -> None:
    w = worker(only_reports)
    w.hear("hello")
    w.assign(until_step=2)
    assert [r.step for r in w.reports(2)] == [1, 2]
    assert w.hear("saved").step == 2
    w.save_done(2)
    assert w.hear("reached").step == 2
    w.direct("train", until_step=4)
    assert [r.step for r in w.reports(2)] == [3, 4]
    w.hear("saved")
    w.save_done(4)
    w.hear("reached")
    w.direct("pause")
    ended = w.hear("ended")
    assert (ended.step, ended.error, ended.ordered) == (4, "", True)


def fails(trial: Trial) -> None:
    print("about to fail")
    if trial.config.bad:
        raise ValueError("no such\nthing")
    trial.report(loss=0.0)


def test_exception_is_told_and_the_process_stays_warm(worker: Make) -> None:
    w = worker(fails)
    pid = w.hear("hello").pid
    w.assign('{"bad": true}', trial=3)
    ended = w.hear("ended")
    assert ended.error == "ValueError: no such thing"
    assert "raise ValueError" in ended.traceback
    assert "outbid/_training/process.py" not in ended.traceback, "the runner's frames are left out"
    assert not ended.ordered
    w.assign('{"bad": false}', trial=4)
    w.reports(1)
    assert w.hear("ended").error == ""
    assert w.process.pid == pid
    w.shutdown()
    out, err = w.output()
    assert out == "\x1eoutbid:s-1/3@1\nabout to fail\n\x1eoutbid:s-1/4@2\nabout to fail\n"
    assert "ValueError: no such\nthing" in err
    assert err.startswith("\x1eoutbid:s-1/3@1\n")
    assert w.process.returncode == 0


def exits(trial: Trial) -> None:
    sys.exit(trial.config.code)


@pytest.mark.parametrize(("code", "error"), [(0, ""), (2, "SystemExit: 2"), ('"bye"', "SystemExit: bye")])
def test_sys_exit(worker: Make, code: Any, error: str) -> None:
    w = worker(exits)
    w.hear("hello")
    w.assign(f'{{"code": {code}}}')
    assert w.hear("ended").error == error


def test_broken_stream_ends_the_process(worker: Make, gate: Gate) -> None:
    w = worker(gated)
    w.hear("hello")
    w.assign(gate.config)
    w.reports(1)
    w.break_stream()
    _, err = w.output()
    assert w.process.returncode == 3
    assert "lost the worker" in err


def test_shutdown_of_an_idle_process(worker: Make) -> None:
    w = worker(stepping)
    w.hear("hello")
    w.shutdown()
    w.output()
    assert w.process.returncode == 0


def test_sigterm_without_a_trial(worker: Make) -> None:
    w = worker(stepping)
    w.hear("hello")
    w.assign(until_step=1)  # so that the signal handler is certainly installed
    w.until("saved")
    w.save_done(1)
    w.hear("reached")
    w.direct("stop")
    w.hear("ended")
    w.process.send_signal(signal.SIGTERM)
    w.output()
    assert w.process.returncode == 0


def test_sigterm_saves_like_a_pause(worker: Make, gate: Gate) -> None:
    w = worker(gated)
    w.hear("hello")
    w.assign(gate.config)
    w.reports(1)
    w.process.send_signal(signal.SIGTERM)
    gate.open()
    step, message = gate.pass_reports(w)
    assert message.saved.step == step
    w.save_done(step)
    assert w.hear("ended").ordered
    w.output()
    assert w.process.returncode == 0


def odd_metrics(trial: Trial) -> None:
    trial.report(
        {"nan": float("nan"), "inf": float("-inf")},
        step=0,
        np32=np.float32(0.5),
        zero_d=np.array(2),
        whole=3,
        flag=True,
        loss=float("nan"),
    )


def test_odd_metrics_arrive(worker: Make) -> None:
    w = worker(odd_metrics)
    w.hear("hello")
    w.assign()
    report = w.reports(1)[0]
    assert report.step == 0
    values = dict(report.metrics)
    assert np.isnan(values.pop("nan"))
    assert np.isnan(values.pop("loss"))
    assert values == {"inf": -np.inf, "np32": 0.5, "zero_d": 2, "whole": 3, "flag": 1}
    assert w.hear("ended").error == ""


def config_types(trial: Trial) -> None:
    c = trial.config
    assert type(c["units"]) is int
    assert type(c.lr) is float
    assert type(c["optimizer"]["beta"]) is float
    assert c.optimizer.name == "sgd"
    assert (trial.number, trial.id, trial.seed) == (5, "s-1/5", 2**64 - 1)
    assert trial.devices[0].type == "v100"
    assert trial.checkpoint() is None
    assert trial.checkpoint_path is None
    assert trial.metadata == {}
    assert trial.start_step == 0


def test_what_a_trial_knows(worker: Make) -> None:
    from outbid.v1 import node_pb2

    w = worker(config_types)
    w.hear("hello")
    w.assign(
        '{"lr":1e-05,"optimizer":{"beta":1.0,"name":"sgd"},"units":32}',
        trial=5,
        seed=2**64 - 1,
        devices=[node_pb2.Device(index=2, type="v100", name="Tesla V100", memory_bytes=1 << 34)],
    )
    assert w.hear("ended").error == ""


def random_numbers(trial: Trial) -> None:
    import random

    trial.report(a=random.random(), b=np.random.random())


def test_generators_are_seeded_per_trial(worker: Make) -> None:
    w = worker(random_numbers)
    w.hear("hello")
    seen = []
    for seed in (1, 2, 1):
        w.assign(seed=seed)
        seen.append(dict(w.reports(1)[0].metrics))
        w.hear("ended")
    assert seen[0] == seen[2] != seen[1]
    assert seen[0] == {"a": random.Random(1).random(), "b": np.random.RandomState(1).random_sample()}


def without_numpy(trial: Trial) -> None:
    import sys

    found = "numpy" in sys.modules
    if trial.number == 1:
        import numpy

        trial.report(loaded=found, b=numpy.random.random())
    else:
        trial.report(loaded=found)


def test_numpy_is_seeded_when_training_code_loads_it(worker: Make) -> None:
    w = worker(without_numpy)
    w.hear("hello")
    seen = []
    for trial in (0, 1, 1):
        w.assign(seed=7 + trial, trial=trial)
        seen.append(dict(w.reports(1)[0].metrics))
        w.hear("ended")
    drawn = np.random.RandomState(8).random_sample()
    assert seen == [{"loaded": 0}, {"loaded": 0, "b": drawn}, {"loaded": 1, "b": drawn}]


def wait_for_a_signal(up: Any) -> None:
    up.send("up")
    signal.pause()


def forks(trial: Trial) -> None:
    import multiprocessing
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12: fork with threads
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        child = context.Process(target=wait_for_a_signal, args=(theirs,))
        child.start()
        ours.recv()
        child.terminate()
        child.join(20)
    trial.report(code=child.exitcode or 0)


@pytest.mark.skipif(sys.platform != "linux", reason="fork")
def test_sigterm_kills_forked_children(worker: Make) -> None:
    w = worker(forks)
    w.hear("hello")
    w.assign()
    assert dict(w.reports(1)[0].metrics) == {"code": -signal.SIGTERM}


def reports_in_a_child(trial: Trial) -> None:
    from outbid.v1 import session_pb2

    child = os.fork()
    if child == 0:
        trial.report(loss=13.0)  # must not be mixed into the parent's messages
        trial._session.send(session_pb2.AttachRequest())
        os._exit(0)
    trial.report(code=os.waitpid(child, 0)[1])


@pytest.mark.skipif(sys.platform != "linux", reason="fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_children_say_nothing(worker: Make) -> None:
    w = worker(reports_in_a_child)
    w.hear("hello")
    w.assign()
    assert dict(w.reports(1)[0].metrics) == {"code": 0}
    w.hear("ended")


def test_missing_module_is_named(worker: Make) -> None:
    w = worker()
    # A function that was pickled elsewhere may name a module that is not installed here.
    body = b"\x80\x04\x8c\x0fno_such_library\x8c\x05train\x93."
    w.function_path.write_bytes(
        f"outbid function 1 python={sys.version_info.major}.{sys.version_info.minor}\n".encode() + body
    )
    w.hear("hello")
    w.assign()
    error = w.hear("ended").error
    assert "needs the module 'no_such_library'" in error
    assert "install it there" in error


def test_damaged_checkpoint(worker: Make, tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"not safetensors")
    w = worker(stepping)
    w.hear("hello")
    w.assign(start_step=1, checkpoint_path=str(bad))
    assert w.hear("ended").error.startswith(f"CheckpointError: cannot read the checkpoint {bad}")


def metadata_round(trial: Trial) -> None:
    metadata = trial.metadata
    for step in trial.steps():
        trial.save({"w": np.zeros(1)}, metadata={"seen": [*metadata.get("seen", []), step], "lr": np.float64(0.5)})


def test_metadata_travels_with_the_checkpoint(worker: Make) -> None:
    w = worker(metadata_round)
    w.hear("hello")
    w.assign(until_step=1)
    first = w.hear("saved").path
    w.save_done(1)
    w.hear("reached")
    w.direct("stop")
    w.hear("ended")
    w.assign(start_step=1, until_step=2, checkpoint_path=first)
    from outbid._training.tensors import read

    assert read(w.hear("saved").path)[1] == {"seen": [1, 2], "lr": 0.5}


def test_started_by_hand() -> None:
    import subprocess

    env = {k: v for k, v in os.environ.items() if not k.startswith("OUTBID_")}
    done = subprocess.run(
        [sys.executable, "-m", "outbid.trial_process"],
        env={**env, "PYTHONPATH": str(Path(__file__).parents[1] / "src")},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 2
    assert "OUTBID_STREAM is not set" in done.stderr
