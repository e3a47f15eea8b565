"""Optuna's samplers in sweeps of a real server."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import outbid as ob

optuna = pytest.importorskip("optuna")

SPACE = {
    "x": ob.uniform(-5, 5),
    "y": ob.loguniform(1e-3, 1e3),
    "kind": ob.choice(["ball", "bowl"]),
    "tilt": ob.when(ob.uniform(0, 1), "kind", in_=["bowl"]),
}


def train(trial: ob.Trial) -> None:
    config = trial.config
    loss = (config["x"] - 2) ** 2 + math.log(config["y"]) ** 2 + config.get("tilt", 0.5)
    for step in trial.steps():
        trial.report(step=step, loss=loss + 1 / step)


def test_a_sampler_in_one_line(real: ob.Client) -> None:
    result = ob.Sweep(
        train,
        SPACE,
        metric="loss",
        mode="min",
        tuner=ob.TPE(max_steps=1, seed=3),
        trials=24,
        concurrency=2,
        constraints=["x < 1 or y > 2"],
    ).run(display=False, timeout=500, client=real)
    assert result.sweep.state == "done" and len(result.trials) == 24
    assert all(t.config["x"] < 1 or t.config["y"] > 2 for t in result.trials)
    assert all(("tilt" in t.config) == (t.config["kind"] == "bowl") for t in result.trials)
    known = ob.TPE(max_steps=1, startup=1, seed=4, prior=result)
    late = ob.Sweep(train, SPACE, metric="loss", mode="min", tuner=known, trials=8)
    again = late.run(display=False, timeout=500, client=real)
    # The sampler learned: the median of the new trials is better than that of the first ones.
    assert sorted(t.metric or math.inf for t in again.trials)[4] < sorted(t.metric or 0 for t in result.trials[:10])[5]


@pytest.mark.parametrize(
    "tuner",
    [
        ob.ASHA(max_steps=9, sampler=ob.TPE(startup=4), seed=1),
        ob.Hyperband(max_steps=9, sampler=ob.NSGA2(startup=4), seed=1),
    ],
    ids=["asha-tpe", "hyperband-nsga2"],
)
def test_a_sampler_under_a_rule_that_stops_trials(real: ob.Client, tuner: ob.Tuner) -> None:
    trials = 20 if isinstance(tuner, ob.ASHA) else None
    sweep = ob.Sweep(train, SPACE, metric="loss", mode="min", tuner=tuner, trials=trials)
    preview = sweep.preview(client=real)
    assert preview.examples and any("configurations shown are random" in w for w in preview.warnings)
    result = sweep.run(display=False, timeout=500, client=real)
    assert result.sweep.state == "done"
    assert len({t.step for t in result.trials}) > 1, "some trials are trained longer than others"
    assert max(t.step for t in result.trials) == 9


YAML = """
name: yaml-{sampler}
space: {{x: {{float: {{low: -5, high: 5}}}}}}
metric: loss
mode: min
tuner: {{asha: {{max_steps: 1, sampler: {sampler}}}}}
limits: {{trials: 6}}
program:
  shell: |
    echo "{{{{\\"step\\": 1, \\"loss\\": 1}}}}" >> "$OUTBID_REPORT"
"""


def run_yaml(real: ob.Client, sampler: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OUTBID_URL": real.url}
    command = [os.environ["OUTBID_BIN"], "run", "-"]
    return subprocess.run(
        command, input=YAML.format(sampler=sampler), env=env, capture_output=True, text=True, timeout=500
    )


def test_yaml_says_what_a_sampler_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python3 = tmp_path / "bin" / "python3"
    python3.parent.mkdir()
    monkeypatch.setenv("PATH", f"{python3.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2] / "src"))

    def write(*options: str) -> None:
        python3.write_text(f'#!/bin/sh\nexec "{sys.executable}" {" ".join(options)} "$@"\n')
        python3.chmod(0o755)

    write()
    with ob.connect(data=tmp_path / "data") as client:
        done = run_yaml(client, "tpe")
        assert done.returncode == 0 and "6 trials" in done.stdout, done.stderr
        done = run_yaml(client, "dice")
        assert 'sampler: "dice" is unknown; use random, sobol, bayes, tpe, gp, cmaes or nsga2' in done.stderr
        write("-S")  # no installed packages: neither Optuna nor other requirements of the SDK
        done = run_yaml(client, "cmaes")
        assert done.returncode != 0
        assert "cmaes is one of Optuna's, which needs Python with Optuna where the server runs" in done.stderr


def objective(trial: Any) -> Any:
    """An objective that does not use Outbid."""
    x = trial.suggest_float("x", -5, 5)
    kind = trial.suggest_categorical("kind", ["ball", "bowl"])
    tilt = trial.suggest_int("tilt", 1, 4) if kind == "bowl" else 0
    for step in range(4):
        trial.report(x**2 + tilt, step)
        if trial.should_prune() or (step == 2 and trial.number == 2):
            raise optuna.TrialPruned
    if trial.number == 3:
        raise RuntimeError("the objective's own fault")
    return x**2 + tilt


def test_an_objective_of_optunas_runs_unchanged(real: ob.Client, tmp_path: Path) -> None:
    import outbid.optuna

    storage = str(tmp_path / "study.log")
    options: Any = {"n_jobs": 2, "storage": storage, "study_name": "bowl"}
    options |= {"display": False, "timeout": 100, "client": real}
    study = outbid.optuna.optimize(objective, 12, sampler=optuna.samplers.TPESampler(seed=1), **options)
    assert len(study.trials) == 12 and all(t.state.is_finished() for t in study.trials)
    assert len({t.params["x"] for t in study.trials}) == 12, "no two processes draw the same"
    for trial in study.trials:
        assert trial.user_attrs["outbid"].startswith("objective-1/")
        if trial.state.name == "COMPLETE":
            assert sorted(trial.intermediate_values) == [0, 1, 2, 3]
            assert trial.value == trial.params["x"] ** 2 + trial.params.get("tilt", 0)
        else:
            assert trial.state.name in ("PRUNED", "FAIL")
    assert study.trials[2].state.name != "COMPLETE" and study.trials[3].state.name != "COMPLETE"
    best = real.attach("objective-1").result().best
    assert best.metric == min(min(t.intermediate_values.values()) for t in study.trials)
    assert len(outbid.optuna.optimize(objective, 2, **options).trials) == 14, "the study goes on"


def test_a_sweep_becomes_a_study(real: ob.Client, tmp_path: Path) -> None:
    import outbid.optuna

    tuner = ob.ASHA(max_steps=9, form="stop", seed=2)
    sweep = ob.Sweep(train, SPACE, metric="loss", mode="min", tuner=tuner, trials=9, name="exported")
    result = sweep.run(display=False, timeout=500, client=real)
    study = outbid.optuna.to_study(result, storage=str(tmp_path / "study.log"))
    assert study.study_name == result.sweep.id and len(study.trials) == 9
    for trial, ours in zip(study.trials, result.trials, strict=True):
        assert trial.params == dict(ours.config) and trial.user_attrs["outbid"] == ours.id
        assert trial.state.name == {"completed": "COMPLETE", "pruned": "PRUNED"}[ours.state]
        assert max(trial.intermediate_values) == ours.step
    assert study.best_value == pytest.approx(result.best.metric)
    assert ob.TPE(prior=study).to_proto().plugin.settings["prior"]


def two_objectives(trial: Any) -> tuple[float, float]:
    """An objective with two conflicting values; the second trial returns too few values."""
    x = trial.suggest_float("x", -5, 5)
    if trial.number == 1:
        return (x**2,)  # type: ignore[return-value]
    return x**2, (x - 2) ** 2


def test_an_objective_of_several_values_runs_and_goes_back(real: ob.Client) -> None:
    """Optuna's best trials are the sweep's front, and a study made from the sweep has the same."""
    import outbid.optuna

    ways: Any = ["minimize", "maximize"]
    with pytest.raises(ValueError, match="direction"):
        outbid.optuna.optimize(two_objectives, 1, direction="minimize", directions=ways, client=real)
    options: Any = {"display": False, "timeout": 100, "client": real, "n_jobs": 2}
    study = outbid.optuna.optimize(two_objectives, 8, directions=ways, **options)
    assert [way.name for way in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    failed = [trial for trial in study.trials if trial.state.name != "COMPLETE"]
    assert [trial.number for trial in failed] == [1] and len(study.trials) == 8
    for trial in study.trials:
        if trial not in failed:
            assert trial.values == [trial.params["x"] ** 2, (trial.params["x"] - 2) ** 2]
    result = real.attach(study.trials[0].user_attrs["outbid"].partition("/")[0]).result()
    assert result.sweep.objectives == (("values_0", "min"), ("values_1", "max"))
    fault = next(trial for trial in result.trials if trial.id == failed[0].user_attrs["outbid"])
    assert fault.state == "failed" and "the study needs 2 (minimize, maximize)" in fault.reason
    front = {trial.id for trial in result.front()}
    assert front == {trial.user_attrs["outbid"] for trial in study.best_trials}
    back = outbid.optuna.to_study(result)
    assert back.metric_names == ["values_0", "values_1"] and len(back.trials) == 8
    assert {trial.user_attrs["outbid"] for trial in back.best_trials} == front
