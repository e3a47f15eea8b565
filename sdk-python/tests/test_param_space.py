"""Parameter distributions of scikit-learn as a search space."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import outbid as ob
from outbid._training.config import parse_config
from outbid.integrations.sklearn.param_space import drawn, has_parameters

stats = pytest.importorskip("scipy.stats")


def test_values_come_back_as_they_were_given() -> None:
    found = drawn(
        {
            "size": [(50,), (100, 50), None],
            "max_features": [1.0, 0.5, 1],
            "kernel": ["rbf", "linear"],
            "C": ob.quniform(1, 5, 1),
            "svc": {"gamma": ob.loguniform(0.1, 1), "kind": [len, max]},
        }
    )
    config = parse_config('{"size": 1, "max_features": 0, "kernel": "rbf", "C": 2, "svc": {"gamma": 1, "kind": 1}}')
    params = found.params(config)
    assert params == {
        "size": (100, 50), "max_features": 1.0, "kernel": "rbf", "C": 2.0, "svc__gamma": 1.0, "svc__kind": max
    }  # fmt: skip
    assert [type(params[name]) for name in ("max_features", "C", "svc__gamma")] == [float, float, float]
    assert found.space["kernel"] == ob.choice(["rbf", "linear"]) and found.space["size"] == ob.choice([0, 1, 2])


def test_distributions_of_scipy_become_parameters() -> None:
    space = drawn({"a": stats.uniform(1, 2), "b": stats.loguniform(1e-3, 1e3), "n": stats.randint(2, 9)}).space
    assert space["a"] == ob.uniform(1, 3) and space["n"] == ob.integer(2, 8)
    assert space["b"].log and space["b"].low == pytest.approx(1e-3)
    with pytest.raises(TypeError, match="C: a sampler cannot draw from scipy's 'gamma'"):
        drawn({"C": stats.gamma(1)})


def test_what_cannot_be_drawn_is_named() -> None:
    with pytest.raises(TypeError, match="draws from one dict of param_distributions, got a list"):
        drawn([{"C": [1, 2]}])
    with pytest.raises(TypeError, match="C: expected a list, a distribution or an Outbid parameter, got 3"):
        drawn({"C": 3})
    assert has_parameters({"a": {"b": ob.uniform(0, 1)}}) and not has_parameters({"a": [1, 2]})


def test_without_scikit_learn_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import outbid as ob; print(ob.SearchCV.__name__); "
    code += "ob.SearchCV(1, {})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(Path(__file__).parents[1] / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "SearchCV\n"
    assert done.stderr.rstrip().endswith(
        "MissingExtraError: ob.SearchCV needs scikit-learn 1.6 or later: pip install 'outbid[sklearn]'"
    )
