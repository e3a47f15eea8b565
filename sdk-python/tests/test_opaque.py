"""Directories and objects as checkpoints."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import outbid as ob
from outbid._training import tensors
from outbid._training.opaque import unpack


class Model:
    """A model of a library without state_dict()."""

    def __init__(self, value: int) -> None:
        self.value = value


def through_a_file(weights: object, tmp_path: Path) -> object:
    tensors.write(str(tmp_path / "c"), tensors.to_arrays(weights, copy=True), "")
    return unpack(tensors.read(tmp_path / "c")[0], tmp_path)


def test_an_object_comes_back(tmp_path: Path) -> None:
    back = through_a_file(Model(3), tmp_path)
    assert type(back).__name__ == "Model" and vars(back) == {"value": 3}
    assert through_a_file({1, 2}, tmp_path) == {1, 2}


def test_a_model_of_scikit_learn_comes_back(tmp_path: Path) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = np.arange(10.0).reshape(-1, 1)
    back = through_a_file(linear_model.LinearRegression().fit(x, 2 * x[:, 0]), tmp_path)
    assert back.predict([[4.0]]) == pytest.approx([8.0])  # type: ignore[attr-defined]


def test_a_directory_comes_back(tmp_path: Path) -> None:
    (tmp_path / "d" / "deep").mkdir(parents=True)
    (tmp_path / "d" / "a.txt").write_text("one")
    (tmp_path / "d" / "deep" / "b.bin").write_bytes(b"\x00" * 1000)
    back = through_a_file(tmp_path / "d", tmp_path)
    assert isinstance(back, Path)
    assert sorted(str(p.relative_to(back)) for p in back.rglob("*")) == ["a.txt", "deep", "deep/b.bin"]
    assert (back / "a.txt").read_text() == "one"


def test_what_cannot_be_saved_says_so(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="is not a directory"):
        tensors.to_arrays(str(tmp_path / "none"), copy=True)
    with pytest.raises(TypeError, match="lock cannot be pickled"):
        tensors.to_arrays(threading.Lock(), copy=True)
    with pytest.raises(TypeError, match="weights must be a dict of arrays or an object with"):
        tensors.to_arrays(3, copy=True)
    (tmp_path / "bad").write_bytes(b"")
    arrays = {"outbid.pickle": np.frombuffer(b"no pickle", dtype=np.uint8)}
    with pytest.raises(ob.CheckpointError, match="cannot be unpickled here"):
        unpack(arrays)
