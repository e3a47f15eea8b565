"""Optuna's official examples on Outbid, with the changes that docs/guides/from-optuna.md names.

    git clone https://github.com/optuna/optuna-examples && make test-optuna-examples EXAMPLES=$PWD/optuna-examples

The copies of the examples are changed, not the checkout.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import outbid as ob
from e2e.conftest import SRC
from integrations.optuna_scripts import changed

CHECKOUT = os.environ.get("OUTBID_OPTUNA_EXAMPLES", "")
SECONDS = 1500
"""The time limit of an example. The longest one solves 2,500 travelling salesman problems."""


@dataclass(frozen=True)
class Example:
    """An example that runs.

    `trials` are the numbers of trials of its sweeps, in order: exact, or (at least, at most) if a timeout or a callback
    ends the study. `lines` is how many lines change. `needs` are modules that `.ci/examples.txt` does not install.
    """

    trials: tuple[int | tuple[int, int], ...]
    lines: int = 2
    needs: tuple[str, ...] = ()


SOME = (1, 500)
"""The trials of a study that runs for a second or two."""

RUNS = {
    "basic/artifact_store.py": Example((30,)),
    "basic/pruning.py": Example((100,)),
    "basic/quadratic.py": Example((10, 20, (1, 100_000)), lines=4),
    "basic/quadratic_constraint.py": Example((SOME,)),
    "basic/quadratic_multi_objective.py": Example((SOME,)),
    "catboost/catboost_pruning.py": Example(((1, 100),)),
    "catboost/catboost_simple.py": Example(((1, 100),)),
    "faq/enqueue_trial.py": Example((100,)),
    "faq/max_trials_callback.py": Example(((10, 12),)),
    "lightgbm/lightgbm_integration.py": Example((100,)),
    "lightgbm/lightgbm_simple.py": Example((100,)),
    "lightgbm/lightgbm_terminator.py": Example(((1, 50),), needs=("torch",)),
    "lightgbm/lightgbm_tuner_cv.py": Example((), lines=0),
    "lightgbm/lightgbm_tuner_simple.py": Example((), lines=0),
    "multi_objective/quadratic_simple.py": Example((SOME,)),
    "pruners/wilcoxon_pruner_tsp_sa.py": Example((50,)),
    "ray/ray_joblib.py": Example((100,)),
    "samplers/simulated_annealing_sampler.py": Example((100,)),
    "samplers/warm_starting_cma.py": Example((50, 50), lines=3),
    "skimage/skimage_lbp_simple.py": Example((50,)),
    "sklearn/sklearn_additional_args.py": Example((100,)),
    "sklearn/sklearn_optuna_search_cv_simple.py": Example((), lines=0),
    "sklearn/sklearn_simple.py": Example((100,)),
    "terminator/terminator_improvement_plot.py": Example((50,), needs=("torch",)),
    "terminator/terminator_search_cv.py": Example((), lines=0, needs=("torch",)),
    "terminator/terminator_simple.py": Example(((1, 50),), needs=("torch",)),
    "visualization/plot_pareto_front.py": Example((100,)),
    "xgboost/xgboost_cv.py": Example((20,)),
    "xgboost/xgboost_cv_integration.py": Example((100,)),
    "xgboost/xgboost_integration.py": Example((100,)),
    "xgboost/xgboost_simple.py": Example((100,)),
}

_DOWNLOADS = "downloads its data"
_DASHBOARD = "needs Optuna's dashboard, and a person"
_TENSORFLOW = "needs TensorFlow, and downloads its data"

EXCLUDED = {
    "aim/aim_integration.py": "needs Aim",
    "comet/comet_integration.py": "needs an account with Comet",
    "dashboard/": _DASHBOARD,
    "dask/dask_simple.py": "runs the study on Dask: Outbid would take Dask's place",
    "dask_ml/dask_ml_simple.py": "needs Dask-ML",
    "fastai/fastai_simple.py": _DOWNLOADS,
    "haiku/haiku_simple.py": "needs JAX, and downloads its data",
    "hiplot/plot_study.ipynb": _DOWNLOADS,
    "hydra/simple.py": "has no study of its own: Hydra's sweeper calls optimize",
    "keras/": _DOWNLOADS,
    "kubernetes/simple/sklearn_distributed.py": "needs PostgreSQL in Kubernetes",
    "multi_objective/botorch_simple.py": "needs BoTorch",
    "multi_objective/pytorch_simple.py": _DOWNLOADS,
    "openml/openml_simple.py": _DOWNLOADS,
    "pytorch/": _DOWNLOADS,
    "quickstart.ipynb": "a notebook that installs packages",
    "rapids/rapids_simple.py": "needs a GPU",
    "rl/sb3_simple.py": "needs Stable-Baselines3 and PyTorch",
    "spark/ask_and_tell_spark.py": "asks and tells: Spark runs the trials",
    "tensorboard/tensorboard_simple.py": _TENSORFLOW,
    "tensorflow/": _TENSORFLOW,
    "tfkeras/": _TENSORFLOW,
    "transformers/transformers_simple.py": _DOWNLOADS,
    "visualization/plot_study.ipynb": _DOWNLOADS,
    "visualization/plot_study.py": _DOWNLOADS,
}
"""Examples, or folders of examples, that do not run here, and the reason."""


def test_a_script_changes_in_its_import_and_its_calls() -> None:
    script = "import optuna\nstudy = optuna.create_study()\nstudy.optimize(objective, n_trials=3)\n"
    wanted = "import optuna\nimport outbid.optuna\nstudy = optuna.create_study()\n"
    assert changed(script) == (wanted + "outbid.optuna.optimize(study, objective, n_trials=3)\n", 2)
    assert changed("search.fit(x, y)\n") == ("search.fit(x, y)\n", 0)


@pytest.fixture
def checkout() -> Path:
    if not CHECKOUT:
        pytest.skip("OUTBID_OPTUNA_EXAMPLES=DIR runs the examples of a checkout of optuna/optuna-examples")
    return Path(CHECKOUT)


def test_every_example_runs_or_is_excluded_for_a_reason(checkout: Path) -> None:
    found = {str(path.relative_to(checkout)) for kind in ("*.py", "*.ipynb") for path in checkout.rglob(kind)}
    assert set(RUNS) <= found, "these are gone"
    folders = tuple(name for name in EXCLUDED if name.endswith("/"))
    assert {name for name in found - set(RUNS) - set(EXCLUDED) if not name.startswith(folders)} == set()


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("name", RUNS)
def test_optunas_own_examples_run(checkout: Path, real: ob.Client, tmp_path: Path, name: str) -> None:
    wanted = RUNS[name]
    if absent := [module for module in wanted.needs if importlib.util.find_spec(module) is None]:
        pytest.skip(f"{', '.join(absent)} is not in the test environment")
    text, lines = changed((checkout / name).read_text())
    assert lines == wanted.lines
    before = {sweep.id for sweep in real.sweeps()}
    printed = run(text, tmp_path / Path(name).name, real)
    ran = sorted((s for s in real.sweeps() if s.id not in before), key=lambda s: str(s.submitted))
    assert len(ran) == len(wanted.trials), printed
    for sweep, count in zip(ran, wanted.trials, strict=True):
        check(sweep, real.attach(sweep.id).result(), count)


def run(text: str, script: Path, server: ob.Client) -> str:
    """Run a script in its folder with the server; returns its output."""
    script.write_text(text)
    env = {
        **os.environ,
        "PYTHONPATH": SRC,
        "OUTBID_URL": server.url,
        "MPLBACKEND": "agg",
        "PLOTLY_RENDERER": "json",  # not a browser
        "OMP_NUM_THREADS": "1",  # like Optuna's own tests of the examples
    }
    done = subprocess.run(
        [sys.executable, script.name], env=env, cwd=script.parent, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


def check(sweep: ob.SweepInfo, result: ob.Result, count: int | tuple[int, int]) -> None:
    """Check that a sweep's trials ran: all of them ended well, except those that the end of a limited study stopped."""
    counts = sweep.counts
    assert sweep.ended and counts["completed"] and not counts["failed"], counts
    if isinstance(count, tuple):
        assert count[0] <= counts["completed"] <= count[1], counts
    else:
        assert counts["completed"] + counts["pruned"] == counts["total"] == count, counts
    assert result.front() if len(sweep.objectives) > 1 else result.best.metric is not None
