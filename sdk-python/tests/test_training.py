"""The trial object alone, with the worker's messages put directly into its inbox."""

from __future__ import annotations

import json
import math
import queue
import threading
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import outbid as ob
from outbid import StopTrial, Trial
from outbid._training import process
from outbid._training.notes import drawn
from outbid._training.session import Incoming, Terminate
from outbid.integrations.frameworks import _step
from outbid.v1 import bus_pb2, event_pb2, node_pb2, session_pb2


class Worker:
    """Answers a trial at once from a script."""

    def __init__(self, tmp_path: Path, **fields: Any) -> None:
        self.inbox: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self.said: list[str] = []
        self.reports: list[event_pb2.Report] = []
        self.fork = node_pb2.ForkRef(sweep="s-1", trial=0, lease_id=1)
        self.targets: list[int] = []  # the answers to Reached; stop if empty
        self.save_errors: list[str] = []
        fields.setdefault("config_json", "{}")
        self.trial = Trial(session_pb2.TrialAssignment(fork=self.fork, scratch=str(tmp_path), **fields), self)

    def report(self, fork: node_pb2.ForkRef, report: event_pb2.Report) -> None:
        self.said.append(f"report {report.step}")
        self.reports.append(report)

    def send(self, message: session_pb2.AttachRequest) -> None:
        kind = message.WhichOneof("kind")
        if kind == "saved":
            self.said.append(f"saved {message.saved.step}")
            error = self.save_errors.pop(0) if self.save_errors else ""
            done = session_pb2.SaveDone(fork=self.fork, step=message.saved.step, error=error)
            self.inbox.put(session_pb2.AttachResponse(save_done=done))
        elif kind == "reached":
            self.said.append(f"reached {message.reached.step}")
            if self.targets:
                self.direct("TRAIN", self.targets.pop(0))
            else:
                self.direct("STOP")
        elif kind == "ended":
            ended = message.ended
            self.said.append(f"ended {ended.step}" + (" ordered" if ended.ordered else ""))

    def direct(self, verdict: str, until_step: int = 0, **fields: Any) -> None:
        directive = session_pb2.Directive(
            fork=fields.pop("fork", self.fork),
            verdict=bus_pb2.Verdict.Value(f"VERDICT_{verdict}"),
            until_step=until_step,
            **fields,
        )
        self.inbox.put(session_pb2.AttachResponse(directive=directive))


def weights(step: int) -> dict[str, Any]:
    return {"w": np.array([step])}


def test_steps_count_what_is_done(tmp_path: Path) -> None:
    w = Worker(tmp_path, start_step=3, until_step=5)
    w.targets = [6]
    assert list(w.trial.steps()) == [4, 5, 6]
    assert w.said == ["reached 5", "reached 6"]


def test_orders_may_come_twice(tmp_path: Path) -> None:
    w = Worker(tmp_path, until_step=1)
    w.direct("TRAIN", 1)
    w.direct("TRAIN", 1)
    w.targets = [1, 2]  # an old directive first, which is not an answer
    steps = w.trial.steps()
    assert next(steps) == 1
    w.direct("TRAIN", 2)
    assert next(steps) == 2, "the target increased before it was reached"
    assert w.said == []


def test_old_order_is_no_answer(tmp_path: Path) -> None:
    w = Worker(tmp_path, until_step=1)
    w.targets = [1]
    steps = w.trial.steps()
    next(steps)
    w.direct("TRAIN", 1)
    w.inbox.put(session_pb2.AttachResponse())
    # The first answer to Reached repeats the old target, like when only acked_seq changed. Then the real answer comes.
    w.send = _after(w, "reached", lambda: w.direct("TRAIN", 2))  # type: ignore[method-assign]
    assert next(steps) == 2
    assert w.said == ["reached 1"], "sent once"


def _after(w: Worker, kind: str, then: Any) -> Any:
    before = w.send

    def send(message: session_pb2.AttachRequest) -> None:
        before(message)
        if message.WhichOneof("kind") == kind:
            then()

    return send


def test_until_the_end_of_the_code(tmp_path: Path) -> None:
    w = Worker(tmp_path, until_step=1)
    w.targets = [0]
    steps = w.trial.steps()
    assert [next(steps) for _ in range(5)] == [1, 2, 3, 4, 5]


def test_steps_without_an_end_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("outbid._training.trial_loop._MANY_STEPS", 3)
    w = Worker(tmp_path, until_step=1)
    w.targets = [0]
    for step in w.trial.steps():
        if step == 9:
            break
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "steps() has no end unless the tuner has max_steps" in said


def test_pause_saves_and_ends(tmp_path: Path) -> None:
    w = Worker(tmp_path)
    for step in w.trial.steps():
        w.trial.save(weights(step))
        if step == 3:
            w.direct("PAUSE")
    w.trial._finish("", "")
    assert w.said == ["saved 3", "ended 3 ordered"]


def test_stop_after_pause_saves_nothing(tmp_path: Path) -> None:
    w = Worker(tmp_path)
    for step in w.trial.steps():
        w.trial.save(weights(step))
        w.direct("PAUSE")
        w.direct("STOP")
    w.trial._finish("", "")
    assert w.said == ["ended 1 ordered"]


def test_orders_of_another_fork_are_nothing(tmp_path: Path) -> None:
    w = Worker(tmp_path)
    w.direct("STOP", fork=node_pb2.ForkRef(sweep="s-1", trial=0, lease_id=2))
    assert not w.trial.should_stop
    assert next(w.trial.steps()) == 1


def test_should_stop_counts_as_obeying(tmp_path: Path) -> None:
    w = Worker(tmp_path)
    for step in w.trial.steps():
        w.trial.save(weights(step))
        w.direct("PAUSE")
        if w.trial.should_stop:
            break
    w.trial._finish("", "")
    assert w.said == ["saved 1", "ended 1 ordered"]


def test_break_is_the_codes_own_end(tmp_path: Path) -> None:
    w = Worker(tmp_path)
    for step in w.trial.steps():
        w.trial.save(weights(step))
        w.trial.report(loss=1)
        break
    w.trial._finish("", "")
    assert w.said == ["report 1", "saved 1", "ended 1"]


def test_an_error_keeps_the_newest_weights(tmp_path: Path) -> None:
    w = Worker(tmp_path)
    w.trial.save(weights(0))
    w.trial._finish("ValueError: no", "trace")
    assert w.said == ["saved 0", "ended 0"]


def test_weights_saved_before_the_loop_are_of_its_start(tmp_path: Path) -> None:
    w = Worker(tmp_path, start_step=2, until_step=2)
    w.trial.save(weights(2))
    assert list(w.trial.steps()) == []
    assert w.said == ["saved 2", "reached 2"]


def test_store_errors_are_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    w = Worker(tmp_path, until_step=1)
    w.save_errors = ["object store is full"]
    for step in w.trial.steps():
        w.trial.save(weights(step))
    assert w.said == ["saved 1", "saved 1", "reached 1"]
    assert capsys.readouterr().err.count("object store is full") == 1
    assert len(list(tmp_path.iterdir())) == 2, "every checkpoint is a new file, as the worker moves them"


def test_leaving_cannot_be_undone(tmp_path: Path) -> None:
    w = Worker(tmp_path)
    w.inbox.put(Terminate())
    w.direct("TRAIN", 10)
    assert list(w.trial.steps()) == []
    assert w.trial._leaving


def test_save_due(tmp_path: Path) -> None:
    w = Worker(tmp_path, until_step=3)
    due = []
    for step in w.trial.steps():
        due.append(w.trial.save_due)
        if due[-1]:
            w.trial.save(weights(step))
    assert due == [False, False, True]
    assert w.said == ["saved 3", "reached 3"]


def test_save_due_on_a_pause_gets_one_more_step(tmp_path: Path) -> None:
    w = Worker(tmp_path)
    for step in w.trial.steps():
        if w.trial.save_due:
            w.trial.save(weights(step))
        if step == 2:
            w.direct("PAUSE")  # after save_due was False in this step
    assert w.said == ["saved 3"]


def test_report_steps(tmp_path: Path) -> None:
    w = Worker(tmp_path, start_step=2)
    w.trial.report(step=2, loss=0)
    for step in w.trial.steps():
        w.trial.report(loss=1)
        w.trial.report({"accuracy": 0.5}, step=step)
        with pytest.raises(ValueError, match=f"step {step + 1} is not done yet: inside steps.*now {step}"):
            w.trial.report(step=step + 1, loss=1)
        if step == 4:
            break
    assert w.said == [f"report {n}" for n in (2, 3, 3, 4, 4)]


class Unreadable:
    """An object for which float and repr raise errors."""

    def __float__(self) -> float:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Tensor:
    """A tensor like torch's: `item` returns its element, or raises RuntimeError if there is not exactly one."""

    def __init__(self, *values: float) -> None:
        self.ndim, self.shape, self._values = 1, (len(values),), values

    def item(self) -> float:
        if len(self._values) != 1:
            raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")
        return self._values[0]


BAD_REPORTS: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ((), {"loss": "low"}, TypeError, "metric 'loss' must be one number, such as 0.5, got str: 'low'"),
    ((), {"loss": None}, TypeError, "metric 'loss' must be one number, such as 0.5, got NoneType: None"),
    ((), {"loss": np.zeros(3)}, TypeError, "metric 'loss' must be one number, such as 0.5, got ndarray of shape (3,)"),
    ((), {"loss": np.zeros((2, 0))}, TypeError, "got ndarray of shape (2, 0)"),
    ((), {"loss": pd.Series([1, 2])}, TypeError, "got Series of shape (2,)"),
    ((), {"loss": Unreadable()}, TypeError, "metric 'loss' must be one number, such as 0.5, got Unreadable"),
    ((), {"loss": [1]}, TypeError, "metric 'loss' must be one number, such as 0.5, got list: [1]"),
    ((), {"loss": 1j}, TypeError, "metric 'loss' must be one number, such as 0.5, got complex"),
    ((), {}, TypeError, "name at least one metric"),
    (([1],), {}, TypeError, "metrics must be a dict or keywords"),
    (({3: 1.0},), {}, TypeError, "a metric's name must be a string, got 3"),
    ((), {"loss": 1, "step": -1}, ValueError, "step must be a whole number from 0, got -1"),
    ((), {"loss": 1, "step": 1.5}, TypeError, "step must be a whole number, got 1.5"),
    ((), {"loss": 1, "step": True}, ValueError, "step must be a whole number"),
    (({"x" * 257: 1},), {}, ValueError, "report: a metric's name has 257 bytes, at most 256 are allowed: 'xxx"),
    (({"ü" * 129: 1},), {}, ValueError, "report: a metric's name has 258 bytes"),
    (({"a\x1bb": 1},), {}, ValueError, "report: a metric's name must not have the control character '\\x1b'"),
    (({"a\u202eb": 1},), {}, ValueError, "must not have the control character '\\u202e'"),
    (({"a\udcffb": 1},), {}, ValueError, "report: a metric's name must be text"),
    (
        ({f"metric {n}": 1.0 for n in range(5000)},),
        {},
        ValueError,
        "report: 5000 metrics and 0 notes have 118,890 bytes, but a report is limited to 61,340 bytes",
    ),
]


@pytest.mark.parametrize(("args", "named", "kind", "message"), BAD_REPORTS)
def test_bad_reports(tmp_path: Path, args: Any, named: Any, kind: type[Exception], message: str) -> None:
    w = Worker(tmp_path)
    with pytest.raises(kind) as caught:
        w.trial.report(*args, **named)
    assert message in str(caught.value)
    assert w.said == [], "nothing was reported"


def test_names_that_people_give(tmp_path: Path) -> None:
    w = Worker(tmp_path)
    names = ["loss", "val acc", "größe", "損失", "a/b.c-d@5", "l" * 256, "tab\there", "e\u0301"]
    w.trial.report(dict.fromkeys(names, 1.0))
    assert sorted(w.reports[0].metrics) == sorted(names)


def test_notes_that_are_too_large_say_so_where_they_are_made(tmp_path: Path) -> None:
    w = Worker(tmp_path)
    with pytest.raises(
        ValueError, match="note: 'p' has 1,200,000 bytes as JSON, but a report is limited to 61,340 bytes"
    ):
        w.trial.note(p="x" * 1_199_998)
    with pytest.raises(ValueError, match="note: 0 metrics and 3000 notes have"):
        w.trial.note({f"note {n}": "twenty characters or so" for n in range(3000)})
    with pytest.raises(ValueError, match="note: a name has 257 bytes"):
        w.trial.note({"x" * 257: 1})
    w.trial.report(loss=1)
    assert not w.reports[0].attributes, "invalid notes are not sent"


def test_a_parameter_whose_name_is_too_long_is_named() -> None:
    assert drawn({"x" * 249: 1, "kept": object()}) == {"config." + "x" * 249: 1}
    with pytest.raises(ValueError, match=r"the parameter 'x{40}'... has a name of 250 bytes, at most 249 are allowed"):
        drawn({"x" * 250: 1})


def test_notes_that_are_large_together_go_in_several_reports(tmp_path: Path) -> None:
    w = Worker(tmp_path, metric="loss")
    for n in range(5):
        w.trial.note({f"n{n}": "x" * 30_000})
    w.trial.report({f"metric {n}": 1.0 for n in range(2000)})
    w.trial.note(last=1)
    w.trial._finish("", "")
    assert all(report.ByteSize() <= 60 << 10 for report in w.reports)
    assert [report.seq for report in w.reports] == list(range(1, len(w.reports) + 1))
    noted = [name for report in w.reports for name in report.attributes]
    assert sorted(noted) == ["last", "n0", "n1", "n2", "n3", "n4"]
    assert [len(report.metrics) for report in w.reports if report.metrics] == [2000]


def test_large_notes_are_no_report_of_a_value(tmp_path: Path) -> None:
    w = Worker(tmp_path, metric="loss")
    for n in range(3):
        w.trial.note({f"n{n}": "x" * 30_000})
    assert not w.trial._answer("nothing"), "notes are not a reported value"


NUMBERS: list[tuple[Any, float]] = [
    (0.5, 0.5),
    (np.float32(0.5), 0.5),
    (np.int64(3), 3),
    (True, 1),
    (np.bool_(True), 1),
    (np.array(0.5), 0.5),
    (np.array([0.5]), 0.5),
    (np.array([[[0.5]]]), 0.5),
    (pd.Series([0.5], index=["a"]), 0.5),
    (Tensor(0.5), 0.5),
    (Decimal("0.5"), 0.5),
    (Fraction(1, 2), 0.5),
    ("0.5", 0.5),
    ("1e-3", 0.001),
    (np.str_("0.5"), 0.5),
    (np.array(["0.5"]), 0.5),
    ("nan", math.nan),
    ("-Infinity", -math.inf),
    (10**400, math.inf),
    (-(10**400), -math.inf),
    (Fraction(10**400), math.inf),
    (Decimal("1e400"), math.inf),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("given", "value"), NUMBERS, ids=[f"{n}-{type(given).__name__}" for n, (given, _) in enumerate(NUMBERS)]
)
def test_what_float_reads_is_a_metric(tmp_path: Path, given: Any, value: float) -> None:
    w = Worker(tmp_path, metric="loss")
    w.trial.report(loss=given)
    assert process.call(lambda trial: given, Worker(tmp_path / "answer", metric="loss").trial) == ("", "")
    answering = Worker(tmp_path / "dict", metric="loss")
    assert process.call(lambda trial: {"loss": given, "name": "0.5"}, answering.trial) == ("", "")
    for report in (*w.reports, *answering.reports):
        assert dict(report.metrics) == pytest.approx({"loss": value}, nan_ok=True), "text is not a metric elsewhere"
    assert len(answering.reports) == 1


def test_a_value_that_is_not_a_number_is_named(tmp_path: Path) -> None:
    w = Worker(tmp_path, metric="loss")
    error = process.call(lambda trial: {"loss": np.zeros(2), "accuracy": 0.5}, w.trial)
    assert error == ("TypeError: return: metric 'loss' must be one number, such as 0.5, got ndarray of shape (2,)", "")
    said, _ = process.call(lambda trial: Unreadable(), w.trial)
    assert said.startswith("TypeError: the training function returned <Unreadable> and reported nothing")
    w.trial.report(loss=1)
    assert process.call(lambda trial: {"loss": [3, 2, 1]}, w.trial) == ("", ""), "a history may be returned"


class Wordless(Exception):
    """An exception whose `str()` raises an exception."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("v\ud800"), "ValueError: v\\ud800"),
        (SystemExit("v\ud800"), "SystemExit: v\\ud800"),
        (Wordless(), "Wordless: (no text: str() of it raises)"),
    ],
)
def test_errors_whose_text_is_not_text(tmp_path: Path, error: BaseException, line: str) -> None:
    w = Worker(tmp_path, metric="loss")

    def train(trial: Any) -> None:
        raise error

    said, trace = process.call(train, w.trial)
    assert said == line
    w.trial._finish(said, trace)
    assert w.said == ["ended 0"]


def test_reports_alone_are_stopped(tmp_path: Path) -> None:
    w = Worker(tmp_path)
    w.trial.report(loss=1)
    w.trial.save(weights(2))
    w.direct("PAUSE")
    with pytest.raises(StopTrial):
        w.trial.report(loss=1)
    w.trial._finish("", "")
    assert w.said == ["report 1", "report 2", "saved 2", "ended 2 ordered"]
    with pytest.raises(StopTrial):
        w.trial.report(loss=1)


def test_config_attributes(tmp_path: Path) -> None:
    trial = Worker(tmp_path, config_json=json.dumps({"a": {"b": 1}})).trial
    assert trial.config.a.b == trial.config["a"]["b"] == 1
    with pytest.raises(AttributeError, match="the configuration has no 'lr'; it has a"):
        _ = trial.config.lr
    assert isinstance(trial.config, dict)
    import copy
    import pickle

    assert pickle.loads(pickle.dumps(trial.config)) == copy.deepcopy(trial.config) == trial.config


def test_a_report_after_the_loop_does_not_count_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    w = Worker(tmp_path, until_step=2)
    for step in w.trial.steps():
        w.trial.report(loss=step)
    assert capsys.readouterr().err == ""
    w.trial.report(loss=0.5)
    w.trial.report(loss=0.25)
    said = capsys.readouterr().err
    assert said.count("reported after its loop over steps() had ended") == 1, "printed once"


def test_a_value_returned_instead_of_reported(tmp_path: Path) -> None:
    w = Worker(tmp_path, metric="loss")
    error, trace = process.call(lambda trial: "fine", w.trial)
    assert error.startswith(
        "TypeError: the training function returned 'fine' and reported nothing: return a number, or a dict such as"
    )
    assert error.partition("such as ")[2].startswith('{"loss": 0.5}, or give one to trial.report')
    assert trace == ""
    assert process.call(lambda trial: {"loss": 0.5, "model": object(), "ok": True}, w.trial) == ("", "")
    assert [(r.step, dict(r.metrics)) for r in w.reports] == [(1, {"loss": 0.5})], "only numbers are metrics"
    assert process.call(lambda trial: "fine", w.trial) == ("", ""), "after a report it may return any value"
    assert process.call(lambda trial: {0: 0.5}, w.trial) == ("", ""), "scores per class are not metrics"
    assert process.call(lambda trial: 0.25, w.trial) == ("", "")
    assert [(r.step, dict(r.metrics)) for r in w.reports[1:]] == [(1, {"loss": 0.25})], "the value of the last step"


def test_what_is_returned_counts_after_a_loop_that_broke_off(tmp_path: Path) -> None:
    w = Worker(tmp_path, metric="loss")

    def train(trial: Any) -> float:
        for step in trial.steps():
            if step == 3:
                break
        return 0.5

    assert process.call(train, w.trial) == ("", "")
    assert [(r.step, dict(r.metrics)) for r in w.reports] == [(3, {"loss": 0.5})]


@pytest.mark.parametrize("loop", [True, False])
def test_a_trial_ends_when_its_condition_is_met(tmp_path: Path, loop: bool) -> None:
    w = Worker(tmp_path)

    def train(trial: Any) -> None:
        for step in trial.steps() if loop else range(1, 100):
            trial.report(loss=1.0, score=step)

    stop: Any = {"score": 4} if loop else lambda step, metrics: step > 1 and metrics["score"] == 4
    function = ob.Sweep(train, {}, metric="loss", mode="min", stop=stop)._train
    assert function is not None and process.call(function, w.trial) == ("", "")
    assert [r.step for r in w.reports] == [1, 2, 3, 4]
    with pytest.raises(TypeError, match="stop must be a function"):
        ob.Sweep(train, {}, metric="loss", mode="min", stop={})
    with pytest.raises(TypeError, match="stop needs a training function"):
        ob.Sweep(program=["true"], space={}, metric="loss", mode="min", stop={"score": 4})


def test_what_a_library_has_trained_is_kept_where_it_ends_by_itself(tmp_path: Path) -> None:
    """Nothing requests weights of a trial without a target: those of the callbacks' last step are stored at its end."""
    w = Worker(tmp_path)
    for step in (1, 2, 3):
        _step(w.trial, {"loss": 1 / step}, None, step, weights(step))
    w.trial._finish("", "")
    assert w.said == ["report 1", "report 2", "report 3", "saved 3", "ended 3"]


def test_a_model_that_cannot_be_saved_fails_no_trial_at_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    w = Worker(tmp_path)
    _step(w.trial, {"loss": 1.0}, None, 1, threading.Lock())
    w.trial._finish("", "")
    assert w.said == ["report 1", "ended 1"]
    assert "outbid: trial s-1/0 keeps no checkpoint: TypeError: save: lock cannot be pickled" in capsys.readouterr().err
