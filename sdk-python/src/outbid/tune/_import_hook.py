"""Maps the modules of Ray Tune to those of Outbid.

`install` makes `from outbid.tune.schedulers.pb2 import PB2` and the like work. `pretend` makes `import ray` import
Outbid, for unchanged scripts: `python -m outbid.tune script.py`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

from outbid.tune._absent_names import check_module
from outbid.tune._errors import AbsentNameError

_SCHEDULERS = ("async_hyperband", "hyperband", "hb_bohb", "median_stopping_rule", "pb2", "pbt", "trial_scheduler")
_SEARCH = ("basic_variant", "concurrency_limiter", "repeater", "searcher", "search_algorithm", "search_generator")

_TUNE = {
    **{f"schedulers.{name}": "schedulers" for name in (*_SCHEDULERS, "resource_changing_scheduler")},
    **{f"search.{name}": "search" for name in _SEARCH},
    "search.sample": "_sample",
    "search.variant_generator": "_ray_names.variant_generator",
    "search.optuna.optuna_search": "search.optuna",
    **{
        f"search.{name}": "search._absent"
        for one in ("ax", "bayesopt", "bohb", "hebo", "hyperopt", "nevergrad", "zoopt")
        for name in (one, f"{one}.{one}_search")
    },
    "suggest": "search",
    **{f"suggest.{name}": "search" for name in ("basic_variant", "suggestion", "repeater")},
    "suggest.optuna": "search.optuna",
    **{
        f"suggest.{name}": "search._absent"
        for name in ("ax", "bayesopt", "bohb", "hebo", "hyperopt", "nevergrad", "zoopt")
    },
    "sample": "_sample",
    "stopper.stopper": "stopper",
    **{
        f"stopper.{name}": "stopper"
        for name in ("experiment_plateau", "function_stopper", "maximum_iteration", "noop", "timeout", "trial_plateau")
    },
    **{f"logger.{name}": "logger" for name in ("logger", "json", "csv", "tensorboardx", "aim", "unified", "noop")},
    "logger.mlflow": "integration.mlflow",
    "logger.wandb": "integration.wandb",
    "analysis.experiment_analysis": "analysis",
    "execution.placement_groups": "_ray_names.placement_groups",
    "execution": "_ray_names.placement_groups",
    "experiment": "_ray_names.experiment",
    "trial": "_ray_names.experiment",
    "experiment.trial": "_ray_names.experiment",
    "experiment.experiment": "_ray_names.experiment",
    "error": "_errors",
    "exceptions": "_errors",
    "registry": "_registry",
    "result_grid": "_results",
    "syncer": "_config",
    "trainable": "_ray_names.trainable",
    "trainable.trainable": "_ray_names.trainable",
    "trainable.util": "_ray_names.trainable",
    "trainable.function_trainable": "_ray_names.trainable",
    "trainable.trainable_fn_utils": "_session",
    "tuner": "_tuner",
    "tune_config": "_config",
    "tune": "_run",
    "context": "_context",
    "resources": "_ray_names.placement_groups",
    "impl.config": "_config",
    "impl": "_config",
    "utils.log": "_ray_names.log",
    "utils.util": "utils",
}
"""Ray's names of modules below `outbid.tune`, and Outbid's modules for them."""

_TRAIN = {
    "context": "outbid.train",
    "xgboost": "outbid.tune.integration.xgboost",
    "lightgbm": "outbid.tune.integration.lightgbm",
    **{
        name: "outbid.train._trainers"
        for name in ("torch", "lightning", "huggingface", "tensorflow", "horovod", "data_parallel_trainer", "trainer")
    },
}

_RAY = {
    "ray": "outbid.tune._ray_shim",
    "ray.util": "outbid.tune._ray_shim",
    "ray.exceptions": "outbid.tune._tasks",
    "ray.cloudpickle": "cloudpickle",
    "ray.tune": "outbid.tune",
    "ray.train": "outbid.train",
    "ray.air": "outbid.air",
}


_OWN = ("outbid.tune.", "outbid.train.", "outbid.air.")


class _Finder:
    """Finds a module under another name. Like `main_module._Waiting` it has no base class."""

    def __init__(self, names: dict[str, str], prefix: str = "") -> None:
        self._names, self._prefix = names, prefix
        self._parents = {name.rpartition(".")[0] for name in names} - names.keys()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a mapped name. Raises AbsentNameError for a name of Ray's that Outbid does not have."""
        if self._real(fullname) is None:
            return self._parent(fullname, path)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the module that the name is mapped to."""
        real = self._real(spec.name)
        assert real is not None
        module = importlib.import_module(real)
        self._kept = module.__spec__, module.__dict__.get("__path__")
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec and leave the module as it is."""
        module.__spec__ = self._kept[0]
        # Names below modules that are single files are looked for as well.
        module.__path__ = self._kept[1] or []

    def _parent(self, name: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of an Outbid module that is a file and has mapped names below it; None for any other."""
        if not name.startswith(_OWN):
            return None
        check_module(name)
        if name not in self._parents:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.submodule_search_locations is None:
            spec.submodule_search_locations = []
        return spec

    def _real(self, name: str) -> str | None:
        if name in self._names:
            return self._names[name]
        if not self._prefix or not name.startswith(self._prefix):
            return None
        for there in ("ray.tune", "ray.train", "ray.air"):
            if name.startswith(there + "."):
                own = f"outbid.{there[4:]}.{name[len(there) + 1 :]}"
                try:
                    return own if importlib.util.find_spec(own) is not None else None
                except AbsentNameError:
                    raise
                except (ImportError, ValueError):
                    return None
        return None


def install() -> None:
    """Make Ray Tune's module names importable below outbid.tune."""
    if not any(isinstance(f, _Finder) and not f._prefix for f in sys.meta_path):
        names = {f"outbid.tune.{name}": f"outbid.tune.{real}" for name, real in _TUNE.items()}
        names |= {f"outbid.train.{name}": real for name, real in _TRAIN.items()}
        names["outbid.air.result"] = "outbid.tune._results"
        finder = _Finder(names)
        sys.meta_path.insert(0, finder)
        for name in finder._parents & sys.modules.keys():
            vars(sys.modules[name]).setdefault("__path__", [])


def pretend() -> None:
    """Make `import ray` import Outbid."""
    if any(isinstance(f, _Finder) and f._prefix for f in sys.meta_path):
        return
    importlib.import_module("outbid.tune")
    for name in [n for n in sys.modules if n == "ray" or n.startswith("ray.")]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder(_RAY, "ray."))
