"""Outbid tunes hyperparameters on shared, mixed GPU clusters. This is its Python SDK.

    import outbid as ob

    def train(trial):
        for step in trial.steps():
            ...
            trial.report(step=step, accuracy=accuracy)

    sweep = ob.Sweep(train, space={"lr": ob.loguniform(1e-4, 1e-1)}, metric="accuracy", mode="max",
                     tuner=ob.Hyperband(max_steps=81))
    result = sweep.run()
    print(result.best.config)

The public names are those of this package, `outbid.errors` (what it raises), `outbid.types` (classes of results, for
annotations), `outbid.loggers` (TensorBoard, MLflow, W&B), `outbid.callbacks` (XGBoost, LightGBM, Keras, Lightning,
Transformers), `outbid.optuna` (Optuna's objectives and studies), `outbid.plugin` (your own tuners and bidders) and
`outbid.rpc` (the calls of the server's API). Names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from outbid._version import __version__

if TYPE_CHECKING:
    from outbid import callbacks, loggers
    from outbid._client.callbacks import Callback
    from outbid._client.client import Client, attach, connect, load
    from outbid._client.handle import LogLine, SweepHandle
    from outbid._client.secrets import SecretInfo, Secrets
    from outbid._client.tenant import Tenant, TenantLimit
    from outbid._client.usage import Usage, UsageRow
    from outbid._client.whatif import SimulatedRun, SimulatedSweep
    from outbid._core.errors import (
        CheckpointError,
        ConflictError,
        FunctionError,
        InvalidError,
        LimitError,
        MissingExtraError,
        NoResultError,
        NotFoundError,
        OutbidError,
        ServerError,
        StopTrial,
        SweepFailedError,
        TrialError,
        UnauthenticatedError,
        UnavailableError,
        UntrustedError,
    )
    from outbid._display.plots import Chart, InteractiveChart, Plots
    from outbid._results.checkpoint_info import Checkpoint, Ingredient, SoupInfo
    from outbid._results.forks import ForkPart, ForkRound, Lease, Merge, Place
    from outbid._results.model import Fairness, Note, Report, SweepInfo, TrainedAgain, TrialResult, Update
    from outbid._results.result import Result
    from outbid._search.asktell import AskedTrial
    from outbid._search.preview import Preview
    from outbid._search.resources import Checkpoints, Limits, Program, Resources, Secret, Utility
    from outbid._search.rung import Rung
    from outbid._search.space import (
        Parameter,
        choice,
        constant,
        integer,
        lograndint,
        loguniform,
        normal,
        qlograndint,
        qloguniform,
        qrandint,
        quniform,
        randint,
        sample_from,
        uniform,
        when,
    )
    from outbid._search.sweep import Sweep
    from outbid._search.tuner_classes import (
        ASHA,
        PBT,
        Auto,
        Bayes,
        FreezeThaw,
        Grid,
        Hyperband,
        Median,
        Patient,
        Percentile,
        PerformanceCurve,
        Random,
        Sobol,
        SuccessiveHalving,
    )
    from outbid._search.tuners import (
        CMAES,
        GP,
        NSGA2,
        TPE,
        Model,
        Plugin,
        Tuner,
    )
    from outbid._training.config import Config
    from outbid._training.trial import Device, Fork, Trial
    from outbid.integrations.sklearn.search_cv import SearchCV

_HOMES = {
    "_search.asktell": ("AskedTrial",),
    "_client.callbacks": ("Callback",),
    "_client.client": ("Client", "attach", "connect", "load"),
    "_training.config": ("Config",),
    "_core.errors": (
        "CheckpointError",
        "ConflictError",
        "FunctionError",
        "InvalidError",
        "LimitError",
        "MissingExtraError",
        "NoResultError",
        "NotFoundError",
        "OutbidError",
        "ServerError",
        "StopTrial",
        "SweepFailedError",
        "TrialError",
        "UnauthenticatedError",
        "UnavailableError",
        "UntrustedError",
    ),
    "_results.forks": ("ForkPart", "ForkRound", "Lease", "Merge", "Place"),
    "_client.handle": ("LogLine", "SweepHandle"),
    "_results.model": ("Fairness", "Note", "Report", "SweepInfo", "TrainedAgain", "TrialResult", "Update"),
    "_display.plots": ("Chart", "InteractiveChart", "Plots"),
    "_search.resources": ("Checkpoints", "Limits", "Program", "Resources", "Secret", "Utility"),
    "_results.result": ("Result",),
    "_search.rung": ("Rung",),
    "integrations.sklearn.search_cv": ("SearchCV",),
    "_client.secrets": ("SecretInfo", "Secrets"),
    "_search.space": (
        "Parameter",
        "choice",
        "constant",
        "integer",
        "lograndint",
        "loguniform",
        "normal",
        "qlograndint",
        "qloguniform",
        "qrandint",
        "quniform",
        "randint",
        "sample_from",
        "uniform",
        "when",
    ),
    "_results.checkpoint_info": ("Checkpoint", "Ingredient", "SoupInfo"),
    "_search.preview": ("Preview",),
    "_search.sweep": ("Sweep",),
    "_client.tenant": ("Tenant", "TenantLimit"),
    "_client.usage": ("Usage", "UsageRow"),
    "_client.whatif": ("SimulatedRun", "SimulatedSweep"),
    "_training.trial": ("Device", "Fork", "Trial"),
    "_search.tuner_classes": (
        "ASHA",
        "PBT",
        "Auto",
        "Bayes",
        "FreezeThaw",
        "Grid",
        "Hyperband",
        "Median",
        "Patient",
        "Percentile",
        "PerformanceCurve",
        "Random",
        "Sobol",
        "SuccessiveHalving",
    ),
    "_search.tuners": (
        "CMAES",
        "GP",
        "NSGA2",
        "TPE",
        "Model",
        "Plugin",
        "Tuner",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ASHA",
    "CMAES",
    "GP",
    "NSGA2",
    "PBT",
    "TPE",
    "Auto",
    "Bayes",
    "Callback",
    "Checkpoints",
    "Client",
    "FreezeThaw",
    "Grid",
    "Hyperband",
    "Limits",
    "Median",
    "Model",
    "OutbidError",
    "Patient",
    "Percentile",
    "PerformanceCurve",
    "Plugin",
    "Program",
    "Random",
    "Resources",
    "Result",
    "SearchCV",
    "Secret",
    "Sobol",
    "StopTrial",
    "SuccessiveHalving",
    "Sweep",
    "SweepFailedError",
    "SweepHandle",
    "Trial",
    "TrialResult",
    "Utility",
    "__version__",
    "attach",
    "callbacks",
    "choice",
    "connect",
    "constant",
    "integer",
    "load",
    "loggers",
    "lograndint",
    "loguniform",
    "normal",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "quniform",
    "randint",
    "sample_from",
    "uniform",
    "when",
]

if TYPE_CHECKING:  # the names of outbid.errors and outbid.types, which `__getattr__` also finds but `dir` does not list
    __all__ += [
        "AskedTrial",
        "Chart",
        "Checkpoint",
        "CheckpointError",
        "Config",
        "ConflictError",
        "Device",
        "Fairness",
        "Fork",
        "ForkPart",
        "ForkRound",
        "FunctionError",
        "Ingredient",
        "InteractiveChart",
        "InvalidError",
        "Lease",
        "LimitError",
        "LogLine",
        "Merge",
        "MissingExtraError",
        "NoResultError",
        "NotFoundError",
        "Note",
        "Parameter",
        "Place",
        "Plots",
        "Preview",
        "Report",
        "Rung",
        "SecretInfo",
        "Secrets",
        "ServerError",
        "SimulatedRun",
        "SimulatedSweep",
        "SoupInfo",
        "SweepInfo",
        "Tenant",
        "TenantLimit",
        "TrainedAgain",
        "TrialError",
        "Tuner",
        "UnauthenticatedError",
        "UnavailableError",
        "UntrustedError",
        "Update",
        "Usage",
        "UsageRow",
    ]


if not TYPE_CHECKING:  # type checkers must report missing names

    def __getattr__(name: str) -> Any:
        if name in ("callbacks", "loggers"):
            return importlib.import_module(f"{__name__}.{name}")
        home = _HOME.get(name)
        if home is None:
            from outbid._core.name_hints import name_hint

            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{name_hint(name, _HOME)}")
        value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
