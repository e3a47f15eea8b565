"""Ray Tune's names on Outbid: `from outbid import tune` in place of `from ray import tune`.

    from outbid import tune

    def train(config):
        for _ in range(10):
            tune.report({"loss": (config["lr"] - 0.1) ** 2})

    tuner = tune.Tuner(
        train,
        param_space={"lr": tune.loguniform(1e-4, 1)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=20),
    )
    print(tuner.fit().get_best_result().config)

docs/guides/from-ray-tune.md lists the parts of Ray Tune that are supported, and those that are not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from outbid.tune._import_hook import install

if TYPE_CHECKING:
    from outbid.tune._checkpoint import Checkpoint
    from outbid.tune._config import CheckpointConfig, FailureConfig, ResumeConfig, RunConfig, SyncConfig, TuneConfig
    from outbid.tune._config import Placement as PlacementGroupFactory
    from outbid.tune._context import TuneContext, get_context
    from outbid.tune._errors import TuneError, UnsupportedError
    from outbid.tune._registry import register_env, register_trainable
    from outbid.tune._results import Result, ResultGrid
    from outbid.tune._run import Experiment, run, run_experiments
    from outbid.tune._sample import (
        choice,
        grid_search,
        lograndint,
        loguniform,
        qlograndint,
        qloguniform,
        qrandint,
        qrandn,
        quniform,
        randint,
        randn,
        sample_from,
        uniform,
    )
    from outbid.tune._session import checkpoint_dir, get_checkpoint, report
    from outbid.tune._trainable import Trainable, with_parameters, with_resources
    from outbid.tune._tuner import Tuner
    from outbid.tune.analysis import ExperimentAnalysis
    from outbid.tune.callback import Callback
    from outbid.tune.progress_reporter import CLIReporter, JupyterNotebookReporter, ProgressReporter
    from outbid.tune.schedulers import create_scheduler
    from outbid.tune.search import create_searcher
    from outbid.tune.stopper import Stopper

_HOMES = {
    "_checkpoint": ("Checkpoint",),
    "_config": (
        "CheckpointConfig",
        "FailureConfig",
        "ResumeConfig",
        "RunConfig",
        "SyncConfig",
        "TuneConfig",
    ),
    "_context": (
        "TuneContext",
        "get_context",
    ),
    "_errors": (
        "TuneError",
        "UnsupportedError",
    ),
    "_registry": (
        "register_env",
        "register_trainable",
    ),
    "_results": (
        "Result",
        "ResultGrid",
    ),
    "_run": (
        "Experiment",
        "run",
        "run_experiments",
    ),
    "_sample": (
        "choice",
        "grid_search",
        "lograndint",
        "loguniform",
        "qlograndint",
        "qloguniform",
        "qrandint",
        "qrandn",
        "quniform",
        "randint",
        "randn",
        "sample_from",
        "uniform",
    ),
    "_session": (
        "checkpoint_dir",
        "get_checkpoint",
        "report",
    ),
    "_trainable": (
        "Trainable",
        "with_parameters",
        "with_resources",
    ),
    "_tuner": ("Tuner",),
    "analysis": ("ExperimentAnalysis",),
    "callback": ("Callback",),
    "progress_reporter": (
        "CLIReporter",
        "JupyterNotebookReporter",
        "ProgressReporter",
    ),
    "schedulers": ("create_scheduler",),
    "search": ("create_searcher",),
    "stopper": ("Stopper",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

install()  # the nested names of Ray Tune's modules


def __getattr__(name: str) -> Any:
    """Import a name on first use, or a submodule such as `tune.result`; Ray imports them all."""
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name == "PlacementGroupFactory":
        return importlib.import_module(f"{__name__}._config").Placement
    if not name.startswith("_"):
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "CLIReporter",
    "Callback",
    "Checkpoint",
    "CheckpointConfig",
    "Experiment",
    "ExperimentAnalysis",
    "FailureConfig",
    "JupyterNotebookReporter",
    "PlacementGroupFactory",
    "ProgressReporter",
    "Result",
    "ResultGrid",
    "ResumeConfig",
    "RunConfig",
    "Stopper",
    "SyncConfig",
    "Trainable",
    "TuneConfig",
    "TuneContext",
    "TuneError",
    "Tuner",
    "UnsupportedError",
    "checkpoint_dir",
    "choice",
    "create_scheduler",
    "create_searcher",
    "get_checkpoint",
    "get_context",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "register_env",
    "register_trainable",
    "report",
    "run",
    "run_experiments",
    "sample_from",
    "uniform",
    "with_parameters",
    "with_resources",
]
