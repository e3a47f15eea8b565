"""Plots are readable: none of their texts covers another, and no legend covers what is drawn."""

from __future__ import annotations

import datetime
import itertools
import json
from typing import Any

import pytest

import outbid as ob
from fake_server import make_trial
from outbid._display.plots import Plots
from outbid._results.from_proto import sweep_info, trial_result
from outbid._results.model import SweepInfo
from outbid.v1 import event_pb2
from outbid.v1 import service_pb2 as pb

pytest.importorskip("matplotlib")

SUBMITTED = datetime.datetime(2026, 5, 4, 12, 0, 0, tzinfo=datetime.timezone.utc)
OPTIMIZERS = ["adam", "stochastic gradient descent", "rmsprop", "adagrad", "a very long name", "lion"]


class Drawn:
    """A result of many trials with long names, several of them at once, which fill the timeline."""

    def __init__(self) -> None:
        message = pb.Sweep(id="a-sweep-with-a-long-name-1", state=event_pb2.SWEEP_STATE_DONE)
        message.spec.metric, message.spec.mode = "validation_accuracy_at_five", "max"
        message.submitted.FromDatetime(SUBMITTED)
        self.sweep: SweepInfo = sweep_info(message, None)  # type: ignore[arg-type]
        self.trials = [trial_result(self._trial(n), None) for n in range(40)]  # type: ignore[arg-type]

    def _trial(self, n: int) -> pb.Trial:
        trial = make_trial(n, ["completed", "stopped", "failed", "running"][n % 4], step=9, best_step=9)
        trial.best = 0.5 + n / 100
        trial.config_json = json.dumps(
            {
                "learning_rate_of_the_head": 10 ** -(1 + n % 7),
                "optimizer": {"name": OPTIMIZERS[n % 6], "weight_decay_of_the_backbone": 1e-5 * (n + 1)},
                "a_rather_long_name_of_a_parameter": 123456 + 1000 * n,
                "batch": 2 ** (n % 8),
            }
        )
        trial.created.FromDatetime(SUBMITTED + datetime.timedelta(seconds=n // 4))
        trial.ended.FromDatetime(SUBMITTED + datetime.timedelta(seconds=40))
        return trial

    def reports(self) -> list[ob.Report]:
        return [
            ob.Report(t.number, step, {self.sweep.metric: step * (t.number + 1) * 1e-3}, None, 0.0, False)
            for t in self.trials
            for step in range(1, 10)
        ]

    def space_scales(self) -> dict[str, bool]:
        return {"learning_rate_of_the_head": True, "batch": False, "optimizer.weight_decay_of_the_backbone": True}

    def importance(self, **_: Any) -> dict[str, float]:
        return {"learning_rate_of_the_head": 0.7, "optimizer.name": 0.2, "batch": 0.1}


def boxes(figure: Any) -> list[tuple[str, Any]]:
    """Return the texts of a figure that are seen, and where they are."""
    texts = [*figure.texts, *([figure._suptitle] if figure._suptitle else [])]
    for ax in figure.axes:
        texts += [ax.xaxis.label, ax.yaxis.label, ax.title, *ax.texts]
        for axis, (low, high), at in ((ax.xaxis, ax.get_xlim(), 0), (ax.yaxis, ax.get_ylim(), 1)):
            low, high = sorted((low, high))
            ticks = axis.get_ticklabels()
            texts += [
                t for t in ticks if t.get_visible() and low <= t.get_position()[at] <= high and axis.get_visible()
            ]
    seen = {id(text): text for text in texts if text.get_text() and text.get_visible()}
    return [(text.get_text(), text.get_window_extent()) for text in seen.values()]


KINDS = ["history", "curves", "parallel", "importance", "slice", "contour", "rank", "edf", "timeline"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_a_plot_covers_another(kind: str) -> None:
    figure = getattr(Plots(Drawn()), kind)().figure
    figure.draw_without_rendering()
    covered = [
        (a, b)
        for (a, one), (b, other) in itertools.combinations(boxes(figure), 2)
        if one.overlaps(other)
        and min(one.x1, other.x1) - max(one.x0, other.x0) > 1
        and min(one.y1, other.y1) - max(one.y0, other.y0) > 1
    ]
    assert not covered
    width, height = figure.bbox.size
    for text, box in boxes(figure):
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1, f"{text} is cut"


def test_the_legend_of_a_timeline_covers_no_trial() -> None:
    figure: Any = Plots(Drawn()).timeline().figure
    figure.draw_without_rendering()
    (ax,) = figure.axes
    legend = ax.get_legend().get_window_extent()
    assert not any(legend.overlaps(bar.get_window_extent()) for bar in ax.patches if bar.get_width() > 0)
