"""The table in a terminal, at typical widths."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from fake_server import make_trial
from outbid._display import layout
from outbid._results.from_proto import sweep_info, trial_result
from outbid._results.model import SweepInfo, TrialResult
from outbid.v1 import event_pb2
from outbid.v1 import service_pb2 as pb

GOLDEN = Path(__file__).parent / "golden"
NOW = datetime.datetime(2026, 5, 4, 12, 0, 0, tzinfo=datetime.timezone.utc)


def board() -> tuple[SweepInfo, list[TrialResult]]:
    sweep = pb.Sweep(id="digits-12", state=event_pb2.SWEEP_STATE_RUNNING, steps=1234)
    sweep.spec.metric, sweep.spec.mode, sweep.spec.tuner.seed = "validation_accuracy", "max", 7
    sweep.submitted.FromDatetime(NOW - datetime.timedelta(minutes=7, seconds=5))
    sweep.outlook.trials, sweep.outlook.steps = 30, 2430
    sweep.counts.total, sweep.counts.completed, sweep.counts.running, sweep.counts.failed = 15, 11, 2, 1
    sweep.waiting = 'no node has a free device of type "v100" for a trial that needs 4 of them on one node'
    trials = []
    for number, state, step, until, best in [
        (3, "completed", 81, 81, 0.98765432),
        (11, "running", 5, 27, 0.75),
        (12, "running", 0, 9, None),
        (9, "failed", 1, 3, float("nan")),
        (8, "stopped", 3, 0, -12345.678),
    ]:
        trial = make_trial(number, state, step=step, until_step=until, best_step=step)
        if best is not None:
            trial.best = best
        trial.config_json = (
            f'{{"augment":{{"crop":0.{number}123456,"flip":true}},"batch_size":{2 << number % 8},'
            f'"lr":0.00{number}9876543,"note":"naïve 日本語","optimizer":{{"momentum":0.9,"name":"adam"}}}}'
        )
        trials.append(trial)
    sweep.best.CopyFrom(trials[0])

    class Nobody:
        pass

    return sweep_info(sweep, Nobody()), [trial_result(t, Nobody()) for t in trials]  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_golden(width: int) -> None:
    lines = [text for text, _ in layout.lay_out(*board(), width, 12.345, NOW)]
    assert max(map(cell_len, lines)) <= width
    path = GOLDEN / f"table-{width}.txt"
    got = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(got)
    assert got == path.read_text(), "if it is right, write it anew: UPDATE=1 pytest tests/test_layout.py"


@pytest.mark.parametrize("width", range(44, 200))
def test_only_the_configuration_is_cut(width: int) -> None:
    sweep, trials = board()
    rows = [text for text, _ in layout.table(sweep, trials, width)]
    assert max(map(cell_len, rows)) <= width
    assert all(row.split()[1] == t.state for row, t in zip(rows[1:], layout.telling(sweep, trials), strict=True))
    for value in ("0.98765", "0.75", "nan", "-12346"):
        assert any(value in row.split() for row in rows), f"{value} is not whole at {width} columns"


def test_what_a_sweep_learned_from() -> None:
    sweep, trials = board()
    assert "learned" not in layout.lay_out(sweep, trials, 120, 3.0, NOW)[0][0]
    sweep = dataclasses.replace(sweep, memory=(("digits-7", 40), ("digits-11", 12)))
    first = layout.lay_out(sweep, trials, 120, 3.0, NOW)[0][0]
    assert first.endswith(", learned from digits-7 (40 trials), digits-11 (12 trials)")


def test_durations() -> None:
    assert [layout.duration(s) for s in (0, 59.4, 59.6, 185, 7620, 48 * 3600, 273601)] == [
        "0s",
        "59s",
        "1m00s",
        "3m05s",
        "2h07m",
        "2d00h",
        "3d04h",
    ]


def sweep_of(metrics: dict[str, str], mode: str) -> SweepInfo:
    sweep = pb.Sweep(id="s-1", state=event_pb2.SWEEP_STATE_RUNNING)
    (sweep.spec.metric, *others), sweep.spec.mode = metrics, mode
    for name in others:
        sweep.spec.objectives.add(metric=name, mode=metrics[name])
    return sweep_info(sweep, None)  # type: ignore[arg-type]


def trial_of(number: int, state: str, best: float | None, config: str = "{}", **last: float) -> TrialResult:
    trial = make_trial(number, state, step=1, best_step=1)
    if best is not None:
        trial.best = best
    trial.config_json = config
    trial.last.metrics.clear()
    trial.last.metrics.update(last)
    return trial_result(trial, None)  # type: ignore[arg-type]


VALUES = st.none() | st.floats(-9, 9) | st.just(math.nan)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(VALUES, st.sampled_from(["completed", "running", "stopped", "paused"])), max_size=25),
    st.sampled_from(["min", "max"]),
)
def test_the_best_are_shown_and_some_that_run(found: list[tuple[float | None, str]], mode: str) -> None:
    trials = [trial_of(n, state, value) for n, (value, state) in enumerate(found)]
    shown = layout.telling(sweep_of({"loss": mode}, mode), trials)
    assert len(shown) == min(10, len(trials)) == len({t.number for t in shown})
    values = sorted((v for v, _ in found if v is not None and v == v), reverse=mode == "max")
    sure = min(len(values), 7)
    assert [t.metric for t in shown[:sure]] == values[:sure]
    assert sum(t.state == "running" for t in shown) >= min(3, sum(t.state == "running" for t in trials))


def test_parameters_have_columns_as_long_as_there_is_room() -> None:
    names = [*(f"parameter_{n}" for n in range(9)), "optimizer.momentum"]
    trials = [
        trial_of(n, "completed", n / 7, json.dumps({**{p: n + i / 3 for i, p in enumerate(names)}, "data": "/same"}))
        for n in range(12)
    ]
    sweep = sweep_of({"loss": "min"}, "min")
    for width, columns in ((60, 1), (80, 2), (120, 5), (250, 10)):
        head, *rows = (text for text, _ in layout.table(sweep, trials, width))
        shown = [name for name in (n.rpartition(".")[2] for n in names) if name in head.split()]
        assert len(shown) >= columns and (width == 60 or "configuration" in head.split()), head
        assert len(rows) == 10
    assert rows[0].split()[4:] == ["0", *(f"{i / 3:.4g}" for i in range(1, 10)), "data=/same"]
    head_of_page, page = layout.page_table(sweep, layout.telling(sweep, trials))
    assert head_of_page[4:] == [*names[:-1], "momentum", "configuration"] and page[0][-1] == "data=/same"


def test_every_objective_is_shown() -> None:
    sweep = sweep_of({"loss": "min", "size": "min", "accuracy": "max"}, "min")
    trials = [trial_of(n, "completed", n / 8, '{"x":1}', loss=n / 8, size=9 - n, accuracy=0.5) for n in range(4)]
    trials.append(trial_of(4, "completed", 0.1, '{"x":1}', loss=0.1, size=99, accuracy=0.4))
    assert [t.number for t in layout.telling(sweep, trials)] == [0, 1, 2, 3, 4], "the front comes first"
    sweep = dataclasses.replace(sweep, best=trials[0])
    head, first, *_ = (text.split() for text, _ in layout.table(sweep, trials, 100))
    assert {"loss", "size", "accuracy"} <= set(head) and {"0", "9", "0.5"} <= set(first)
    assert layout.best_text(sweep) == "loss 0, size 9, accuracy 0.5, trial 0 at step 1"
    assert layout.winner_text(sweep).startswith("best loss 0, size 9, accuracy 0.5 (trial 0 at step 1; result.")
    assert {"loss", "size", "accuracy"} <= set(layout.page_table(sweep, trials)[0])


def test_what_differs_comes_first() -> None:
    """Otherwise a long constant could fill the column."""
    configs = [{"data": "/long", "n": 1, "x": 0.5}, {"data": "/long", "n": True, "x": 0.25}, {"data": "/long", "n": 1}]
    assert layout.config_texts(configs) == ["n=1 x=0.5 data=/long", "n=True x=0.25 data=/long", "n=1 data=/long"]
    assert layout.config_texts(configs[:1]) == ["data=/long n=1 x=0.5"]
    assert layout.config_texts([]) == []
    assert layout.config_texts([{"x": 1, "~pickle": "gASVBg"}]) == ["x=1"], "what outbid.tune puts beside it"
