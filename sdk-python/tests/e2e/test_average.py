"""Checkpoints of a real sweep, averaged by the binary, beside the same mean by numpy."""

from __future__ import annotations

import importlib
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import outbid as ob
from outbid import _tensors

DEADLINE = 120.0


def digits(trial: ob.Trial) -> None:
    """Train softmax regression on the digits, from zero, in an order of the trial's own."""
    x, y = importlib.import_module("sklearn.datasets").load_digits(return_X_y=True)
    x = np.hstack([x / 16, np.ones((len(x), 1))])
    draw = np.random.default_rng(trial.number)
    weights = np.zeros((x.shape[1], 10))
    for step in trial.steps():
        rows = draw.permutation(len(x))[:1000]
        scores = np.exp(x[rows] @ weights)
        scores /= scores.sum(axis=1, keepdims=True)
        scores[np.arange(len(rows)), y[rows]] -= 1
        weights -= trial.config.lr * x[rows].T @ scores / len(rows)
        accuracy = float(np.mean(np.argmax(x @ weights, axis=1) == y))
        seen = np.bincount(y[rows], minlength=10)
        trial.save({"weights": weights, "half": weights.astype(np.float16), "seen": seen}, metadata={"step": step})
        trial.report(step=step, accuracy=accuracy)


def test_checkpoints_of_a_sweep_are_averaged(real: ob.Client, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    space = {"lr": ob.uniform(0.4, 0.6)}
    sweep = ob.Sweep(
        digits,
        space,
        metric="accuracy",
        mode="max",
        tuner=ob.Random(max_steps=60, seed=1),
        trials=3,
        checkpoints=ob.Checkpoints(best=3),
    )
    trials = sweep.submit(real).wait(DEADLINE).trials
    steps = [900, 300, 300]
    files = [trial.download(tmp_path / f"{trial.number}.safetensors") for trial in trials]
    mean = tmp_path / "mean.safetensors"
    command = [
        os.environ["OUTBID_BIN"],
        "average",
        *(f"{f}={n}" for f, n in zip(files, steps, strict=True)),
        "--to",
        str(mean),
    ]
    subprocess.run(command, check=True, timeout=DEADLINE)
    got, metadata = _tensors.read(mean)
    parts = [_tensors.read(f)[0] for f in files]
    for name in ("weights", "half"):
        want = np.average([p[name].astype(np.float64) for p in parts], axis=0, weights=steps)
        digits_of = 1e-12 if name == "weights" else 1e-3
        np.testing.assert_allclose(got[name].astype(np.float64), want, rtol=digits_of, atol=1e-6)
        assert got[name].dtype == parts[0][name].dtype
    np.testing.assert_array_equal(got["seen"], parts[0]["seen"])
    assert metadata == _tensors.read(files[0])[1]

    x, y = importlib.import_module("sklearn.datasets").load_digits(return_X_y=True)
    x = np.hstack([x / 16, np.ones((len(x), 1))])
    accuracy = float(np.mean(np.argmax(x @ got["weights"], axis=1) == y))
    worst = min(trial.metric for trial in trials if trial.metric is not None)
    assert accuracy > worst - 0.01
