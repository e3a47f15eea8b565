"""Real data from packages, for trained.py to train models on."""

from __future__ import annotations

import gzip
import itertools
import pathlib
import pydoc_data.topics
import re
import sys
import sysconfig
import unicodedata
import zlib
from collections import Counter

import matplotlib
import numpy as np
from perceptrons import CONTEXT, TOKENS, Array, Data
from sklearn import datasets
from statsmodels.datasets import fair, randhie

SEED = 20261123


def split(x: Array, y: Array, train: int, valid: int) -> Data:
    """Draw examples for training and for validation."""
    order = np.random.default_rng(SEED).permutation(len(x))[: train + valid]
    a, b = order[:train], order[train:]
    outputs = y.shape[1] if y.ndim > 1 else int(y.max()) + 1
    return Data(x[a].astype(np.float32), y[a], x[b].astype(np.float32), y[b], outputs)


def standardised(x: Array) -> Array:
    """Return columns with mean 0 and standard deviation 1."""
    return np.asarray((x - x.mean(0)) / x.std(0))


def patches(images: list[Array], train: int, valid: int) -> Data:
    """Return 8x8 patches of grey images, which are their own targets."""
    cut = [i.reshape(i.shape[0] // 8, 8, i.shape[1] // 8, 8).swapaxes(1, 2).reshape(-1, 64) for i in images]
    x = np.concatenate(cut)
    x = ((x - x.mean()) / x.std()).astype(np.float32)
    return split(x, x, train, valid)


def named() -> list[tuple[str, str]]:
    """Return the names of Unicode's characters, except algorithmic ones, and the characters' categories."""
    all_of_them = ((unicodedata.name(chr(code), ""), chr(code)) for code in range(sys.maxunicode + 1))
    made = re.compile("HANGUL SYLLABLE|-[0-9A-F]{4,5}$")
    return [(name, unicodedata.category(c)) for name, c in all_of_them if name and not made.search(name)]


def digits() -> Data:
    """8x8 images of handwritten digits."""
    x, y = datasets.load_digits(return_X_y=True)
    return split(x / 16, y, 1200, 597)


def mislabelled(d: Data, share: float) -> Data:
    """Return the data with a share of the training labels replaced by random ones."""
    rng = np.random.default_rng(SEED)
    y = np.where(rng.random(len(d.y)) < share, rng.integers(0, d.outputs, len(d.y)), d.y)
    return Data(d.x, y, d.x_valid, d.y_valid, d.outputs)


def wrong_digits() -> Data:
    """The digits, with three in ten training labels replaced by random ones."""
    return mislabelled(digits(), 0.3)


def cancer() -> Data:
    """Measurements of tumours, benign or malignant."""
    x, y = datasets.load_breast_cancer(return_X_y=True)
    return split(standardised(x), y, 380, 189)


def diabetes() -> Data:
    """Measurements of patients, and the progress of their disease a year later, in standard deviations."""
    x, y = datasets.load_diabetes(return_X_y=True)
    return split(x, ((y - y.mean()) / y.std())[:, None], 300, 142)


def photographs() -> Data:
    """Patches of two photographs."""
    return patches([image.mean(2)[:424, :640] for image in datasets.load_sample_images().images], 1536, 512)


def names() -> Data:
    """Names of Unicode's characters, as counts of hashed pairs of letters, and the characters' categories."""
    found = named()
    kinds = [kind for kind, _ in Counter(kind for _, kind in found).most_common(8)]
    found = [(name, kind) for name, kind in found if kind in kinds]
    x = np.zeros((len(found), 256), np.float32)
    for row, (name, _) in zip(x, found, strict=True):
        for a, b in itertools.pairwise(f" {name} "):
            row[zlib.crc32((a + b).encode()) % 256] += 1
    return split(np.sqrt(x), np.array([kinds.index(kind) for _, kind in found]), 1536, 1024)


def characters(text: str) -> Data:
    """Return each character of a text with the characters before it; the last tenth of the text validates."""
    common = [c for c, _ in Counter(text).most_common(TOKENS - 1)]
    number = {c: i + 1 for i, c in enumerate(common)}
    tokens = np.array([number.get(c, 0) for c in text])
    windows = np.lib.stride_tricks.sliding_window_view(tokens, CONTEXT + 1)
    cut = len(windows) * 9 // 10
    valid = windows[cut + CONTEXT :]
    valid = valid[np.random.default_rng(SEED).permutation(len(valid))[:1024]]
    return Data(windows[:cut, :-1], windows[:cut, -1], valid[:, :-1], valid[:, -1], TOKENS)


def sources() -> Data:
    """The source code of Python's library."""
    files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    order = np.random.default_rng(SEED).permutation(len(texts))
    return characters("".join(texts[i] for i in order)[:500_000])


def documentation() -> Data:
    """Python's documentation of its language."""
    topics = pydoc_data.topics.topics
    return characters("".join(topics[name] for name in sorted(topics))[:500_000])


def character_names() -> Data:
    """The names of Unicode's characters, one after another."""
    return characters("\n".join(name for name, _ in named())[:500_000])


def care() -> Data:
    """Insured people of the RAND experiment, and the logarithm of their number of visits to a doctor."""
    table = randhie.load_pandas().data.to_numpy(float)
    return split(standardised(table[:, 1:]), standardised(np.log1p(table[:, :1])), 1536, 2048)


def affairs() -> Data:
    """Answers to a magazine's questions, and whether the respondent had an affair."""
    table = fair.load_pandas().data.to_numpy(float)
    return split(standardised(table[:, :-1]), (table[:, -1] > 0).astype(int), 1536, 2048)


def sample(name: str) -> pathlib.Path:
    """Return a file of matplotlib's sample data."""
    return pathlib.Path(matplotlib.get_data_path()) / "sample_data" / name


def points(image: Array) -> Data:
    """Return points of an image as waves of their coordinates, and their values."""
    sides = (np.linspace(-1, 1, n) for n in image.shape[:2])
    at = np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, 2)
    waves = at @ np.random.default_rng(SEED).normal(0, 4, (2, 24))
    there = standardised(image.reshape(len(at), -1))
    return split(np.concatenate([np.sin(waves), np.cos(waves)], 1), there, 2048, 2048)


def faults() -> Data:
    """Points of a map, and their elevations."""
    return points(np.load(sample("jacksboro_fault_dem.npz"))["elevation"].astype(float))


def scan() -> Data:
    """Patches of a scan of a head."""
    with gzip.open(sample("s1045.ima.gz")) as file:
        return patches([np.frombuffer(file.read(), np.uint16).astype(float).reshape(256, 256)], 768, 256)
