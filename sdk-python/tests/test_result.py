"""Results: tables, importance, plots, and their display in notebooks and terminals."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outbid as ob
from fake_server import FakeServer, make_report, make_trial
from outbid._display import display as displays
from outbid._results import importance as importances
from outbid._results.from_proto import sweep_info, trial_result
from outbid.v1 import service_pb2 as pb


@pytest.fixture
def result(server: FakeServer, client: ob.Client) -> ob.Result:
    """Return a sweep's result in which lr matters, units matters little, and the other parameters do not matter."""
    space = {
        "lr": ob.loguniform(1e-4, 1),
        "units": ob.integer(1, 64),
        "junk": ob.uniform(0, 1),
        "opt": {"name": ob.choice(["sgd", "adam"]), "m": ob.when(ob.uniform(0, 1), "opt.name", in_=["sgd"])},
    }
    handle = ob.Sweep(space=space, metric="accuracy", mode="max").submit()
    rng = np.random.default_rng(0)
    for number in range(60):
        lr, units, junk, m = 10 ** rng.uniform(-4, 0), int(rng.integers(1, 65)), rng.uniform(), rng.uniform()
        value = -abs(np.log10(lr) + 2) + 0.005 * units
        name, rest = ("sgd", f',"m":{m}') if number % 2 else ("adam", "")
        trial = make_trial(number, best=value, best_step=3, step=3)
        trial.config_json = f'{{"junk":{junk},"lr":{lr},"opt":{{"name":"{name}"{rest}}},"units":{units}}}'
        trial.last.metrics.update({"accuracy": value, "loss": -value})
        server.trials[number] = trial
        server.told_reports += [make_report(number, step, accuracy=value * step / 3) for step in (1, 2, 3)]
    best = max(server.trials.values(), key=lambda t: t.best)
    server.sweep.best.CopyFrom(best)
    server.trials[60] = make_trial(60, "failed", reason="ValueError: no")
    return handle.result()


def test_records(result: ob.Result) -> None:
    first, last = result.records()[0], result.records()[-1]
    assert first["config.opt.name"] == "adam"
    assert "config.opt.m" not in first
    assert first["last.loss"] == -first["metric"]
    assert (last["trial"], last["state"], last["metric"], last["reason"]) == (60, "failed", None, "ValueError: no")


def test_a_sweep_without_a_finite_value_has_no_best_trial(server: FakeServer, client: ob.Client) -> None:
    handle = ob.Sweep(space={"x": ob.uniform(0, 1)}, metric="loss", mode="min").submit()
    for number, value in enumerate([-np.inf, np.nan]):
        server.trials[number] = make_trial(number, best=value, best_step=1, step=1)
        server.trials[number].last.metrics["loss"] = value
    server.sweep.ClearField("best")
    with pytest.raises(ob.NoResultError, match="every value was NaN or infinite"):
        print(handle.result().best)


def test_frame(result: ob.Result) -> None:
    frame = result.frame()
    assert len(frame) == 61
    assert frame.sort_values("metric", ascending=False)["trial"].iloc[0] == result.best.number
    reports = result.frame(reports=True)
    assert len(reports) == 180
    assert set(reports.columns) == {"trial", "step", "time", "train_seconds", "superseded", "accuracy"}


def test_frame_without_pandas(result: ob.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ob.MissingExtraError, match=r"needs pandas: pip install 'outbid\[frame\]'"):
        result.frame()


def test_plot_without_matplotlib(result: ob.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ob.MissingExtraError, match=r"needs matplotlib: pip install 'outbid\[plots\]'"):
        _ = result.plot


@pytest.mark.parametrize("kind", ["history", "curves", "parallel", "importance"])
def test_plots(result: ob.Result, kind: str, tmp_path: Path) -> None:
    chart = getattr(result.plot, kind)()
    assert chart._repr_png_().startswith(b"\x89PNG")
    chart.save(str(tmp_path / "plot.svg"))
    assert "accuracy" in "".join(
        text.get_text() for ax in chart.figure.axes for text in [ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels()]
    )
    import matplotlib.figure

    axes = matplotlib.figure.Figure().add_subplot()
    assert getattr(result.plot, kind)(ax=axes).figure is axes.figure


@pytest.mark.parametrize("kind", ["slice", "contour", "rank", "edf", "timeline"])
def test_plots_that_users_of_optuna_know(result: ob.Result, kind: str) -> None:
    chart = getattr(result.plot, kind)()
    assert chart._repr_png_().startswith(b"\x89PNG")
    texts = {text.get_text() for ax in chart.figure.axes for text in [ax.xaxis.label, ax.yaxis.label]}
    wanted = {
        "slice": {"accuracy", "lr", "units", "junk", "opt.name", "opt.m"},
        "contour": {"accuracy", "lr"},
        "rank": {"rank by accuracy", "lr"},
        "edf": {"accuracy"},
        "timeline": {"trial"},
    }
    assert wanted[kind] <= texts
    assert re.fullmatch(r"<outbid\.Chart: [^,]*>", repr(chart)), "one title for any number of axes"


def test_plots_say_what_they_cannot_draw(result: ob.Result) -> None:
    with pytest.raises(ValueError, match=r"'depth' is not a parameter that varies; these do: junk, lr"):
        result.plot.contour("lr", "depth")
    with pytest.raises(ValueError, match="has one objective"):
        result.plot.front()
    with pytest.raises(ValueError, match="backend must be 'matplotlib' or 'plotly'"):
        result.plot.edf(backend="gnuplot")  # type: ignore[arg-type]
    assert list(result.plot.rank("units", "junk").figure.axes[0].get_xlabel()) == list("units")


def test_importance_finds_what_matters(result: ob.Result) -> None:
    shares = result.importance()
    assert next(iter(shares)) == "lr"
    assert shares["lr"] > 0.6
    assert sum(shares.values()) == pytest.approx(1)
    assert set(shares) == {"lr", "units", "junk", "opt.name", "opt.m"}
    assert result.importance() == shares, "the same seed gives the same answer"


def test_importance_of_little() -> None:
    assert importances.importance([], {}) == {}


def test_constant_metric_has_no_importance() -> None:
    rng = np.random.default_rng(0)
    assert importances.permutation(rng.random((20, 2)), np.ones(20), rng).tolist() == [0, 0]


def test_a_loss_that_diverged_leaves_importances_numbers(result: ob.Result) -> None:
    diverged = dataclasses.replace(result.trials[0], metric=1e300)
    shares = importances.importance([diverged, *result.trials[1:]], result.space_scales())
    assert sum(shares.values()) == pytest.approx(1)


def test_empty_result_plots(server: FakeServer, client: ob.Client) -> None:
    result = ob.Sweep(space={"lr": ob.uniform(0, 1)}, metric="accuracy", mode="min").submit().result()
    for kind in ("history", "curves", "parallel", "importance", "slice", "edf", "timeline"):
        getattr(result.plot, kind)()
    assert result.frame().empty
    assert "no accuracy yet" in result._repr_html_()


def test_html_is_escaped(result: ob.Result, server: FakeServer) -> None:
    server.sweep.notes.add(level="error", text="<script>alert(1)</script>")
    server.trials[0].config_json = '{"name":"<b>"}'
    shown = ob.attach("s-1").result()._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "<table>" in ob.attach("s-1")._repr_html_()


def update(server: FakeServer, *trials: pb.Trial) -> ob.Update:
    source: Any = None
    return ob.Update(sweep_info(server.sweep, source), tuple(trial_result(t, source) for t in trials), ())


def test_terminal_display(
    result: ob.Result, server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    display = displays.make_display(True, page="http://127.0.0.1:7700/ui/sweeps/s-1")
    assert isinstance(display, displays.TerminalDisplay)
    server.sweep.outlook.steps = 300
    server.sweep.steps = 180
    server.sweep.counts.running = 1
    display.update(update(server, make_trial(61, "running", step=2, until_step=9)))
    assert str(display._live.get_renderable()).endswith("\n"), "the cursor's line, which echoes ^C, is empty"
    display.end(result.sweep, result.trials)
    assert not str(display._live.get_renderable()).endswith("\n")
    display.close()
    out = capsys.readouterr().out
    best = result.best
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.strip().splitlines()[-1])
    assert last.startswith(f"best accuracy {best.metric:.6g} (trial {best.number} at step")
    assert last.endswith(repr(dict(best.config)))
    assert "dashboard: http://127.0.0.1:7700/ui/sweeps/s-1" in out
    assert "s-1  running, 0s" in out
    assert "best    accuracy" in out
    assert all(name in out.splitlines()[6] for name in (" lr", " name", " m", " units")), "columns of parameters"


def test_each_warning_once(
    result: ob.Result, server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.sweep.notes.add(level="warning", text="no report has had accuracy")
    server.sweep.notes.add(level="info", text="all is well")

    def shown() -> str:
        display = displays.make_display(True)
        display.update(update(server))
        server.sweep.notes.add(level="warning", text="the store is away", trial=3)
        for _ in range(3):
            display.update(update(server))
        display.end(update(server).sweep, result.trials)
        display.close()
        return capsys.readouterr().out

    plain = shown()
    del server.sweep.notes[2:]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    for out in (plain, shown()):
        assert out.count("warning: no report has had accuracy") == 1
        assert out.count("warning: trial 3: the store is away") == 1
        assert "all is well" not in out


def test_line_display(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    display = displays.make_display(True, page="http://127.0.0.1:7700/ui/sweeps/s-1")
    assert isinstance(display, displays.LineDisplay)
    server.sweep.spec.metric = "loss"
    note = server.sweep.notes.add(level="error", text="ValueError: no", trial=3)
    server.sweep.waiting = "no node has a v100"
    display.update(update(server))
    display.update(update(server))
    display.close()
    out = capsys.readouterr().out
    assert out.startswith("dashboard: http://127.0.0.1:7700/ui/sweeps/s-1\n")
    assert out.count("s-1: error: trial 3: ValueError: no\n") == 1
    assert "s-1: running, 0s; trials: none yet; steps: 0; best: no loss yet; waits: no node has a v100\n" in out
    assert note.trial == 3


def test_notebook_display(result: ob.Result, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class ZMQInteractiveShell: ...

    class Handle:
        def update(self, page: str) -> None:
            shown.append(page)

    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = ZMQInteractiveShell
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.HTML = str
    ipython.display.display = lambda page, display_id: Handle()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    display = displays.make_display(True, page='http://127.0.0.1:7700/ui/sweeps/s-1"')
    assert isinstance(display, displays.NotebookDisplay)
    display.update(update(server, make_trial(0, "running")))
    display.update(update(server, make_trial(0, "paused")))
    assert len(shown) == 1, "the second update came too soon to be drawn"
    display.close()  # like after an interrupt
    assert "<td>paused</td>" in shown[-1]
    display.end(dataclasses.replace(result.sweep, state="done"), result.trials)
    display.close()
    assert len(shown) == 3
    assert '<a href="http://127.0.0.1:7700/ui/sweeps/s-1&quot;"' in shown[-1]
    assert "<table>" in shown[-1]
    assert "<br>trials: " in shown[-1] and "<br>best: accuracy " in shown[-1], "each in its own line"
    assert shown[-1].count("font-weight: bold") == 1, "the best trial's row"
    assert shown[-1].endswith(html.escape(repr(dict(result.best.config))) + "</b></p></div>"), (
        "the winning configuration"
    )


@pytest.mark.parametrize("parameters", [1, 12])
def test_a_printed_trial_is_one_line(server: FakeServer, client: ob.Client, parameters: int) -> None:
    config = {f"parameter_{n}": n + 0.5 for n in range(parameters)}
    trial = make_trial(1, best=0.75, best_step=3, step=3)
    trial.config_json = json.dumps({**config, "note": "two\nlines"})
    server.sweep.best.CopyFrom(trial)
    server.tell_news(trial, ended=True)
    best = ob.attach("s-1").wait().best
    line = str(best)
    assert len(line) <= 100 and "\n" not in line
    assert line.startswith("s-1/1: completed, best 0.75 at step 3, {")
    assert (repr(config)[1:-1] in line) == (parameters == 1)
    assert repr(config)[1:-1] in repr(best), "the whole configuration"
    assert repr(best).startswith("<outbid.TrialResult s-1/1: completed, ") and len(repr(best)) < 600


def test_columns_of_a_parameter_that_not_every_trial_has(result: ob.Result) -> None:
    columns = list(result.frame().columns)
    start = columns.index("config.junk")
    names = ["junk", "lr", "opt.m", "opt.name", "units"]
    assert columns[start : start + 5] == [f"config.{name}" for name in names]


def test_parallel_shows_values(result: ob.Result) -> None:
    texts = {text.get_text() for text in result.plot.parallel().figure.axes[0].texts}
    assert {"sgd", "adam", "none"} <= texts


def test_a_script_that_the_font_has_not_warns_nobody(result: ob.Result, server: FakeServer) -> None:
    for number, word in enumerate(("日本", "漢字")):
        server.trials[number].config_json = f'{{"word":"{word}"}}'
    assert ob.attach("s-1").result().plot.parallel()._repr_png_().startswith(b"\x89PNG")


def test_notebooks_show_trials_sweeps_and_charts(server: FakeServer, client: ob.Client) -> None:
    best = make_trial(1, best=0.75, best_step=3, step=3, until_step=9, reason="<b>odd</b>")
    server.sweep.best.CopyFrom(best)
    server.sweep.spec.metric, server.sweep.spec.mode = "accuracy", "max"
    server.tell_news(best, ended=True)
    result = ob.attach("s-1").wait()
    page = result.best._repr_html_()
    assert "<b>s-1/1</b>" in page
    assert "<td>lr</td><td>1.5</td>" in page
    assert "<td>best</td><td>0.75 at step 3</td>" in page
    assert "<b>odd</b>" not in page, "text from outside is escaped"
    page = result.sweep._repr_html_()
    assert "<td>max accuracy</td><td>0.75, trial 1 at step 3</td>" in page
    assert repr(result.sweep) == "<outbid.SweepInfo s-1: done, 0 trials, 0 steps, best accuracy 0.75>"
    assert repr(result.plot.history()) == "<outbid.Chart: s-1>"


def test_a_trial_names_all_its_leases(server: FakeServer, client: ob.Client) -> None:
    trial = make_trial(1, "running", node="a", devices=[0])
    gang = trial.leases.add(lease_id=3, holder="workers", state="running", from_step=2, step=5)
    gang.since.FromSeconds(60)
    gang.places.add(node="a", devices=[0], type="gpu")
    gang.places.add(node="b", devices=[0, 1], type="gpu", ended=True)
    trial.leases.add(lease_id=4, holder="workers", state="starting").places.add(node="c", devices=[2], type="gpu")
    server.trials[1] = trial
    shown = next(t for t in ob.attach("s-1").trials() if t.number == 1)
    first, second = shown.leases
    assert (first.lease_id, first.holder, first.state, first.from_step, first.step) == (3, "workers", "running", 2, 5)
    assert first.places == (ob.Place("a", (0,), "gpu", False), ob.Place("b", (0, 1), "gpu", True))
    assert first.since is not None and first.since.timestamp() == 60
    assert (second.since, second.places[0].node) == (None, "c")
    assert "<td>where</td><td>a: 0; c: 2</td>" in shown._repr_html_()
