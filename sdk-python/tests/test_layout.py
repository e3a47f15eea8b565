"""The table in a terminal, at typical widths."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest
from rich.cells import cell_len

from fake_server import make_trial
from outbid import _layout
from outbid._model import SweepInfo, TrialResult, sweep_info, trial_result
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
    lines = [text for text, _ in _layout.lay_out(*board(), width, 12.345, NOW)]
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
    rows = [text for text, _ in _layout.table(sweep, trials, width)]
    assert max(map(cell_len, rows)) <= width
    assert all(row.split()[1] == t.state for row, t in zip(rows[1:], _layout.telling(sweep, trials), strict=True))
    for value in ("0.98765", "0.75", "nan", "-12346"):
        assert any(value in row.split() for row in rows), f"{value} is not whole at {width} columns"


def test_durations() -> None:
    assert [_layout.duration(s) for s in (0, 59.4, 59.6, 185, 7620, 48 * 3600, 273601)] == [
        "0s",
        "59s",
        "1m00s",
        "3m05s",
        "2h07m",
        "2d00h",
        "3d04h",
    ]


def test_what_differs_comes_first() -> None:
    """Otherwise a long constant could fill the column."""
    configs = [{"data": "/long", "n": 1, "x": 0.5}, {"data": "/long", "n": True, "x": 0.25}, {"data": "/long", "n": 1}]
    assert _layout.config_texts(configs) == ["n=1 x=0.5 data=/long", "n=True x=0.25 data=/long", "n=1 data=/long"]
    assert _layout.config_texts(configs[:1]) == ["data=/long n=1 x=0.5"]
    assert _layout.config_texts([]) == []
    assert _layout.config_texts([{"x": 1, "~pickle": "gASVBg"}]) == ["x=1"], "what outbid.tune puts beside it"
