"""Greedy soups, with the binary that averages checkpoints."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import outbid as ob
from fake_server import FakeServer, make_trial
from outbid._core.errors import CheckpointError, NoResultError, NotFoundError
from outbid._results import soup as soups

needs_binary = pytest.mark.skipif(not os.environ.get("OUTBID_BIN"), reason="OUTBID_BIN is not set")


def trial(number: int, metric: float | None, *values: float, name: str = "w") -> Any:
    """Return a trial with a checkpoint of these values, or without a checkpoint if no values are given."""

    def download(path: Path) -> Path:
        if not values:
            raise NotFoundError("no checkpoint")
        save_file({name: np.array(values, dtype=np.float32)}, path)
        return path

    return SimpleNamespace(number=number, metric=metric, download=download)


def off(weights: Any) -> float:
    """Return the distance of the weights from 10."""
    return abs(float(weights["w"][0]) - 10)


@needs_binary
def test_a_soup_keeps_what_helps(tmp_path: Path) -> None:
    trials = [
        trial(3, 2.0, 8),
        trial(0, 1.0, 9),
        trial(1, 3.0, 13),
        trial(2, None, 5),
        trial(4, math.nan, 5),
        trial(5, 1.5),
    ]
    soup = soups.greedy("s-1", "min", trials, 10, off)
    # 9 alone is off by 1. With 8 the mean is 8.5, which is worse. With 13 it is 11, which is not worse.
    assert [(i.trial, i.soup, i.kept) for i in soup.ingredients] == [(0, 1, True), (3, 1.5, False), (1, 1, True)]
    assert soup.metric == 1
    assert soup.weights["w"].tolist() == [11]
    assert load_file(soup.save(tmp_path / "soup.safetensors"))["w"].tolist() == [11]
    assert [i.trial for i in soups.greedy("s-1", "max", trials, 2, lambda w: -off(w)).ingredients] == [1, 3]
    assert soups.greedy("s-1", "min", trials, 3, None).weights["w"].tolist() == [10]


@needs_binary
def test_a_soup_is_kept_by_its_sweep_and_fetched(server: FakeServer, client: ob.Client) -> None:
    server.trials[0] = make_trial(0)
    result = client.attach("s-1").result()
    with pytest.raises(ob.NotFoundError, match="keeps no soup"):
        result.soup()
    trials = [trial(0, 1.0, 9), trial(1, 2.0, 8)]
    made = soups.greedy("s-1", "min", trials, 2, off, client)
    assert (made.number, made.metric) == (1, 1.0)
    soup, data = server.soups[0]
    assert (soup.bytes, soup.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert [(p.trial, p.soup, p.kept) for p in soup.parts] == [(0, 1.0, True), (1, 1.5, False)]
    fetched = result.soup()
    assert fetched.weights["w"].tolist() == made.weights["w"].tolist() == [9]
    assert (fetched.number, fetched.metric, fetched.ingredients) == (1, 1.0, made.ingredients)
    assert soups.greedy("s-1", "min", trials, 2, None, client).metric is None
    assert not server.soups[1][0].HasField("metric")
    server.soups[1] = (server.soups[1][0], b"damaged")
    with pytest.raises(CheckpointError, match="soup 2 of s-1 is damaged"):
        result.soup()


@needs_binary
def test_what_cannot_be_averaged_is_left_out() -> None:
    soup = soups.greedy("s-1", "min", [trial(0, 1.0, 9), trial(1, 2.0, 9, name="v")], 2, off)
    assert [i.kept for i in soup.ingredients] == [True, False]
    assert soup.ingredients[1].note.startswith("the checkpoints differ in their tensors: s-1/0 and s-1/1: tensor ")


def test_soups_that_cannot_be() -> None:
    with pytest.raises(NoResultError, match="keeps a checkpoint"):
        soups.greedy("s-1", "min", [trial(0, 1.0), trial(1, None, 9)], 2, off)
    with pytest.raises(ValueError, match="k must be"):
        soups.greedy("s-1", "min", [trial(0, 1.0, 9)], 0, off)
    with pytest.raises(ValueError, match="evaluate returned NaN"):
        soups.greedy("s-1", "min", [trial(0, 1.0, 9)], 1, lambda _: math.nan)
    assert issubclass(CheckpointError, Exception)
