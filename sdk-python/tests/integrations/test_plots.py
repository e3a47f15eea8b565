"""Every plot, interactive and static, of a sweep with two objectives."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

import outbid as ob

KINDS = ["history", "curves", "parallel", "importance", "slice", "contour", "rank", "front", "edf", "timeline"]


def train(trial: ob.Trial) -> None:
    for step in trial.steps():
        trial.report(step=step, loss=(trial.config.x - 1) ** 2 + 1 / step, latency=abs(trial.config.x) + trial.config.n)


@pytest.fixture(scope="module")
def result(real: ob.Client) -> ob.Result:
    space = {"x": ob.uniform(-3, 3), "n": ob.integer(1, 4), "kind": ob.choice(["a", "b"])}
    objectives = {"metric": ["loss", "latency"], "mode": ["min", "min"]}
    sweep = ob.Sweep(train, space, tuner=ob.Random(max_steps=2, seed=1), trials=16, **objectives)  # type: ignore[arg-type]
    return sweep.run(client=real, display=False, timeout=500)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", KINDS)
def test_both_backends_draw(result: ob.Result, kind: str, tmp_path: Path) -> None:
    chart = getattr(result.plot, kind)()
    assert chart._repr_png_().startswith(b"\x89PNG")
    page = getattr(result.plot, kind)(backend="plotly")
    assert page.figure.data, "something is drawn"
    page.save(str(tmp_path / "plot.html"))
    assert "plotly" in (tmp_path / "plot.html").read_text()


def test_importance_by_fanova(result: ob.Result, caplog: pytest.LogCaptureFixture) -> None:
    optuna.logging.enable_propagation()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    shares = result.importance(method="fanova")
    assert not caplog.records, "nobody asked Optuna for a study"
    assert next(iter(shares)) == "x" and sum(shares.values()) == pytest.approx(1)


def test_nothing_matters_where_all_trials_are_alike(real: ob.Client) -> None:
    """Optuna's measure would raise an error."""
    sweep = ob.Sweep(lambda _: 1.0, {"x": ob.uniform(0, 1)}, metric="m", mode="min", tuner=ob.Random(), trials=5)
    result = sweep.run(client=real, display=False, timeout=500)
    assert result.importance(method="fanova") == result.importance() == {"x": 0.0}
