"""Weights written to and read from safetensors files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import outbid as ob
from outbid._training import tensors

DTYPES = st.sampled_from(["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", ">f4", ">i8"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])  # slow next to other work
@given(
    arrays=st.dictionaries(st.text(min_size=1), DTYPES.flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0))))
)
def test_round_trip(tmp_path: Path, arrays: dict[str, Any]) -> None:
    path = str(tmp_path / "w.safetensors")
    try:
        named = tensors.to_arrays(arrays, copy=False)
        tensors.write(path, named, "")
    except (ob.CheckpointError, ValueError):
        assert "__metadata__" in arrays
        return
    read, metadata = tensors.read(path)
    assert metadata == {}
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].shape == array.shape


def test_strided_nested_and_scalar_weights(tmp_path: Path) -> None:
    path = str(tmp_path / "w.safetensors")
    matrix = np.arange(12).reshape(3, 4)
    weights = {"a": {"t": matrix.T, "cut": matrix[:, ::2]}, "n": 3, "x": 0.5, "list": [1, 2]}
    tensors.write(path, tensors.to_arrays(weights, copy=False), tensors.encode_metadata({"epoch": 3}))
    read, metadata = tensors.read(path)
    np.testing.assert_array_equal(read["a.t"], matrix.T)
    np.testing.assert_array_equal(read["a.cut"], matrix[:, ::2])
    assert [read[name].tolist() for name in ("n", "x", "list")] == [3, 0.5, [1, 2]]
    assert metadata == {"epoch": 3}


def test_copy_keeps_what_was_saved() -> None:
    weights = {"w": np.zeros(2)}
    kept = tensors.to_arrays(weights, copy=True)
    shared = tensors.to_arrays(weights, copy=False)
    weights["w"] += 1
    assert kept["w"].tolist() == [0, 0]
    assert shared["w"].tolist() == [1, 1]


def test_copies_use_the_memory_of_earlier_ones() -> None:
    def weights(at: int) -> dict[str, Any]:
        fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3) + at)
        return {"w": np.full(3, at), "t": fortran, "n": np.array(at), "swapped": np.full(2, at, dtype=">i4")}

    old = tensors.to_arrays(weights(1), copy=True)
    own = {name: array.ctypes.data for name, array in old.items()}
    new = tensors.to_arrays(weights(2), copy=True, into=old)
    for name, array in weights(2).items():
        np.testing.assert_array_equal(new[name], array)
    assert {name for name, array in new.items() if array.ctypes.data == own[name]} == {"w", "n"}
    other = {"w": np.zeros(4, dtype=int), "t": np.zeros((2, 3)), "n": np.float32(0), "more": np.zeros(1)}
    again = tensors.to_arrays(other, copy=True, into=new)
    assert again["w"].shape == (4,) and again["n"].dtype == np.float32
    assert not any(np.may_share_memory(again[name], array) for name, array in other.items())
    assert new["w"].tolist() == [2, 2, 2]


def test_weights_in_the_memory_of_earlier_ones_are_not_overwritten_by_an_error() -> None:
    old = tensors.to_arrays({"w": np.zeros(2), "x": np.zeros(2)}, copy=True)
    with pytest.raises(TypeError, match="weight 'x' must be an array"):
        tensors.to_arrays({"w": np.ones(2), "x": None}, copy=True, into=old)
    assert old["w"].tolist() == [0, 0]
    assert tensors.to_arrays({"w": old["w"]}, copy=True, into=old)["w"] is not old["w"]


class FakeTensor:
    """A replacement for a torch tensor, as torch may not be installed."""

    def __init__(self, values: list[float], dtype: str = "torch.float32") -> None:
        self.array, self.dtype, self.device = np.array(values, dtype=np.float32), dtype, self
        self.type = "cpu"
        self.widened = False

    def detach(self) -> FakeTensor:
        return self

    def float(self) -> FakeTensor:
        self.widened = True
        return self

    def cpu(self) -> FakeTensor:
        return self

    def numpy(self) -> Any:
        return self.array


class Module:
    def __init__(self) -> None:
        self.tensor = FakeTensor([1, 2], "torch.bfloat16")

    def state_dict(self) -> dict[str, Any]:
        return {"layer.weight": self.tensor}


def test_torch_modules() -> None:
    module = Module()
    arrays = tensors.to_arrays(module, copy=True)
    assert arrays["layer.weight"].tolist() == [1, 2]
    assert module.tensor.widened, "numpy has no bfloat16, but float32 represents it exactly"
    module.tensor.array += 1
    assert arrays["layer.weight"].tolist() == [1, 2]


BAD: list[tuple[Any, str]] = [
    ([1, 2], "weights must be a dict of arrays or an object with state_dict"),
    ({1: np.zeros(1)}, "names of weights must be strings, got 1"),
    ({"a": {2: np.zeros(1)}}, "got 2 in 'a'"),
    ({"w": "text"}, "weight 'w' must be an array of numbers, got str"),
    ({"w": None}, "weight 'w' must be an array of numbers, got NoneType"),
    ({"w": object()}, "weight 'w' must be an array of numbers"),
    ({"w": np.array(["a"])}, "weight 'w' must be an array of numbers, got ndarray of type <U1"),
    ({"w": [[1], [1, 2]]}, "weight 'w' must be an array of numbers"),
    ({"w": np.zeros(1, dtype=np.complex64)}, "of type complex64"),
]


@pytest.mark.parametrize(("weights", "message"), BAD)
def test_bad_weights(weights: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        tensors.to_arrays(weights, copy=True)
    assert message in str(caught.value)


def test_two_weights_of_one_name() -> None:
    with pytest.raises(ValueError, match=r"two weights are called 'a\.b'"):
        tensors.to_arrays({"a.b": 1, "a": {"b": 2}}, copy=False)


def test_bad_metadata() -> None:
    with pytest.raises(TypeError, match="metadata must be JSON"):
        tensors.encode_metadata({"a": object()})
    with pytest.raises(TypeError, match="metadata must be a dict"):
        tensors.encode_metadata([1])  # type: ignore[arg-type]


def test_unwritable_and_unreadable(tmp_path: Path) -> None:
    with pytest.raises(ob.CheckpointError, match="cannot write the checkpoint"):
        tensors.write(str(tmp_path / "no" / "w"), {"w": np.zeros(1)}, "")
    with pytest.raises(ob.CheckpointError, match="cannot read the checkpoint"):
        tensors.read(tmp_path / "none")
