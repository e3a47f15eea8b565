"""Messages about trials that fail: each kind once, with its traceback, and the number of similar trials."""

from __future__ import annotations

import datetime
import subprocess
import sys

import pytest

from fake_server import make_trial
from outbid._display import display as displays
from outbid._display import layout
from outbid._display.failures import TRACEBACK, Failures, kind_of, last_lines, last_traceback
from outbid._results.from_proto import sweep_info, trial_result
from outbid._results.model import SweepInfo
from outbid.v1 import event_pb2
from outbid.v1 import service_pb2 as pb

AGAIN = "KeyError: 'nope': it starts again from the beginning (restart 1 of 3)"
FINAL = "failed for good: KeyError: 'nope'; it failed twice in the same way at step 0, so it is not tried again"
TRACE = "Traceback (most recent call last):\n  File \"a.py\", line 1, in train\n    {}['nope']\nKeyError: 'nope'"


def sweep(*notes: tuple[str, str, int | None]) -> SweepInfo:
    message = pb.Sweep(id="digits-1", state=event_pb2.SWEEP_STATE_RUNNING)
    message.spec.metric = "loss"
    for level, text, trial in notes:
        note = message.notes.add(level=level, text=text)
        if trial is not None:
            note.trial = trial
    return sweep_info(message, None)  # type: ignore[arg-type]


def test_the_last_lines_of_a_program_are_those_of_its_newest_attempt() -> None:
    log = [("stderr", f"old {n}") for n in range(9)] + [("outbid", "--- started on a ---")]
    log += [("stderr", "Error in fit(x) :"), ("stdout", "step 1"), ("stderr", "  "), ("stderr", "Execution halted")]
    assert last_lines(log) == "Error in fit(x) :\nExecution halted"
    assert last_lines(log[:9]) == "old 4\nold 5\nold 6\nold 7\nold 8"
    assert last_lines([]) == ""


def test_a_program_that_exits_is_explained() -> None:
    failures = Failures(lambda trial: "Error in fit(x) :\nExecution halted")
    text = "exited with code 1: Execution halted"
    news = sweep(("warning", f"{text}: it starts again from the beginning (restart 1 of 3)", 0), ("error", text, 1))
    told = failures.take(news)
    assert told == [
        (f"warning: trial 0: {text}: it starts again from the beginning (restart 1 of 3)", "warning"),
        ("Error in fit(x) :\nExecution halted", TRACEBACK),
    ]
    assert failures.alike() == [f"1 other trial alike: {text}"]
    assert "what trial 0 wrote last" in displays.html_of(news, [], tracebacks=failures.tracebacks)


def test_kinds() -> None:
    missing = 'it reported no "a", which the sweep is to optimise; it reported b'
    assert (
        kind_of(f"{missing}: it fails unless a later report has it")
        == missing
        == kind_of(f"failed for good: {missing}")
    )
    assert kind_of(AGAIN) == kind_of(FINAL) == "KeyError: 'nope'"
    assert kind_of("out of patience") == "out of patience"


def test_alike_is_counted_and_the_first_is_explained() -> None:
    asked: list[int] = []

    def explain(trial: int) -> str:
        asked.append(trial)
        return TRACE if len(asked) > 1 else ""  # its log arrives shortly after the news

    failures = Failures(explain)
    notes: list[tuple[str, str, int | None]] = [("info", "starts", None), ("warning", AGAIN, 4)]
    assert failures.take(sweep(*notes)) == [(f"warning: trial 4: {AGAIN}", "warning")]
    notes += [("error", FINAL, 4), ("warning", AGAIN, 2), ("error", FINAL, 2), ("warning", "the store is away", None)]
    told = [("warning: the store is away", "warning"), (TRACE, TRACEBACK)]
    assert failures.take(sweep(*notes)) == told
    assert failures.take(sweep(*notes)) == []
    assert asked == [4, 4] and failures.tracebacks == {4: TRACE}
    assert failures.alike() == ["1 other trial alike: KeyError: 'nope'"]
    notes.append(("warning", "ValueError: two: it starts again from step 3 (restart 1 of 3)", 2))
    assert [level for _, level in failures.take(sweep(*notes))] == ["warning", TRACEBACK]


def test_what_prints_no_traceback_is_asked_for_a_while_only() -> None:
    asked: list[int] = []

    def explain(trial: int) -> str:
        asked.append(trial)
        return ""

    failures = Failures(explain)
    for _ in range(100):
        failures.take(sweep(("warning", AGAIN, 1)))
    assert 1 < len(asked) < 50
    asked.clear()
    assert Failures(explain).take(sweep(("error", "exited with code 1: out of memory", 1)), last=True)
    assert asked == [1], "a program prints no traceback, and is not waited for"


def test_the_last_traceback_of_a_log() -> None:
    lines = ["epoch 1", *TRACE.replace("nope", "other").splitlines(), "again", *TRACE.splitlines()]
    assert last_traceback(lines) == TRACE
    assert last_traceback([*lines, "afterwards"]) == TRACE
    assert last_traceback(TRACE.splitlines()[:-1]) == "", "it is not whole yet"
    assert last_traceback(["nothing"]) == ""


@pytest.mark.parametrize(
    "how",
    [
        "The above exception was the direct cause of the following exception:",
        "During handling of the above exception, another exception occurred:",
    ],
)
def test_the_exceptions_that_led_to_the_last_are_shown(how: str) -> None:
    chain = [*TRACE.splitlines(), "", how, "", *TRACE.replace("nope", "outer").splitlines()]
    lines = ["Traceback (most recent call last):", "OSError: an earlier try", "again", *chain]
    assert last_traceback(lines) == "\n".join(chain)
    assert last_traceback([*lines, "", "afterwards"]) == "\n".join(chain)
    assert last_traceback(chain[: chain.index(how) + 1]) == "", "another follows"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
def test_the_traceback_of_a_group_is_whole() -> None:
    code = "raise ExceptionGroup('several', [ValueError('one'), ExceptionGroup('inner', [KeyError(2), KeyError(3)])])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr.splitlines()
    assert last_traceback(["before", *out, "after"]).splitlines() == out
    assert last_traceback(out[:-1]) == "", "it is not whole yet"
    assert last_traceback([*out, *TRACE.splitlines()]) == TRACE


def test_lines_tell_a_kind_once(capsys: pytest.CaptureFixture[str]) -> None:
    display = displays.make_display(True, lambda trial: TRACE)
    news = sweep(*(("error", FINAL, trial) for trial in range(5)))
    display.end(news, [])
    said = capsys.readouterr().out
    assert said.count("KeyError: 'nope'; it failed twice") == 1
    assert TRACE in said and "digits-1: 4 other trials alike: KeyError: 'nope'" in said


def test_the_page_shows_the_traceback() -> None:
    page = displays.html_of(sweep(("error", FINAL, 3), ("error", FINAL, 5)), [], tracebacks={3: TRACE})
    assert page.count("it failed twice") == 1 and "1 other trial alike" in page
    assert "<details open><summary>traceback of trial 3</summary><pre>Traceback (most recent" in page


def test_devices_held_and_rho_are_shown() -> None:
    message = pb.Sweep(id="digits-1", state=event_pb2.SWEEP_STATE_RUNNING)
    message.spec.metric = "loss"
    message.fairness.rho, message.fairness.alone_seconds, message.fairness.mean_sweeps = 1.234, 60, 2
    trial = make_trial(3, "running", step=1, until_step=9)
    lease = trial.leases.add()
    lease.places.add(node="a", devices=[0, 1])
    lease.places.add(node="b", devices=[2], ended=True)
    info, trials = sweep_info(message, None), [trial_result(trial, None)]  # type: ignore[arg-type]
    assert layout.held_text(info, trials) == "2 held, rho 1.23"
    now = datetime.datetime(2026, 5, 4, tzinfo=datetime.timezone.utc)
    lines = [text for text, _ in layout.lay_out(info, trials, 80, 0, now, ["2 other trials alike: oh"])]
    assert "devices 2 held, rho 1.23" in lines and "failed  2 other trials alike: oh" in lines
    assert "devices: 2 held, rho 1.23" in displays.html_of(info, trials)
    message.fairness.mean_sweeps = 1  # no other sweep used the cluster, like on a laptop
    assert layout.held_text(sweep_info(message, None), trials) == "2 held"  # type: ignore[arg-type]
    message.fairness.mean_sweeps = 2
    # The rho of a sweep of seconds only shows how long processes take to start.
    message.fairness.rho, message.fairness.alone_seconds = 53.0, 0.1
    assert layout.held_text(sweep_info(message, None), trials) == "2 held"  # type: ignore[arg-type]
