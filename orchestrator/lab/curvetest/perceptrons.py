"""Perceptrons and small convolutional networks of many configurations, trained together in numpy for trained.py."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

EPOCHS = 50
# A language model's alphabet, context, and size of the embedding.
TOKENS, CONTEXT, EMBEDDING = 64, 8, 8
# Examples in an epoch of a language model, which is a part of its text.
SAMPLE = 2048

Array = np.ndarray[Any, np.dtype[Any]]
Drawn = dict[str, Array]


@dataclass(frozen=True)
class Data:
    """Inputs and targets (classes or numbers) for training and validation."""

    x: Array
    y: Array
    x_valid: Array
    y_valid: Array
    outputs: int


@dataclass(frozen=True)
class How:
    """Settings that all configurations of a task share."""

    hidden: tuple[int, ...]  # units of each hidden layer
    optimiser: str = "adam"
    schedule: str = "constant"
    metric: str = "loss"
    filters: int = 0  # of a convolution before the hidden layers, over windows of images


# Defaults of the training settings that a space does not draw.
USUAL = {"momentum": 0.9, "beta2": 0.999, "batch_size": 32.0, "warmup": 0.0, "weight_decay": 0.0}
USUAL |= {"dropout": 0.0, "smoothing": 0.0, "noise": 0.0, "width": math.inf}


def scheduled(schedule: str, h: Drawn, done: float) -> Array:
    """Return the fraction of the learning rate that is used after a fraction of training."""
    match schedule:
        case "cosine" | "linear":
            left = (1 - done) / (1 - h["warmup"])
            decayed = left if schedule == "linear" else (1 - np.cos(np.pi * left)) / 2
            return np.where(done < h["warmup"], done / np.maximum(h["warmup"], 1e-9), decayed)
        case "restarts":  # cosine cycles, each twice as long as the one before
            at, first = done * EPOCHS, h["first_cycle"]
            cycle = 2 ** np.floor(np.log2(at / first + 1))
            return np.asarray(1 + np.cos(np.pi * (at - first * (cycle - 1)) / (first * cycle))) / 2
        case "steps":  # the second drop is halfway from the first to the end
            drops = (done >= h["first_drop"]).astype(int) + (done >= (1 + h["first_drop"]) / 2)
            return np.asarray(h["drop"] ** drops)
        case "hold":  # a constant phase and a final fall to 0
            return np.minimum(1, (1 - done) / h["fall"])
    return np.ones(len(h["learning_rate"]))


class Networks:
    """A perceptron for each configuration; all weights are in one array, their gradients in another."""

    def __init__(
        self, count: int, sizes: list[int], rng: np.random.Generator, first: tuple[tuple[int, int], ...] = ()
    ) -> None:
        """Draw initial weights of layers with the given sizes; the parameters before them have the shapes in first."""
        shapes = [shape for a, b in itertools.pairwise(sizes) for shape in ((a, b), (1, b))] + list(first)
        ends = np.cumsum([a * b for a, b in shapes])
        self.flat = np.zeros((count, ends[-1]), np.float32)
        self.slope = np.zeros_like(self.flat)
        self.weights, self.slopes = (
            [part.reshape(count, *s) for part, s in zip(np.split(all_weights, ends[:-1], 1), shapes, strict=True)]
            for all_weights in (self.flat, self.slope)
        )
        for w in self.weights[: 2 * len(sizes) - 2 : 2]:
            w[:] = rng.standard_normal(w.shape) * math.sqrt(2 / w.shape[1])
        self.layers, self.learns_features = len(sizes) - 1, bool(first)

    def features(self, x: Array) -> Array:
        """Return the inputs of the first layer."""
        return x

    def learn_features(self, x: Array, features: Array, delta: Array) -> None:
        """Set the gradients of the feature parameters, given the gradient of the features."""

    def forward(self, x: Array, keep: list[Array]) -> list[Array]:
        """Return the inputs of each layer and the outputs; keep weights the hidden units."""
        values = [self.features(x)]
        for i in range(self.layers):
            z = values[-1] @ self.weights[2 * i]
            z += self.weights[2 * i + 1]
            if i + 1 < self.layers:
                np.maximum(z, 0, out=z)
                z *= keep[i]
            values.append(z)
        return values

    def backward(self, x: Array, values: list[Array], keep: list[Array], delta: Array) -> None:
        """Set the gradients, given that of the outputs."""
        for i in reversed(range(self.layers)):
            np.matmul(values[i].swapaxes(1, 2), delta, out=self.slopes[2 * i])
            np.sum(delta, 1, keepdims=True, out=self.slopes[2 * i + 1])
            if i or self.learns_features:
                delta = delta @ self.weights[2 * i].swapaxes(1, 2)
            if i:
                delta *= (values[i] > 0) * keep[i - 1]
        self.learn_features(x, values[0], delta)


class LanguageModels(Networks):
    """Perceptrons on embedded characters."""

    def __init__(self, count: int, sizes: list[int], rng: np.random.Generator) -> None:
        """Draw the initial weights."""
        super().__init__(count, [CONTEXT * EMBEDDING, *sizes], rng, ((TOKENS, EMBEDDING),))
        self.weights[-1][:] = rng.standard_normal(self.weights[-1].shape)

    def features(self, x: Array) -> Array:
        """Return the embedded characters."""
        return np.asarray(self.weights[-1][np.arange(len(x))[:, None, None], x].reshape(*x.shape[:2], -1))

    def learn_features(self, x: Array, features: Array, delta: Array) -> None:
        """Set the gradients of the embedding."""
        hot = np.eye(TOKENS, dtype=np.float32)[x.reshape(len(x), -1)]
        np.matmul(hot.swapaxes(1, 2), delta.reshape(*hot.shape[:2], EMBEDDING), out=self.slopes[-1])


class Convolutions(Networks):
    """Perceptrons on filtered windows of an image."""

    def __init__(self, count: int, shape: tuple[int, ...], filters: int, sizes: list[int], rng: np.random.Generator):
        """Draw the initial weights for images with this number of windows and pixels in each."""
        windows, pixels = shape
        super().__init__(count, [windows * filters, *sizes], rng, ((pixels, filters), (1, filters)))
        self.weights[-2][:] = rng.standard_normal(self.weights[-2].shape) * math.sqrt(2 / pixels)

    def features(self, x: Array) -> Array:
        """Apply the filters to all windows."""
        z = x.reshape(len(x), -1, x.shape[3]) @ self.weights[-2]
        z += self.weights[-1]
        return np.asarray(np.maximum(z, 0, out=z).reshape(*x.shape[:2], -1))

    def learn_features(self, x: Array, features: Array, delta: Array) -> None:
        """Set the gradients of the filters."""
        delta = (delta * (features > 0)).reshape(len(x), -1, self.weights[-1].shape[2])
        np.matmul(x.reshape(len(x), -1, x.shape[3]).swapaxes(1, 2), delta, out=self.slopes[-2])
        np.sum(delta, 1, keepdims=True, out=self.slopes[-1])


def networks(how: How, d: Data, count: int, rng: np.random.Generator) -> Networks:
    """Return networks of the kind that the data needs: for characters, windows of images, or numbers."""
    sizes = [*how.hidden, d.outputs]
    if d.x.dtype.kind == "i":
        return LanguageModels(count, sizes, rng)
    if how.filters:
        return Convolutions(count, d.x.shape[1:], how.filters, sizes, rng)
    return Networks(count, [d.x.shape[1], *sizes], rng)


def gradient(outputs: Array, y: Array, smoothing: Array) -> Array:
    """Return the gradient of the mean loss with respect to the outputs: squared error or cross entropy."""
    if y.ndim == outputs.ndim:
        return np.asarray(2 * (outputs - y) / np.float32(y.shape[1] * y.shape[2]))
    # Avoids denormal numbers, which are slow.
    p: Array = np.exp(np.maximum(outputs - outputs.max(2, keepdims=True), -60))
    p /= p.sum(2, keepdims=True)
    p -= smoothing / p.shape[2]
    configuration, example = np.ogrid[: y.shape[0], : y.shape[1]]
    p[configuration, example, y] -= (1 - smoothing)[:, :, 0]
    p /= np.float32(p.shape[1])
    return p


def measure(metric: str, outputs: Array, y: Array) -> Array:
    """Return the validation metric of each configuration, NaN if its outputs are not finite."""
    if y.ndim == outputs.ndim - 1:
        values = ((outputs - y) ** 2).mean((1, 2))
    elif metric == "accuracy":
        values = (outputs.argmax(2) == y).mean(1)
    else:
        z = outputs - outputs.max(2, keepdims=True)
        values = (np.log(np.exp(z).sum(2)) - z[:, np.arange(len(y)), y]).mean(1)
    return np.where(np.isfinite(outputs).all((1, 2)), values, np.nan)


def train(how: How, d: Data, h: Drawn, rng: np.random.Generator) -> Array:
    """Return the validation metric after each epoch for configurations with the same batch size."""
    count, batch = len(h["momentum"]), int(h["batch_size"][0])
    tokens = d.x.dtype.kind == "i"
    nets = networks(how, d, count, rng)
    rate, momentum, decay, beta2 = (
        h[k][:, None].astype(np.float32) for k in ("learning_rate", "momentum", "weight_decay", "beta2")
    )
    drop, smoothing, noise = (h[k][:, None, None].astype(np.float32) for k in ("dropout", "smoothing", "noise"))
    wide = [(np.arange(n) < h["width"][:, None, None]).astype(np.float32) for n in how.hidden]
    average, square = np.zeros_like(nets.flat), np.zeros_like(nets.flat)
    steps = (SAMPLE if tokens else len(d.x)) // batch
    result = np.empty((count, EPOCHS))
    for epoch in range(EPOCHS):
        if tokens:
            order = rng.integers(0, len(d.x), (count, steps * batch))
        else:
            order = rng.permuted(np.tile(np.arange(len(d.x)), (count, 1)), axis=1)
        for step in range(steps):
            rows = order[:, step * batch : (step + 1) * batch]
            x, keep = d.x[rows], wide
            if noise.any():
                x = x + noise * rng.standard_normal(x.shape, np.float32)
            if drop.any():
                keep = [w * (rng.random((count, batch, w.shape[2]), np.float32) >= drop) / (1 - drop) for w in wide]
            values = nets.forward(x, keep)
            nets.backward(x, values, keep, gradient(values[-1], d.y[rows], smoothing))
            # Averages of gradients that are exactly zero would become denormal numbers, which are slow.
            g = nets.slope + np.float32(1e-15)
            now = rate * scheduled(how.schedule, h, (epoch + step / steps) / EPOCHS)[:, None].astype(np.float32)
            if how.optimiser == "sgd":
                g += decay * nets.flat
                average *= momentum
                average += g
                nets.flat -= now * average
                continue
            n = epoch * steps + step + 1
            average += (1 - momentum) * (g - average)
            square += (1 - beta2) * (g * g - square)
            nets.flat *= 1 - now * decay
            size = np.sqrt(square / (1 - beta2**n))
            size += np.float32(1e-8)
            nets.flat -= now / (1 - momentum**n) * average / size
        valid = np.broadcast_to(d.x_valid, (count, *d.x_valid.shape))
        result[:, epoch] = measure(how.metric, nets.forward(valid, wide)[-1], d.y_valid)
    return result
