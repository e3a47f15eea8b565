"""Hints for names from Ray, Optuna, W&B and other tuners, in the errors where a caller uses them."""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

METRIC_MISSING = "metric: is missing; name the reported value that is optimised, such as accuracy"
"""What the server answers to a sweep without a metric."""

_TRIALS = ("n_trials", "num_samples", "max_trials", "max_evals", "run_cap", "n_iter", "num_trials")
_TOGETHER = ("max_concurrent_trials", "max_concurrent", "n_jobs", "parallel", "num_workers")
_TIME = ("time_budget_s", "timeout", "time_limit", "max_time")
_SPACE = ("param_space", "config", "search_space", "parameters", "params", "hyperparameters", "distributions")
_FUNCTION = ("objective", "trainable", "func", "fn", "function", "run_or_experiment")
_MODE = ("direction", "directions", "goal", "minimize", "maximize")
_TUNER = ("scheduler", "search_alg", "sampler", "pruner", "algorithm", "method", "strategy", "early_terminate")
_DEVICES = ("resources_per_trial", "gpus", "gpu", "num_gpus", "devices", "gpus_per_trial", "cpus", "num_cpus", "memory")

_ARGUMENTS: dict[str, str] = {
    **dict.fromkeys(_TRIALS, "trials={}"),
    **dict.fromkeys(_TOGETHER, "concurrency={}"),
    **dict.fromkeys(_TIME, "wall_time={}, in seconds or such as '2h'"),
    **dict.fromkeys(_SPACE, "space={{...}}"),
    **dict.fromkeys(_FUNCTION, "train=, or give the function first"),
    **dict.fromkeys(_MODE, "mode='min' or mode='max'"),
    **dict.fromkeys(_TUNER, "tuner=, such as tuner=ob.ASHA(max_steps=81)"),
    **dict.fromkeys(_DEVICES, "resources=ob.Resources(devices=1)"),
    **dict.fromkeys(("max_t", "max_iter", "max_epochs", "max_resource", "max_steps", "epochs", "R"), "max_steps={}"),
    **dict.fromkeys(("grace_period", "min_resource", "min_iter"), "min_steps={}"),
    **dict.fromkeys(("reduction_factor", "factor"), "eta={}"),
    **dict.fromkeys(("points_to_evaluate", "enqueue", "initial_params"), "points=[{{...}}]"),
    **dict.fromkeys(("metrics", "monitor", "objective_metric"), "metric='...'"),
    **dict.fromkeys(("population_size", "pop_size"), "population={}"),
    **dict.fromkeys(("perturbation_interval",), "interval={}"),
    **dict.fromkeys(("random_state", "random_seed"), "seed={}"),
}

_NAMES = {
    "suggest_float": "ob.uniform or ob.loguniform, in the space",
    "suggest_int": "ob.integer, in the space",
    "suggest_categorical": "ob.choice, in the space",
    "report": "trial.report(loss=...), in the training function",
    "log": "trial.report(loss=...), in the training function",
    "create_study": "ob.Sweep(...), or outbid.optuna for studies",
    "init": "ob.connect(...), or nothing: a sweep starts its own server",
    "grid_search": "ob.choice, with tuner=ob.Grid()",
    "tune": "import outbid.tune, which stands in for ray.tune",
    "ASHAScheduler": "ob.ASHA",
    "HyperBandScheduler": "ob.Hyperband",
    "HyperBand": "ob.Hyperband",
    "PopulationBasedTraining": "ob.PBT",
    "MedianStoppingRule": "ob.Median",
    "RandomSearch": "ob.Random",
    "GridSearch": "ob.Grid",
}


def argument_hint(name: str, value: Any, known: Iterable[str]) -> str:
    """Return a hint for an argument that a call does not have, or "" if none is similar."""
    known = list(known)
    if name in _DEVICES and "devices" in known:
        return "write cpus=" if "cpu" in name else "write devices="
    meant = _ARGUMENTS.get(name, "").format(_short(value))
    if meant:
        return f"write {meant}" if meant.split("=", 1)[0] in known else f"it is {meant} of {_elsewhere(meant)}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}=?" if near else ""


def _elsewhere(meant: str) -> str:
    word = meant.split("=", 1)[0]
    if word in ("max_steps", "min_steps", "eta", "population", "interval", "seed"):
        return "the tuner, such as ob.ASHA(max_steps=81)"
    return "ob.Sweep"


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, (int, float, str)) else "..."


def hinted(call: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function or a class's `__init__` so that unknown arguments raise TypeError with a hint."""
    known = [name for name in inspect.signature(call).parameters if name != "self"]
    name = call.__qualname__.removesuffix(".__init__")

    @functools.wraps(call)
    def checked(*args: P.args, **given: P.kwargs) -> R:
        for argument, value in given.items():
            if argument not in known:
                hint = argument_hint(argument, value, known)
                raise TypeError(f"{name} has no argument {argument!r}" + (f": {hint}" if hint else ""))
        return call(*args, **given)

    return checked


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take arguments by their deprecated names, given as old="new", with a warning."""

    def wrap(call: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(call)
        def translated(*args: P.args, **given: P.kwargs) -> R:
            for old in names.keys() & given.keys():
                new = names[old]
                if new in given:
                    raise TypeError(f"{old} is the deprecated name of {new}; give only {new}")
                warnings.warn(f"{old} is deprecated; write {new}", DeprecationWarning, stacklevel=2)
                given[new] = given.pop(old)
            return call(*args, **given)

        return translated

    return wrap


def hinted_class(kind: type[T]) -> type[T]:
    """Wrap a class's `__init__` with `hinted`."""
    kind.__init__ = hinted(kind.__init__)  # type: ignore[method-assign]
    return kind


def mode_meant(word: Any) -> str:
    """Return the mode that another word, such as "minimize", probably means, or both modes."""
    lower = word.lower() if isinstance(word, str) else ""
    return next((mode for mode in ("max", "min") if lower == mode or lower.startswith(mode + "i")), "max or min")


def name_hint(name: str, known: Iterable[str]) -> str:
    """Return a hint for a name that the package does not have, or ""."""
    if name in _NAMES:
        return f"; write {_NAMES[name]}"
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def trial_hint(name: str, config: Mapping[str, Any]) -> str:
    """Return a hint for an attribute that a trial does not have, or ""."""
    if name.startswith("suggest_") or name in ("should_prune", "set_user_attr"):
        return "; outbid.optuna.optimize(objective, n_trials=100) runs an Optuna objective"
    if name in config or name in ("get", "items", "keys", "values", "copy", "pop", "update"):
        return f"; the function is called with a trial: its configuration is trial.config, so write trial.config.{name}"
    if name in ("params", "parameters", "hyperparameters", "hparams"):
        return "; write trial.config"
    if name in ("log", "log_metrics", "log_metric"):
        return "; write trial.report(loss=...)"
    return ""


def subscript_hint(key: object) -> str:
    """Return a hint to use `config` instead of `trial[key]`."""
    return (
        "the training function is called with a trial, which is not a dict: its configuration is trial.config, "
        f"so write trial.config[{key!r}]"
    )
