"""A sweep that fine-tunes one pretrained network, and a soup of the best results.

Start `bin/outbid up` in another terminal, then run it at the top of the repository, with the Python that `make demo`
made: .cache/venv/bin/python examples/soup/soup.py
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import model
import numpy as np
import outbid as ob


def finetune(trial):
    """Train the pretrained network further, with the trial's rate and its own order of samples."""
    weights = trial.checkpoint() or model.pretrained()
    x, y = model.samples("training")
    draw = np.random.default_rng(trial.number)
    for step in trial.steps():
        rows = draw.choice(len(x), 32)
        noise = draw.normal(0, trial.config.noise, (len(rows), x.shape[1]))
        model.descend(weights, x[rows] + noise, y[rows], trial.config.rate)
        if step % 50 == 0:
            trial.save(weights)
            trial.report(accuracy=model.accuracy(weights, "validation"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=Path("soup.safetensors"), help="where the soup is written")
    options = parser.parse_args()
    client = ob.connect()
    sweep = ob.Sweep(
        finetune,
        {"rate": ob.loguniform(0.05, 0.8), "noise": ob.uniform(0, 0.2)},
        name="finetune",
        metric="accuracy",
        mode="max",
        tuner=ob.Random(max_steps=300, seed=3),
        trials=5,
        checkpoints=ob.Checkpoints(best=5),
        env={"OMP_NUM_THREADS": "1"},
    )
    handle = sweep.submit(client)
    best = handle.wait().trials[0]
    binary = os.environ.get("OUTBID_BIN") or shutil.which("outbid") or "bin/outbid"
    evaluate = shlex.join([sys.executable, str(Path(__file__).with_name("evaluate.py"))])
    subprocess.run([binary, "soup", handle.id, "--server", client.url, "--eval", evaluate], check=True)
    soup = ob.load(handle.id).soup()  # the sweep keeps it: any machine that reaches the server can fetch it
    soup.save(options.to)
    for name, weights in (("best trial", best.checkpoint()), ("soup", soup.weights)):
        parts = ", ".join(f"{part} {model.accuracy(weights, part):.3f}" for part in ("validation", "selection", "test"))
        print(f"{name:<10} {parts}")


if __name__ == "__main__":
    main()
