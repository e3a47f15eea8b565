"""Five models in numpy on scikit-learn's data sets. This module does not use Outbid.

Each is trained by gradient descent with momentum. Its weights and their momentum are one dict of arrays, `state`, which
is also its checkpoint. A step is a number of mini-batches that takes some ten milliseconds of a core.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

# Typical settings of each model. A part of the samples is held out, by the seed.
MODELS = {
    "images": {"lr": 0.002, "batches": 40, "metric": "error"},
    "autoencoder": {"lr": 0.1, "batches": 25, "metric": "mse"},
    "tumours": {"lr": 6e-5, "batches": 80, "metric": "log_loss"},
    "diabetes": {"lr": 5e-5, "batches": 80, "metric": "rmse"},
    "ratings": {"lr": 0.3, "batches": 60, "metric": "rmse"},
}
# The sixth model needs torch and is only imported on request: torch_model.py.
TORCH = {"convolution": {"lr": 0.003, "batches": 2, "metric": "error"}}
BATCH = 192


def prepare(folder: Path) -> None:
    """Write the data sets to a folder, so that training need not import scikit-learn."""
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

    digits, tumours, diabetes = load_digits(), load_breast_cancer(), load_diabetes()

    def scaled(x):
        return (x - x.mean(axis=0)) / x.std(axis=0)

    folder.mkdir(parents=True, exist_ok=True)
    np.savez(
        folder / "data.npz",
        digits=digits.data / 16.0,
        digit=digits.target,
        cells=scaled(tumours.data),
        tumour=tumours.target,
        patients=scaled(diabetes.data),
        disease=scaled(diabetes.target[:, None]),
    )


def make(name: str, folder: Path, seed: int):
    """Return a model with a part of its data held out by the seed."""
    data = np.load(folder / "data.npz")
    if name in TORCH:
        from torch_model import Convolution

        return Convolution(data["digits"], data["digit"], TORCH[name], seed)
    if name == "ratings":
        return Ratings(data["digits"], MODELS[name], seed)
    x, y, sizes, head = {
        "images": (data["digits"], np.eye(10)[data["digit"]], [64, 128, 10], "softmax"),
        "autoencoder": (data["digits"], data["digits"], [64, 96, 16, 96, 64], "square"),
        "tumours": (data["cells"], np.eye(2)[data["tumour"]], [30, 48, 2], "softmax"),
        "diabetes": (data["patients"], data["disease"], [10, 64, 1], "square"),
    }[name]
    return Perceptron(x, y, sizes, head, MODELS[name], seed)


class Perceptron:
    """A multi-layer perceptron for classes (softmax) or values (square)."""

    def __init__(self, x, y, sizes, head, settings, seed):
        rng = np.random.default_rng(1000 + seed)
        order = rng.permutation(len(x))
        held = len(x) // 4
        self.x, self.y = (a[order[held:]].astype(np.float32) for a in (x, y))
        self.x_held, self.y_held = (a[order[:held]].astype(np.float32) for a in (x, y))
        self.head, self.settings, self.depth = head, settings, len(sizes) - 1
        self.state = {}
        for i in range(self.depth):
            scale = np.sqrt(2.0 / sizes[i])
            self.state[f"weight.{i}"] = (scale * rng.standard_normal((sizes[i], sizes[i + 1]))).astype(np.float32)
            self.state[f"bias.{i}"] = np.zeros(sizes[i + 1], np.float32)
        for key in list(self.state):
            self.state[f"momentum.{key}"] = np.zeros_like(self.state[key])

    @property
    def samples(self):
        """The number of samples for training."""
        return len(self.x)

    def forward(self, x):
        """Return the model's outputs, and the input of each layer."""
        inputs = [x]
        for i in range(self.depth):
            x = x @ self.state[f"weight.{i}"] + self.state[f"bias.{i}"]
            if i < self.depth - 1:
                x = np.maximum(x, 0)
                inputs.append(x)
        if self.head == "softmax":
            x = np.exp(x - x.max(axis=1, keepdims=True))
            x /= x.sum(axis=1, keepdims=True)
        return x, inputs

    def gradients(self, rows):
        """Return the gradient of the loss on some samples, by the name of the weight."""
        said, inputs = self.forward(self.x[rows])
        delta = (said - self.y[rows]) / np.float32(len(rows) * (1 if self.head == "softmax" else self.y.shape[1]))
        found = {}
        for i in range(self.depth - 1, -1, -1):
            found[f"weight.{i}"], found[f"bias.{i}"] = inputs[i].T @ delta, delta.sum(axis=0)
            if i > 0:
                delta = (delta @ self.state[f"weight.{i}"].T) * (inputs[i] > 0)
        return found

    def apply(self, gradients):
        """Take one step of gradient descent with momentum."""
        for key, gradient in gradients.items():
            momentum = self.state[f"momentum.{key}"]
            momentum *= np.float32(0.9)
            momentum -= np.float32(self.settings["lr"]) * gradient
            self.state[key] += momentum

    def quality(self):
        """Return the metric on held-out data; lower is better."""
        said, _ = self.forward(self.x_held)
        match self.settings["metric"]:
            case "error":
                return float(np.mean(said.argmax(axis=1) != self.y_held.argmax(axis=1)))
            case "log_loss":
                return float(-np.mean(np.log((said * self.y_held).sum(axis=1) + 1e-7)))
            case "mse":
                return float(np.mean((said - self.y_held) ** 2))
            case _:
                return float(np.sqrt(np.mean((said - self.y_held) ** 2)))


class Ratings:
    """Matrix factorisation: each image rates 64 pixels, and a tenth of the ratings is held out."""

    def __init__(self, ratings, settings, seed):
        rng = np.random.default_rng(1000 + seed)
        ratings = ratings.astype(np.float32)
        held = rng.random(ratings.shape) < 0.1
        self.mean = np.float32(ratings[~held].mean())
        self.known, self.held = np.where(held, 0, ratings - self.mean), held
        self.truth, self.settings = ratings, settings
        rank = 12
        self.state = {
            "weight.rows": (0.1 * rng.standard_normal((len(ratings), rank))).astype(np.float32),
            "weight.columns": (0.1 * rng.standard_normal((rank, ratings.shape[1]))).astype(np.float32),
        }
        for key in list(self.state):
            self.state[f"momentum.{key}"] = np.zeros_like(self.state[key])

    @property
    def samples(self):
        """The number of rows for training."""
        return len(self.known)

    def gradients(self, rows):
        """Return the gradient of the squared error on some rows."""
        left, right = self.state["weight.rows"][rows], self.state["weight.columns"]
        off = np.where(self.held[rows], 0, left @ right - self.known[rows]) / np.float32(64)
        by_row = np.zeros_like(self.state["weight.rows"])
        np.add.at(by_row, rows, off @ right.T)
        return {"weight.rows": by_row / np.float32(8), "weight.columns": left.T @ off / np.float32(len(rows))}

    apply = Perceptron.apply

    def quality(self):
        """Return the root mean square error of the held-out ratings."""
        said = self.state["weight.rows"] @ self.state["weight.columns"] + self.mean
        return float(np.sqrt(np.mean((said - self.truth)[self.held] ** 2)))


def train_step(model, draw, mine, parts=1, share=lambda gradients: gradients):
    """Train one step on samples of `mine`.

    Each of `parts` ranks computes its part of a mini-batch; `share` averages.
    """
    for _ in range(model.settings["batches"]):
        rows = draw.choice(mine, BATCH // parts)
        model.apply(share(model.gradients(rows)))
