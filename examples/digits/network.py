"""A small neural network in numpy, and the images that it learns. This module does not use Outbid."""

from __future__ import annotations

import itertools

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

EPOCHS_PER_STEP = 8

# A typical choice without tuning: plain gradient descent on one small layer.
DEFAULT = {
    "layers": 1,
    "units": 32,
    "lr": 0.01,
    "momentum": 0.0,
    "batch": 32,
    "weight_decay": 0.0,
    "dropout": 0.0,
    "shift": 0.0,
}


def load_images():
    """Return 1077 images for training, 360 for validation, and 360 for the final test."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16.0).astype(np.float32)
    x, x_test, y, y_test = train_test_split(x, y, test_size=360, stratify=y, random_state=0)
    x, x_val, y, y_val = train_test_split(x, y, test_size=360, stratify=y, random_state=0)
    return (x, y), (x_val, y_val), (x_test, y_test)


class Network:
    """A multi-layer perceptron with dropout, trained by gradient descent with momentum.

    Its weights and their momentum are one dict of arrays, `state`, which is also its checkpoint.
    """

    def __init__(self, config, seed=0):
        rng = np.random.default_rng(seed)
        sizes = [64] + [config["units"]] * config["layers"] + [10]
        self.config, self.seed, self.depth = config, seed, config["layers"]
        self.state = {}
        for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
            scale = np.sqrt(2.0 / fan_in)
            self.state[f"weight.{i}"] = (scale * rng.standard_normal((fan_in, fan_out))).astype(np.float32)
            self.state[f"bias.{i}"] = np.zeros(fan_out, np.float32)
        for key in list(self.state):
            self.state[f"momentum.{key}"] = np.zeros_like(self.state[key])

    def forward(self, x, rng=None):
        """Return the logits, and the input of every layer. Dropout is used if there is an rng."""
        inputs = [x]
        keep = np.float32(1.0 - self.config["dropout"])
        for i in range(self.depth):
            x = np.maximum(x @ self.state[f"weight.{i}"] + self.state[f"bias.{i}"], 0)
            if rng is not None:
                x *= (rng.random(x.shape, dtype=np.float32) < keep) / keep
            inputs.append(x)
        return x @ self.state[f"weight.{self.depth}"] + self.state[f"bias.{self.depth}"], inputs

    def train_batch(self, x, y, rng):
        """Do one step of gradient descent on the cross entropy of a mini-batch; returns the loss."""
        logits, inputs = self.forward(x, rng)
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        p /= p.sum(axis=1, keepdims=True)
        rows = np.arange(len(y))
        loss = -float(np.log(p[rows, y] + 1e-12).mean())
        p[rows, y] -= 1
        delta = p / np.float32(len(y))
        keep = np.float32(1.0 - self.config["dropout"])
        for i in range(self.depth, -1, -1):
            weight = self.state[f"weight.{i}"]
            gradient = inputs[i].T @ delta + np.float32(self.config["weight_decay"]) * weight
            bias_gradient = delta.sum(axis=0)
            if i > 0:
                delta = (delta @ weight.T) * (inputs[i] > 0) / keep
            self.descend(f"weight.{i}", gradient)
            self.descend(f"bias.{i}", bias_gradient)
        return loss

    def descend(self, key, gradient):
        momentum = self.state[f"momentum.{key}"]
        momentum *= np.float32(self.config["momentum"])
        momentum -= np.float32(self.config["lr"]) * gradient
        self.state[key] += momentum

    def train_step(self, x, y, step):
        """Train a few epochs over the images; returns the mean loss.

        Their order depends only on the seed and the step, so a trial that was paused after a step continues exactly as
        if it had not been paused.
        """
        rng = np.random.default_rng([self.seed, step])
        losses = []
        for _ in range(EPOCHS_PER_STEP):
            moved = shifted(x, rng, self.config["shift"])
            order = rng.permutation(len(x))
            for start in range(0, len(x), self.config["batch"]):
                rows = order[start : start + self.config["batch"]]
                losses.append(self.train_batch(moved[rows], y[rows], rng))
        return float(np.mean(losses))

    def accuracy(self, x, y):
        return float((self.forward(x)[0].argmax(axis=1) == y).mean())


def shifted(x, rng, share):
    """Return the images with a share of them shifted by up to one pixel in each direction."""
    n = len(x)
    padded = np.pad(x.reshape(n, 8, 8), ((0, 0), (1, 1), (1, 1)))
    rows, columns = rng.integers(0, 3, (2, n))
    stays = rng.random(n) >= share
    rows[stays] = columns[stays] = 1
    rows, columns = rows[:, None] + np.arange(8), columns[:, None] + np.arange(8)
    return padded[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]].reshape(n, 64)
