"""Code in documents and examples runs unchanged."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import outbid as ob

DEADLINE = 500.0
SRC = str(Path(__file__).resolve().parents[2] / "src")
ROOT = Path(__file__).resolve().parents[3]

MODEL = """
import os, sys, time
import numpy as np

HOLD = os.path.abspath("hold")  # while it is there, trials wait after nine steps: their sweep still runs

class Model:
    def __init__(self, config, trial):
        self.config, self.x, self.trial, self.steps = config, np.zeros(3), trial, 0

    def load(self, weights):
        self.x = weights["x"]

    def weights(self):
        return {"x": self.x}

    def train_one_epoch(self):
        self.steps += 1
        while self.steps > 9 and os.path.exists(HOLD):
            time.sleep(0.02)
        self.x = self.x + self.config.lr * (1 - self.x)
        # The guide reads what trial 3 prints until it ends: it is the worst, and ends with its first rung.
        return float(np.mean((1 - self.x) ** 2)), float(np.mean(self.x)) - (self.trial == 3)

def build(config):
    return Model(config, sys._getframe(1).f_locals["trial"].number)
"""
RUNS = "handle = sweep.submit()"  # the guide's lines after this one need a sweep that runs until it is stopped
STOPS = "handle.pause(); handle.resume(); handle.stop()"


def environment(**more: str) -> dict[str, str]:
    """Return an environment with this checkout's SDK and without a server."""
    env = {k: v for k, v in os.environ.items() if k not in ("OUTBID_URL", "OUTBID_TOKEN")}
    return {**env, "PYTHONPATH": SRC, **more}


def test_guide_runs_as_printed(tmp_path: Path) -> None:
    guide = ROOT / "docs" / "guides" / "notebook.md"
    if not guide.exists():
        pytest.skip("the guide is not beside the SDK")
    blocks = re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    text = "\n".join(blocks)
    assert text.index(RUNS) < text.index(STOPS)
    text = text.replace(RUNS, f"open(HOLD, 'w').close(); {RUNS}", 1).replace(STOPS, f"{STOPS}; os.remove(HOLD)")
    (tmp_path / "guide.py").write_text(MODEL + text + "\nprint('all of it')\n")
    done = subprocess.run(
        [sys.executable, "guide.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "all of it"
    assert (tmp_path / "best.safetensors").exists()


def run_notebook(book: Any, path: Path, **env: str) -> None:
    """Run a notebook's cells in a new kernel."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    client = nbclient.NotebookClient(book, timeout=DEADLINE, resources={"metadata": {"path": str(path)}})
    client.execute(env=environment(JUPYTER_PLATFORM_DIRS="1", **env))


def test_digits_notebook(tmp_path: Path) -> None:
    """Run every cell of the example, with fewer steps."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("sklearn")
    digits = ROOT / "examples" / "digits"
    if not digits.exists():
        pytest.skip("the examples are not beside the SDK")
    for name in ("digits.ipynb", "network.py"):
        shutil.copy(digits / name, tmp_path)
    text = (tmp_path / "digits.ipynb").read_text()
    for long, short in (("max_steps=27", "max_steps=3"), ("range(1, 28)", "range(1, 4)")):
        assert long in text
        text = text.replace(long, short)
    book = nbformat.reads(text, as_version=4)
    shown = [cell.outputs for cell in book.cells if cell.cell_type == "code" and cell.source[:3] in ("swe", "res")]
    assert len(shown) > 4 and all(shown), "a reader sees the outputs without running it"
    run_notebook(book, tmp_path)
    outputs = [cell.outputs for cell in book.cells if cell.cell_type == "code"]
    assert any("image/png" in o.get("data", {}) for out in outputs for o in out), "a plot is shown"
    tuned, default = eval(outputs[-1][-1]["data"]["text/plain"], {"np": __import__("numpy")})
    assert tuned > 0.5
    assert 0 < default < 1


def test_interrupted_kernel_leaves_the_sweep_of_a_shared_server_and_runs_again(real: ob.Client, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.v4.new_notebook()
    book.cells = [
        nbformat.v4.new_code_cell(text)
        for text in (
            "import os, signal, threading, outbid as ob",
            "LONG = 10**9\n"
            "def train(trial):\n"
            "    for step in trial.steps():\n"
            "        trial.report(step=step, loss=1 / step)\n"
            "        if trial.number == 0 and step == LONG:\n"
            "            raise ValueError('never')",
            "class Interrupt(ob.Callback):\n"
            "    def on_report(self, trial, report):\n"
            "        os.kill(os.getpid(), signal.SIGINT)\n"
            "sweep = ob.Sweep(train, {'x': ob.uniform(0, 1)}, metric='loss', mode='min', trials=1,\n"
            "                 tuner=ob.Random(max_steps=LONG), name='interrupted')\n"
            "try:\n"
            "    sweep.run(callbacks=[Interrupt()])\n"
            "except KeyboardInterrupt:\n"
            "    print(sweep.handle.info().state)\n"
            "    sweep.handle.stop()",
            "LONG = 3",
            "sweep = ob.Sweep(train, {'x': ob.uniform(0, 1)}, metric='loss', mode='min', trials=1,\n"
            "                 tuner=ob.Random(max_steps=2), name='interrupted')\n"
            "sweep.run().sweep.state",
        )
    ]
    run_notebook(book, tmp_path, OUTBID_URL=real.url)
    outputs = book.cells[2].outputs
    assert "running" in [o["text"].strip() for o in outputs if o.get("name") == "stdout"]
    said = "".join(o["text"] for o in outputs if o.get("name") == "stderr")
    assert "continues at" in said and "stop it with ob.attach('interrupted-1').stop()" in said
    page = next(o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {}))
    assert "</b></a> running" in page
    assert book.cells[-1].outputs[-1]["data"]["text/plain"] == "'done'"
