"""The SDK with the real binary: server, worker and training processes."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outbid as ob

DEADLINE = 500.0
SRC = str(Path(__file__).resolve().parents[2] / "src")


def counting(trial: ob.Trial) -> None:
    """Count steps in the weights, so that they show lost or repeated work."""
    weights: Any = trial.checkpoint() or {"done": np.zeros((), dtype=np.int64)}
    for step in trial.steps():
        weights["done"] += 1
        assert weights["done"] == step, f"{weights['done']} steps in the weights at step {step}"
        trial.save(weights, metadata={"step": step})
        trial.report(step=step, score=trial.config.x * step / (step + 1))


def logistic(trial: ob.Trial) -> None:
    """Fit a logistic regression to two clusters of points with mini-batches."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-1, 1, (200, 5)), rng.normal(1, 1, (200, 5))])
    y = np.repeat([0.0, 1.0], 200)
    model: Any = trial.checkpoint() or {"w": np.zeros(5), "b": np.zeros(())}
    for step in trial.steps():
        batch = np.random.default_rng([trial.seed, step]).integers(0, 400, 32)
        p = 1 / (1 + np.exp(-(x[batch] @ model["w"] + model["b"])))
        model["w"] -= trial.config.lr * x[batch].T @ (p - y[batch]) / 32
        model["b"] -= trial.config.lr * np.mean(p - y[batch])
        accuracy = np.mean((x @ model["w"] + model["b"] > 0) == y)
        trial.save(model)
        trial.report(step=step, accuracy=accuracy)


def test_quickstart_script(tmp_path: Path) -> None:
    """Run a complete script without a server: one is started and stopped."""
    (tmp_path / "helper.py").write_text("def square(x):\n    return x * x\n")
    (tmp_path / "quick.py").write_text(
        """
import json, os
import helper
import outbid as ob

OFFSET = 0.3

def train(trial):
    for step in trial.steps():
        trial.report(step=step, loss=helper.square(trial.config.x - OFFSET) + 1 / step)

if __name__ == "__main__":
    sweep = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", tuner=ob.Random(max_steps=3), trials=6)
    result = sweep.run()
    pid = json.load(open(".outbid/server.json"))["pid"]
    print(json.dumps({"id": result.sweep.id, "trials": len(result.trials), "best": result.best.metric, "pid": pid}))
"""
    )
    env = {k: v for k, v in os.environ.items() if k not in ("OUTBID_URL", "OUTBID_TOKEN")}
    done = subprocess.run(
        [sys.executable, "quick.py"],
        cwd=tmp_path,
        env={**env, "PYTHONPATH": SRC},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    said = json.loads(lines[-1])
    assert (said["id"], said["trials"]) == ("train-1", 6)
    assert 1 / 3 <= said["best"] < 1
    assert any(line.startswith("train-1: done") for line in lines)
    with pytest.raises(ProcessLookupError):
        os.kill(said["pid"], 0)


def test_readme_runs_as_printed(tmp_path: Path) -> None:
    readme = (Path(SRC).parent / "README.md").read_text()
    (tmp_path / "readme.py").write_text(readme.split("```python\n")[1].split("```")[0])
    env = {k: v for k, v in os.environ.items() if k not in ("OUTBID_URL", "OUTBID_TOKEN")}
    done = subprocess.run(
        [sys.executable, "readme.py"],
        cwd=tmp_path,
        env={**env, "PYTHONPATH": SRC},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    assert "array(" in done.stdout.splitlines()[-1]


def test_hyperband_on_a_model(real: ob.Client) -> None:
    sweep = ob.Sweep(
        logistic, {"lr": ob.loguniform(1e-3, 1)}, metric="accuracy", mode="max", tuner=ob.Hyperband(9, seed=1)
    )
    result = sweep.run(display=False, timeout=DEADLINE, client=real)
    assert result.sweep.state == "done"
    assert len(result.trials) == 17, "Hyperband for R = 9, eta = 3: 9 + 5 + 3 trials"
    assert sum(trial.step == 9 for trial in result.trials) == 5, "1 + 1 + 3 of full length"
    assert result.sweep.steps == 69
    assert result.best.metric is not None and result.best.metric > 0.9
    assert set(result.best.checkpoint()) == {"w", "b"}
    assert len(result.reports()) == 69


def test_asha_pauses_and_resumes_from_checkpoints(real: ob.Client) -> None:
    sweep = ob.Sweep(counting, {"x": ob.uniform(0, 1)}, metric="score", mode="max", tuner=ob.ASHA(9, seed=2), trials=9)
    result = sweep.run(display=False, timeout=DEADLINE, client=real)
    assert result.sweep.state == "done", result.sweep.notes
    assert [trial.state for trial in result.trials if trial.state == "failed"] == []
    best = result.best
    assert best.checkpoint()["done"] == best.step
    assert best.metadata() == {"step": best.step}


def test_pbt_copies_checkpoints(real: ob.Client) -> None:
    def train(trial: ob.Trial) -> None:
        weights: Any = trial.checkpoint() or {"score": np.zeros(())}
        for step in trial.steps():
            weights["score"] += trial.config.x
            trial.save(weights)
            trial.report(step=step, score=weights["score"])

    tuner = ob.PBT(max_steps=12, interval=3, population=4, quantile=0.25)
    sweep = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="score", mode="max", tuner=tuner)
    result = sweep.run(display=False, timeout=DEADLINE, client=real)
    assert result.sweep.state == "done", result.sweep.notes
    assert len(result.trials) == 4
    assert {trial.step for trial in result.trials} == {12}


def test_a_tuner_of_ones_own(real: ob.Client) -> None:
    program = Path(__file__).resolve().parents[3] / "examples" / "own-tuner" / "tuner.py"
    tuner = ob.Plugin([sys.executable, str(program)], max_steps=6, settings={"trials": 5})
    sweep = ob.Sweep(counting, {"x": ob.uniform(0, 1)}, metric="score", mode="max", tuner=tuner)
    result = sweep.run(display=False, timeout=DEADLINE, client=real)
    assert result.sweep.state == "done", result.sweep.notes
    assert sorted(round(trial.config.x, 3) for trial in result.trials) == [0.09, 0.236, 0.472, 0.618, 0.854]
    assert {trial.step for trial in result.trials} == {2, 6}
    assert result.best.step == 6 and result.best.checkpoint()["done"] == 6
    with pytest.raises(ob.InvalidError, match="trials: is missing"):
        ob.Sweep(
            counting,
            {"x": ob.uniform(0, 1)},
            metric="score",
            mode="max",
            tuner=ob.Plugin([sys.executable, str(program)]),
        ).submit(real)


def test_ask_and_tell(real: ob.Client) -> None:
    sweep = ob.Sweep(
        space={"x": ob.uniform(0, 1), "n": ob.integer(1, 5)},
        metric="loss",
        mode="min",
        tuner=ob.SuccessiveHalving(max_steps=9, trials=9),
    )
    handle = sweep.submit(real)
    told = 0
    while (asked := sweep.ask(timeout=DEADLINE)) is not None:
        assert type(asked.config.n) is int
        go_on = True
        while go_on:
            go_on = sweep.tell(asked, abs(asked.config.x - 0.5))
            told += 1
    result = handle.wait(DEADLINE)
    assert (result.sweep.state, len(result.trials)) == ("done", 9)
    assert told == 9 + 3 + 1
    xs = [trial.config.x for trial in result.trials]
    assert result.best.config.x == min(xs, key=lambda x: abs(x - 0.5))


def test_metrics_whose_names_are_alike_stay_apart(real: ob.Client) -> None:
    def train(trial: ob.Trial) -> dict[str, float]:
        return {"val acc": trial.config.x, "val_acc": -trial.config.x, "val/acc": 0.0}

    result = ob.Sweep(train, {"x": ob.choice([1, 2, 3])}, metric="val acc", mode="max", tuner=ob.Grid()).run(
        client=real, display=False
    )
    assert result.best.metrics == {"val acc": 3, "val_acc": -3, "val/acc": 0}


def test_what_is_told_without_metrics_is_kept(real: ob.Client) -> None:
    sweep = ob.Sweep(space={"x": ob.uniform(0, 1)}, metric="loss", mode="min", trials=2, max_restarts=0)
    handle = sweep.submit(real)
    for told in ({"finished": True}, {"error": "out of memory \ud800" * 1_000_000}):
        asked = handle.ask(DEADLINE)
        assert asked is not None
        handle.tell(asked, notes={"model": "small"}, **told)
    trials = handle.trials()
    assert [trial.attributes for trial in trials] == [{"model": "small"}] * 2
    assert "out of memory \\ud800" in trials[1].reason


def test_attach_and_logs(real: ob.Client) -> None:
    def train(trial: ob.Trial) -> None:
        print(f"hello from {trial.number}")
        print("careful", file=sys.stderr)
        trial.report(loss=1.0)

    handle = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", trials=2).submit(real)
    other = ob.connect(real.url)
    try:
        again = other.attach(handle.id)
        assert again.wait(DEADLINE).sweep.state == "done"
        assert any(sweep.id == handle.id for sweep in other.sweeps())
        lines = {(line.trial, line.stream, line.line) for line in again.logs(follow=True)}
    finally:
        other.close()
    assert {(0, "stdout", "hello from 0"), (1, "stdout", "hello from 1"), (0, "stderr", "careful")} <= lines
    assert not any("\x1e" in line for _, _, line in lines)


def test_pause_resume_and_extend(real: ob.Client) -> None:
    tuner = ob.Random(max_steps=2, seed=3)
    handle = ob.Sweep(counting, {"x": ob.uniform(0, 1)}, metric="score", mode="max", tuner=tuner, trials=3).submit(real)
    handle.pause()
    handle.resume()
    first = handle.wait(DEADLINE)
    assert len(first.trials) == 3
    handle.extend(trials=5)
    second = handle.wait(DEADLINE)
    assert [trial.number for trial in second.trials] == [0, 1, 2, 3, 4]
    assert [t.config for t in second.trials[:3]] == [t.config for t in first.trials], "what was done stays"


def test_trials_of_a_paused_sweep_are_paused(real: ob.Client) -> None:
    def train(trial: ob.Trial) -> None:
        for step in trial.steps():
            trial.save({"w": np.zeros(1)})
            trial.report(loss=1 / step)

    tuner = ob.Random(max_steps=10**9)
    handle = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", tuner=tuner, trials=1).submit(real)
    seen: dict[int, str] = {}
    for update in handle.watch(timeout=DEADLINE):
        seen.update((trial.number, trial.state) for trial in update.trials)
        if update.sweep.state == "running" and update.sweep.steps:
            handle.pause()
        elif update.sweep.state == "paused" and not update.sweep.counts["running"]:
            break
    assert seen == {0: "paused"}
    assert (update.sweep.counts["queued"], update.sweep.counts["paused"]) == (0, 1)
    handle.stop()


def test_stop(real: ob.Client) -> None:
    def train(trial: ob.Trial) -> None:
        for step in trial.steps():
            trial.report(step=step, loss=1 / step)

    sweep = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", trials=1)
    with pytest.warns(UserWarning, match=r"loops over trial.steps\(\) without an end"):
        handle = sweep.submit(real)
    for update in handle.watch(timeout=DEADLINE):
        if update.sweep.steps:
            handle.stop()
    assert handle.info().state == "stopped"


def test_error_in_training(real: ob.Client) -> None:
    def train(trial: ob.Trial) -> None:
        if trial.config.bad:
            raise ValueError("the data are not there")
        trial.report(loss=0.5)

    sweep = ob.Sweep(
        train, {"bad": ob.choice([True, False])}, metric="loss", mode="min", tuner=ob.Grid(), max_restarts=1
    )
    result = sweep.run(display=False, timeout=DEADLINE, client=real)
    bad = next(trial for trial in result.trials if trial.config.bad)
    assert bad.state == "failed"
    assert "ValueError: the data are not there" in bad.reason
    assert result.best.config == {"bad": False}
    logs = [line.line for line in real.attach(result.sweep.id).logs(bad.number, follow=True)]
    assert logs.count("ValueError: the data are not there") == 2, "it was started once, and once again"


def test_callbacks_and_nan(real: ob.Client) -> None:
    def train(trial: ob.Trial) -> None:
        for step in trial.steps():
            trial.report(step=step, loss=math.nan if trial.number == 0 else 1 / step, extra=step)

    calls: list[Any] = []

    class Recorder(ob.Callback):
        def on_report(self, trial: ob.TrialResult, report: ob.Report) -> None:
            calls.append((trial.number, report.step, report.metrics["extra"]))

        def on_trial_end(self, trial: ob.TrialResult) -> None:
            calls.append(("end", trial.number))

        def on_sweep_end(self, result: ob.Result) -> None:
            calls.append("done")

    sweep = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", tuner=ob.Random(max_steps=3), trials=2)
    result = sweep.run(display=False, timeout=DEADLINE, callbacks=[Recorder()], client=real)
    assert sorted(c for c in calls if len(c) == 3) == [(n, s, s) for n in (0, 1) for s in (1, 2, 3)]
    assert sorted(c for c in calls if len(c) == 2) == [("end", 0), ("end", 1)]
    assert calls[-1] == "done"
    assert result.best.number == 1, "NaN is never the best"


def test_module_state_and_fresh_processes(real: ob.Client) -> None:
    def train(trial: ob.Trial) -> None:
        import colorsys

        seen = vars(colorsys).setdefault("trials", [])
        seen.append(trial.number)
        trial.report(loss=float(len(seen)))

    def trials_seen(**options: Any) -> list[float | None]:
        space = {"x": ob.uniform(0, 1)}
        sweep = ob.Sweep(train, space, metric="loss", mode="min", trials=4, concurrency=1, **options)
        return [trial.metric for trial in sweep.run(display=False, timeout=DEADLINE, client=real).trials]

    assert trials_seen() == [1, 2, 3, 4], "a warm process keeps what trials did to its modules"
    assert trials_seen(fresh_process=True) == [1, 1, 1, 1]


def test_program(real: ob.Client) -> None:
    line = """echo '{{"step": 1, "loss": {x}}}' >> "$OUTBID_REPORT" """
    sweep = ob.Sweep(
        program=["/bin/sh", "-c", line],
        space={"x": ob.uniform(0, 1)},
        metric="loss",
        mode="min",
        trials=2,
    )
    result = sweep.run(display=False, timeout=DEADLINE, client=real)
    assert [trial.metric for trial in result.trials] == [trial.config.x for trial in result.trials]


def test_preview(real: ob.Client) -> None:
    sweep = ob.Sweep(counting, {"x": ob.uniform(0, 1)}, metric="score", mode="max", tuner=ob.Hyperband(81))
    preview = sweep.preview(step_seconds=3600, client=real)
    assert [(r.until_step, r.trials) for r in preview.rungs if r.bracket == 4] == [
        (1, 81),
        (3, 27),
        (9, 9),
        (27, 3),
        (81, 1),
    ], "the table of the paper for R = 81, eta = 3"
    assert preview.device_hours == preview.steps
    assert 0 <= preview.examples[0]["x"] <= 1


def test_refused_sweep_names_the_field(real: ob.Client) -> None:
    space, tuner = {"x": ob.uniform(0, 1)}, ob.Random(max_steps=3)
    sweep = ob.Sweep(counting, space, metric="score", mode="max", constraints=["y < 1"], tuner=tuner)
    with pytest.raises(ob.InvalidError, match=r"constraints.*y"):
        sweep.submit(real)


def test_server_killed_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill -9 of server and worker the SDK restarts them, and every step of the sweep is done once."""
    monkeypatch.setenv("PYTHONPATH", SRC)

    def train(trial: ob.Trial) -> None:
        weights: Any = trial.checkpoint() or {"done": np.zeros((), dtype=np.int64)}
        for step in trial.steps():
            weights["done"] += 1
            assert weights["done"] == step
            trial.save(weights)
            trial.report(step=step, score=step + trial.config.x)
            time.sleep(0.02)  # slow enough to be killed during training

    with ob.connect(data=tmp_path / "data") as client:
        pid = json.loads((tmp_path / "data" / "server.json").read_text())["pid"]
        sweep = ob.Sweep(
            train,
            {"x": ob.uniform(0, 1)},
            metric="score",
            mode="max",
            tuner=ob.Random(max_steps=30),
            trials=4,
            checkpoints=ob.Checkpoints(every=0.1),
        )
        handle = sweep.submit(client)
        killed = threading.Event()

        class Killer(ob.Callback):
            def on_report(self, trial: ob.TrialResult, report: ob.Report) -> None:
                if report.step == 10 and not killed.is_set():
                    killed.set()
                    os.kill(pid, signal.SIGKILL)

        result = handle.wait(DEADLINE, callbacks=[Killer()])
        assert killed.is_set()
        assert result.sweep.state == "done"
        assert [trial.step for trial in result.trials] == [30] * 4
        assert result.best.checkpoint()["done"] == 30


def execute(server: ob.Client, place: Path, *cells: str) -> Any:
    """Run a notebook's cells with a server, ignoring errors; returns the notebook."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(text) for text in cells]
    env = {**os.environ, "PYTHONPATH": SRC, "OUTBID_URL": server.url, "JUPYTER_PLATFORM_DIRS": "1"}
    where = {"metadata": {"path": str(place)}}
    nbclient.NotebookClient(book, timeout=DEADLINE, resources=where, allow_errors=True).execute(env=env)
    return book


def test_notebook(real: ob.Client, tmp_path: Path) -> None:
    book = execute(
        real,
        tmp_path,
        "import outbid as ob\nSHIFT = 0.5",
        "def train(trial):\n"
        "    for step in trial.steps():\n"
        "        trial.report(step=step, loss=abs(trial.config.x - SHIFT) / step)",
        'sweep = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min",\n'
        "                 tuner=ob.Hyperband(3), name='notebook')\n"
        "result = sweep.run()\nresult",
        "result.best.config.x",
        "result",
    )
    errors = [o for cell in book.cells for o in cell.outputs if o.output_type == "error"]
    assert not errors
    outputs = book.cells[2].outputs
    pages = [o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {})]
    assert len(pages) == 2, "the table that was drawn, and what the last line is"
    assert "<table>" in pages[0] and "done" in pages[0]
    assert "<table>" not in pages[1] and "outbid.Result of notebook-" in pages[1], "one table is enough"
    assert "<table>" in book.cells[4].outputs[0]["data"]["text/html"]
    assert 0 <= float(book.cells[3].outputs[0]["data"]["text/plain"]) <= 1


def test_a_traceback_from_a_notebook_has_the_lines_of_its_cells(real: ob.Client, tmp_path: Path) -> None:
    book = execute(
        real,
        tmp_path,
        "import math\nimport outbid as ob\ndef scale(x):\n    return math.sqrt(x) / 0  # of the first cell",
        "%config Application.log_level = 30\n"
        "def train(trial):\n"
        "    try:\n"
        "        scale(trial.config.x)\n"
        "    except ZeroDivisionError as error:\n"
        "        raise ValueError('bad') from error  # of the second",
        'ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", trials=1, name="cells").run()',
    )
    page = "".join(o.get("data", {}).get("text/html", "") for o in book.cells[2].outputs)
    assert "return math.sqrt(x) / 0  # of the first cell" in page
    assert "# of the second" in page


def test_the_best_checkpoint_is_that_of_the_best_report(real: ob.Client) -> None:
    def train(trial: ob.Trial) -> None:
        for step in trial.steps():
            trial.save({"w": np.array([step])}, metadata={"step": step})
            trial.report(loss=abs(step - 9) + trial.config.x)

    sweep = ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min", tuner=ob.Random(max_steps=27), trials=2)
    result = sweep.run(display=False, timeout=DEADLINE, client=real)
    best = result.best
    assert best.best_step == 9
    assert best.metadata() == {"step": 9}
    assert best.checkpoint()["w"].tolist() == [9]
