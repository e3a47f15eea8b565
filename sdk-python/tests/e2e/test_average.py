"""Averages of checkpoints of a real sweep by the binary, compared with numpy."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import outbid as ob
from outbid._training import tensors

DEADLINE = 500.0


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's images and digits from its file, because importing scikit-learn takes seconds."""
    spec = importlib.util.find_spec("sklearn")
    assert spec and spec.origin
    table = np.loadtxt(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return np.hstack([table[:, :-1] / 16, np.ones((len(table), 1))]), table[:, -1].astype(int)


def digits(trial: ob.Trial) -> None:
    """Train softmax regression on the digits from zero, in an order that depends on the trial."""
    x, y = samples()
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
    got, metadata = tensors.read(mean)
    parts = [tensors.read(f)[0] for f in files]
    for name in ("weights", "half"):
        want = np.average([p[name].astype(np.float64) for p in parts], axis=0, weights=steps)
        digits_of = 1e-12 if name == "weights" else 1e-3
        np.testing.assert_allclose(got[name].astype(np.float64), want, rtol=digits_of, atol=1e-6)
        assert got[name].dtype == parts[0][name].dtype
    np.testing.assert_array_equal(got["seen"], parts[0]["seen"])
    assert metadata == tensors.read(files[0])[1]

    x, y = samples()
    accuracy = float(np.mean(np.argmax(x @ got["weights"], axis=1) == y))
    worst = min(trial.metric for trial in trials if trial.metric is not None)
    assert accuracy > worst - 0.01


EVALUATE = """
import os
import numpy as np
from safetensors.numpy import load_file

data = np.load("DATA")
weights = load_file(os.environ["OUTBID_CHECKPOINT"])["weights"]
print("evaluated")
print('{"accuracy": %r}' % float(np.mean(np.argmax(data["x"] @ weights, axis=1) == data["y"])))
"""


def test_a_soup_is_no_worse_than_the_best(real: ob.Client, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    space = {"lr": ob.loguniform(0.001, 1)}
    sweep = ob.Sweep(
        digits,
        space,
        metric="accuracy",
        mode="max",
        tuner=ob.Random(max_steps=30, seed=1),
        trials=4,
        checkpoints=ob.Checkpoints(best=4),
    )
    handle = sweep.submit(real)
    handle.wait(DEADLINE)
    script, soup = tmp_path / "evaluate.py", tmp_path / "soup.safetensors"
    x, y = samples()
    np.savez(tmp_path / "data.npz", x=x[::2], y=y[::2])
    script.write_text(EVALUATE.replace("DATA", str(tmp_path / "data.npz")))
    evaluate = f"{sys.executable} {script}"
    command = [os.environ["OUTBID_BIN"], "soup", handle.id, "--server", real.url, "--eval", evaluate]
    command += ["--to", str(soup), "-o", "json"]
    done = subprocess.run(command, check=True, timeout=DEADLINE, capture_output=True, text=True)
    tried = json.loads(done.stdout)
    assert len(tried) == 4 and tried[0]["kept"], tried
    best = max(t["soup"] for t in tried if t["kept"])
    assert best >= tried[0]["soup"]
    kept = [t for t in tried if t["kept"]]
    assert f"the average of {len(kept)} of 4 checkpoints" in done.stderr
    env = {**os.environ, "OUTBID_CHECKPOINT": str(soup)}
    again = subprocess.run(evaluate, shell=True, check=True, env=env, capture_output=True, text=True, timeout=DEADLINE)
    assert json.loads(again.stdout.splitlines()[-1])["accuracy"] == pytest.approx(kept[-1]["soup"])
    assert not list(tmp_path.glob(".*")), "nothing is left behind"

    result = handle.result()  # the sweep keeps the soup
    info, fetched = result.sweep.soups[0], result.soup()
    assert (info.number, info.actor, info.size) == (1, "local", soup.stat().st_size)
    assert info.sha256 == hashlib.sha256(soup.read_bytes()).hexdigest()
    assert fetched.metric == info.metric == pytest.approx(kept[-1]["soup"])
    np.testing.assert_array_equal(fetched.weights["weights"], tensors.read(soup)[0]["weights"])
    shown = subprocess.run(
        [os.environ["OUTBID_BIN"], "show", handle.id, "--server", real.url],
        check=True, timeout=DEADLINE, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert re.search(r"soup +1: accuracy 0\.\d+, of trials [\d ]+, of 4 tried", shown), shown
    second = result.soup(2)  # by the SDK, uniform: as many soups are kept as best checkpoints
    assert (second.number, second.metric, result.soup().number) == (2, None, 2)

    for wrong, says in {
        "echo fine": "want a number, or a JSON object that has",
        "exit 3": "exit status 3",
    }.items():
        command[command.index("--eval") + 1] = wrong
        failed = subprocess.run(command, timeout=DEADLINE, capture_output=True, text=True)
        assert failed.returncode != 0 and says in failed.stderr, failed.stderr
