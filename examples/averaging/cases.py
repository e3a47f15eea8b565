"""When averaging helps and when it hurts: the cases of docs/research/averaging.md, measured on real images of digits.

Each case trains copies of one network separately and averages their weights with `outbid average`. It prints the errors
on images that no copy trained on, in percent, as mean and standard deviation over seeds.

    python examples/averaging/cases.py --seeds 5            # needs numpy and scikit-learn; torch for three of the cases
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from sklearn.datasets import load_digits

Weights = dict[str, np.ndarray]
SHARES = (400, 200, 100)  # 4:2:1
OUTBID = os.environ.get("OUTBID_BIN") or shutil.which("outbid") or "bin/outbid"


def data(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return images and digits for training, and held-out ones: 400 of 1797, drawn by the seed."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(1000 + seed).permutation(len(x))
    x, y = x[order] / 16, y[order]
    return x[400:], y[400:], x[:400], y[:400]


def average(files: list[Weights], weights: list[int], folder: Path) -> Weights:
    """Average files with the code that workers use."""
    names = []
    for i, (tensors, weight) in enumerate(zip(files, weights, strict=True)):
        path = folder / f"{i}.safetensors"
        save_file({name: np.ascontiguousarray(t) for name, t in tensors.items()}, path)
        names.append(f"{path}={weight}")
    to = folder / "mean.safetensors"
    subprocess.run([OUTBID, "average", *names, "--to", str(to)], check=True, capture_output=True)
    return load_file(to)


class Network:
    """A network with one hidden layer, or a logistic regression without one."""

    def __init__(self, hidden: int, embed: bool = False) -> None:
        self.hidden, self.embed = hidden, embed

    def first(self, draw: np.random.Generator) -> Weights:
        """Return initial weights."""
        wide = 64 * 17 if self.embed else 64
        if not self.hidden:
            return {"out.weight": np.zeros((wide, 10)), "out.bias": np.zeros(10)}
        return {
            "in.weight": draw.normal(0, 0.02 if self.embed else 0.15, (wide, self.hidden)),
            "in.bias": np.zeros(self.hidden),
            "out.weight": draw.normal(0, 0.15, (self.hidden, 10)),
            "out.bias": np.zeros(10),
        }

    def inputs(self, x: np.ndarray) -> np.ndarray:
        """Return the network's inputs. An embedding has a row for each pixel and brightness, and adds up 64 of them."""
        if not self.embed:
            return x
        rows = np.round(x * 16).astype(int) + 17 * np.arange(64)
        out = np.zeros((len(x), 64 * 17))
        np.put_along_axis(out, rows, 1, axis=1)
        return out

    def scores(self, w: Weights, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the hidden layer and the score of each digit."""
        h = np.maximum(0, x @ w["in.weight"] + w["in.bias"]) if self.hidden else x
        return h, h @ w["out.weight"] + w["out.bias"]

    def errors(self, w: Weights, x: np.ndarray, y: np.ndarray) -> float:
        """Return the percentage of misclassified images."""
        return 100 * float(np.mean(np.argmax(self.scores(w, self.inputs(x))[1], axis=1) != y))

    def train(self, w: Weights, x: np.ndarray, y: np.ndarray, steps: int, rate: float, seed: int) -> Weights:
        """Return the weights after `steps` steps of stochastic gradient descent."""
        w, draw, x = {k: v.copy() for k, v in w.items()}, np.random.default_rng(seed), self.inputs(x)
        for _ in range(steps):
            rows = draw.choice(len(x), 32)
            h, out = self.scores(w, x[rows])
            p = np.exp(out - out.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            p[np.arange(len(rows)), y[rows]] -= 1
            p /= len(rows)
            if self.hidden:
                back = (p @ w["out.weight"].T) * (h > 0)
                w["in.weight"] -= rate * x[rows].T @ back
                w["in.bias"] -= rate * back.sum(axis=0)
            w["out.weight"] -= rate * h.T @ p
            w["out.bias"] -= rate * p.sum(axis=0)
        return w


def forks(
    net: Network,
    seed: int,
    before: int,
    shares: tuple[int, ...],
    rate: float,
    folder: Path,
    how: str = "",
    rate_before: float | None = None,
) -> dict[str, float]:
    """Compare copies of a network that trained `before` steps, their averages, and one process that did all steps."""
    x, y, held, digits = data(seed)
    draw = np.random.default_rng(seed)
    start = net.train(net.first(draw), x, y, before, rate if rate_before is None else rate_before, seed)
    starts = [start] * len(shares)
    if how == "beginnings":
        starts = [net.first(np.random.default_rng(10_000 * (i + 1) + seed)) for i in range(len(shares))]
    parts = [
        net.train(s, x, y, n, rate, 100 * (i + 1) + seed) for i, (s, n) in enumerate(zip(starts, shares, strict=True))
    ]
    if how == "permuted":
        for i, part in enumerate(parts):
            order = np.random.default_rng(i).permutation(net.hidden)
            part["in.weight"], part["in.bias"] = part["in.weight"][:, order], part["in.bias"][order]
            part["out.weight"] = part["out.weight"][order]
    if how == "integers":
        parts = [{k: np.round(v * 32).astype(np.int32) for k, v in part.items()} for part in parts]

    def wrong(w: Weights) -> float:
        if how == "integers":
            w = {k: v / 32 for k, v in w.items()}
        return net.errors(w, held, digits)

    each = [wrong(part) for part in parts]
    return {
        "most": each[0],
        "best": min(each),
        "steps": wrong(average(parts, list(shares), folder)),
        "uniform": wrong(average(parts, [1] * len(shares), folder)),
        "alone": net.errors(net.train(start, x, y, sum(shares), rate, 100 + seed), held, digits),
    }


def torch_case(seed: int, folder: Path, how: str) -> dict[str, float]:
    """Train a torch network with batch normalisation by Adam. The moments are saved, averaged and used to continue."""
    import torch

    torch.set_num_threads(1)
    x, y, held, digits = data(seed)
    xs, ys = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    halves = how == "bf16"

    def model() -> torch.nn.Sequential:
        return torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )

    def save(net: torch.nn.Module, adam: torch.optim.Adam, path: Path) -> None:
        from safetensors.torch import save_file as save_torch

        tensors = {
            k: v.to(torch.bfloat16) if halves and v.is_floating_point() else v.clone()
            for k, v in net.state_dict().items()
        }
        for i, state in adam.state_dict()["state"].items():
            tensors.update({f"optimizer.{i}.{k}": v.clone() for k, v in state.items()})
        save_torch(tensors, path)

    def load(path: Path, moments: bool = True) -> tuple[torch.nn.Sequential, torch.optim.Adam]:
        from safetensors.torch import load_file as load_torch

        tensors, net = load_torch(path), model()
        net.load_state_dict({k: v for k, v in tensors.items() if not k.startswith("optimizer.")})
        adam = torch.optim.Adam(net.parameters(), 0.003)
        if moments:
            state: dict[int, dict[str, torch.Tensor]] = {}
            for k, v in tensors.items():
                if k.startswith("optimizer."):
                    _, i, name = k.split(".")
                    state.setdefault(int(i), {})[name] = v
            adam.load_state_dict({**adam.state_dict(), "state": state})
        return net, adam

    def train(net: torch.nn.Module, adam: torch.optim.Adam, steps: int, order: int) -> None:
        draw = np.random.default_rng(order)
        net.train()
        for _ in range(steps):
            rows = torch.tensor(draw.choice(len(xs), 32))
            adam.zero_grad()
            torch.nn.functional.cross_entropy(net(xs[rows]), ys[rows]).backward()
            adam.step()

    def wrong(net: torch.nn.Module) -> float:
        net.eval()
        with torch.no_grad():
            found = net(torch.tensor(held, dtype=torch.float32)).argmax(1).numpy()
        return 100 * float(np.mean(found != digits))

    torch.manual_seed(seed)
    net = model()
    adam = torch.optim.Adam(net.parameters(), 0.003)
    train(net, adam, 60, seed)
    save(net, adam, folder / "start")
    each, files = [], []
    for i, share in enumerate(SHARES):
        net, adam = load(folder / "start")
        train(net, adam, share, 100 * (i + 1) + seed)
        save(net, adam, folder / f"fork{i}")
        files.append(str(folder / f"fork{i}"))
        each.append(wrong(load(folder / f"fork{i}")[0]))
    found = {"most": each[0], "best": min(each)}
    for name, weights in (("steps", SHARES), ("uniform", (1, 1, 1))):
        pairs = [f"{file}={weight}" for file, weight in zip(files, weights, strict=True)]
        subprocess.run([OUTBID, "average", *pairs, "--to", str(folder / name)], check=True, capture_output=True)
        found[name] = wrong(load(folder / name)[0])
    net, adam = load(folder / "start")
    train(net, adam, sum(SHARES), 100 + seed)
    found["alone"] = wrong(net)
    if how == "adam":  # 30 more steps from the average, with its averaged moments and without moments
        for name, moments in (("steps", True), ("uniform", False)):
            net, adam = load(folder / "steps", moments)
            train(net, adam, 30, 900 + seed)
            found[name] = wrong(net)
    if how == "statistics":  # computed again on the training data, instead of the averaged ones
        net, _ = load(folder / "steps")
        net.train()
        net[1].reset_running_stats()
        net[1].momentum = None
        with torch.no_grad():
            for rows in torch.arange(len(xs)).split(100):
                net(xs[rows])
        found["uniform"] = wrong(net)
    return found


# The highest of 0.3, 0.6, 0.8, 1, 1.2 and 1.5 that let one process learn, with seed 99 and 4,000 steps.
HIGH = 1.2


def drift(seed: int, shares: tuple[int, ...], folder: Path, before: int = 300) -> dict[str, float]:
    """Compare copies at the highest rate that lets one process learn; the common steps before use 0.3."""
    return forks(NETWORK, seed, before, shares, HIGH, folder, rate_before=0.3)


LOGISTIC, NETWORK, EMBEDDING = Network(0), Network(64), Network(32, embed=True)
CASES = {
    "logistic regression": lambda seed, to: forks(LOGISTIC, seed, 100, SHARES, 0.3, to),
    "network, 300 steps together before": lambda seed, to: forks(NETWORK, seed, 300, SHARES, 0.3, to),
    "network, nothing before": lambda seed, to: forks(NETWORK, seed, 0, SHARES, 0.3, to),
    "network, slot of 10:5:2 steps": lambda seed, to: forks(NETWORK, seed, 300, (10, 5, 2), 0.3, to),
    "network, slot of 4000:2000:1000 steps": lambda seed, to: forks(NETWORK, seed, 300, (4000, 2000, 1000), 0.3, to),
    "network, rate of 2": lambda seed, to: forks(NETWORK, seed, 0, SHARES, 2, to),
    "network, rate of 4": lambda seed, to: forks(NETWORK, seed, 0, SHARES, 4, to),
    "drift: rate of 1.2, slot of 10:5:2 steps": lambda seed, to: drift(seed, (10, 5, 2), to),
    "drift: rate of 1.2, slot of 400:200:100 steps": lambda seed, to: drift(seed, SHARES, to),
    "drift: rate of 1.2, slot of 4000:2000:1000 steps": lambda seed, to: drift(seed, (4000, 2000, 1000), to),
    "drift: the same, nothing before": lambda seed, to: drift(seed, (4000, 2000, 1000), to, 0),
    "embedding": lambda seed, to: forks(EMBEDDING, seed, 300, SHARES, 0.1, to),
    "weights as integers": lambda seed, to: forks(NETWORK, seed, 300, SHARES, 0.3, to, "integers"),
    "other beginnings": lambda seed, to: forks(NETWORK, seed, 0, SHARES, 0.3, to, "beginnings"),
    "permuted units": lambda seed, to: forks(NETWORK, seed, 300, SHARES, 0.3, to, "permuted"),
}
TORCH = {
    "torch: batch norm, Adam": "plain",
    "torch: the same as BF16": "bf16",
    "torch: 30 steps on; right: new moments": "adam",
    "torch: right: new statistics": "statistics",
}
COLUMNS = ("most", "best", "alone", "steps", "uniform")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--case", action="append", help="only cases whose names contain this")
    options = parser.parse_args()
    cases = dict(CASES)
    try:
        import torch  # noqa: F401
    except ImportError:
        print("torch is not installed: its cases are left out", file=sys.stderr)
    else:
        cases.update({name: lambda seed, to, how=how: torch_case(seed, to, how) for name, how in TORCH.items()})
    print(
        "| case | did most | best fork | one process, all steps | mean by steps | uniform mean |\n" + "|---" * 6 + "|"
    )
    for name, run in cases.items():
        if options.case and not any(part in name for part in options.case):
            continue
        rows = []
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
                rows.append(run(seed, Path(folder)))
        cells = [[row[column] for row in rows] for column in COLUMNS]
        spread = [f"{statistics.mean(c):.1f} ± {statistics.stdev(c) if len(c) > 1 else 0:.1f}" for c in cells]
        print(f"| {name} | {' | '.join(spread)} |", flush=True)


if __name__ == "__main__":
    main()
