"""Ray Tune's names on Outbid compared with Ray: the same spaces, Ray's examples, and typical scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outbid as ob
from e2e.conftest import SRC
from outbid import tune
from outbid.tune._sample import Rng
from outbid.tune._variants import variants

SCRIPTS = Path(__file__).parent / "scripts"
PASSES = (
    "async_hyperband_example",
    "custom_checkpointing_with_callback",
    "custom_func_checkpointing",
    "hyperband_example",
    "hyperband_function_example",
    "lightgbm_example",
    "logging_example",
    "mlflow_example",
    "optuna_example",
    "optuna_define_by_run_example",
    "optuna_multiobjective_example",
    "pb2_example",
    "pbt_example",
    "pbt_function",
    "tune_basic_example",
    "xgboost_example",
    "xgboost_dynamic_resources_example",
)
"""Ray's examples that need no GPU, download, other service or package; each runs unchanged."""

QUICK = {"custom_func_checkpointing", "hyperband_example", "pbt_function"}
"""Those that every run tries. OUTBID_RAY_EXAMPLES=1 also runs the others, and Ray itself, which takes five minutes."""


@pytest.fixture(scope="module", autouse=True)
def runs_in_files() -> Iterator[None]:
    """Let MLflow 3 keep runs in files, which Ray's example needs, in the script and on the server's workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        yield


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep experiments out of the home directory."""
    monkeypatch.setenv("TUNE_RESULT_DIR", str(tmp_path / "results"))
    yield tmp_path / "results"


def wide(t: Any) -> dict[str, Any]:
    """Return a space with all kinds of parameters of a package."""
    return {
        "a": t.uniform(0, 1),
        "b": t.grid_search([1, 2, 3]),
        "n": {
            "c": t.loguniform(1e-4, 1),
            "g": t.grid_search(["x", "y"]),
            "l": [t.randint(0, 10), t.choice(["p", "q"])],
        },
        "q": t.quniform(0, 10, 0.5),
        "ql": t.qloguniform(2, 64, 2),
        "rn": t.randn(1, 2),
        "qrn": t.qrandn(0, 10, 0.2),
        "qi": t.qrandint(0, 20, 3),
        "qi1": t.qrandint(0, 20),
        "li": t.lograndint(1, 1000),
        "qli": t.qlograndint(4, 200, 4),
        "dep": t.sample_from(lambda spec: spec.config.a * 2 + spec.config.late),
        "late": t.uniform(3, 4),
        "z": t.choice([t.uniform(5, 6), "const"]),
        "tup": (t.uniform(0, 1), 3),
        "gg": t.grid_search([t.uniform(0, 1), 7]),
        "drawn": t.sample_from(lambda: np.random.uniform()),
    }


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("seed", [None, 42, "state"])
def test_the_same_seed_draws_what_ray_draws(seed: Any, constant: bool) -> None:
    from ray import tune as rays
    from ray.tune.search.sample import _BackwardsCompatibleNumpyRng
    from ray.tune.search.variant_generator import generate_variants

    def source() -> Any:
        return np.random.RandomState(5) if seed == "state" else seed

    np.random.seed(3)
    spec = {"run": "f", "config": wide(rays)}
    theirs = [
        v["config"]
        for _, v in generate_variants(
            spec, constant_grid_search=constant, random_state=_BackwardsCompatibleNumpyRng(source())
        )
    ]
    np.random.seed(3)
    ours = [v for _, v in variants(wide(tune), Rng(source()), constant=constant)]
    assert len(ours) == 12
    assert ours == theirs
    assert [type(x) for v in ours for x in v.values()] == [type(x) for v in theirs for x in v.values()]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        pytest.param(
            "same",
            11,
            marks=pytest.mark.skipif(
                not os.environ.get("OUTBID_RAY_EXAMPLES"), reason="OUTBID_RAY_EXAMPLES=1 compares what both find"
            ),
        ),
        ("same_questions", 5),
    ],
)
def test_a_script_prints_what_it_prints_with_ray(real: ob.Client, results: Path, name: str, lines: int) -> None:
    script = SCRIPTS / f"{name}.py"
    env = {**os.environ, "PYTHONPATH": SRC, "RESULTS": str(results)}
    del env["TUNE_RESULT_DIR"]  # Ray does not accept it
    told = []
    for package, more in (("ray", {}), ("outbid", {"OUTBID_URL": real.url})):
        shutil.rmtree(results, ignore_errors=True)
        done = subprocess.run(
            [sys.executable, str(script), package, "7"],
            env={**env, **more},
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        told.append([line for line in done.stdout.splitlines() if line.startswith("=")])
    assert told[1] == told[0]
    assert len(told[0]) >= lines


@pytest.mark.parametrize("name", PASSES)
def test_rays_own_examples_run_as_they_are(real: ob.Client, tmp_path: Path, results: Path, name: str) -> None:
    if name not in QUICK and not os.environ.get("OUTBID_RAY_EXAMPLES"):
        pytest.skip("OUTBID_RAY_EXAMPLES=1 runs all of them")
    import ray

    examples = Path(ray.__file__).parent / "tune" / "examples"
    for other in ("pbt_function", name):  # one of them imports the other
        text = (examples / f"{other}.py").read_text().replace("ray.tune.examples.", "")
        (tmp_path / f"{other}.py").write_text(text)
    run(tmp_path / f"{name}.py", real, tmp_path, "--smoke-test", module=True)


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("as_people_write_*.py")), ids=lambda p: p.stem[16:])
def test_scripts_as_people_write_them(real: ob.Client, tmp_path: Path, results: Path, script: Path) -> None:
    assert "passed" in run(script, real, tmp_path)


def test_a_script_for_ray_runs_with_its_tasks_as_it_is(real: ob.Client, tmp_path: Path, results: Path) -> None:
    assert "passed" in run(SCRIPTS / "unchanged_tasks.py", real, tmp_path, module=True)


def run(script: Path, server: ob.Client, place: Path, *arguments: str, module: bool = False) -> str:
    """Run a script with the server; returns its output."""
    command = [sys.executable, *(["-m", "outbid.tune"] if module else []), str(script), *arguments]
    env = {**os.environ, "PYTHONPATH": SRC, "OUTBID_URL": server.url, "TMPDIR": str(place)}
    done = subprocess.run(command, env=env, cwd=place, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_the_table_of_names_is_complete() -> None:
    import importlib
    import re

    text = (Path(__file__).parents[3] / "docs" / "reference" / "ray-tune-names.md").read_text()
    table: dict[str, dict[str, str]] = {}
    for module, names, what in re.findall(r"^\| `((?:tune|train|air)[\w.]*)` \| (.*) \| (.*) \|$", text, re.MULTILINE):
        table.setdefault(module, {}).update(dict.fromkeys(re.findall(r"`([\w.]+)`", names), what))
    for module in ("tune", "tune.schedulers", "tune.search", "tune.stopper", "tune.logger", "train", "air"):
        theirs = importlib.import_module(f"ray.{module}")
        ours = importlib.import_module(f"outbid.{module}")
        named = {n for n in theirs.__all__ if n != "DEFAULT_LOGGERS"}
        assert named <= set(table[module]), f"{module}: {sorted(named - set(table[module]))} are not in the table"
        for name, what in table[module].items():
            if "." in name or "raises" in what or "not here" in what:
                continue
            assert hasattr(ours, name), f"outbid.{module} has no {name}, which the table says"
