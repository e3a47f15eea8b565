"""Every public module and name of Ray Tune, Train and AIR exists in Outbid, or its error names an alternative."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest

from outbid import tune
from outbid.tune._absent_names import MODULES, NAMES
from outbid.tune._errors import AbsentNameError


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("tune.integration.mlflow", "mlflow_mixin"),
        ("tune.integration.wandb", "wandb_mixin"),
        ("tune.integration.torch", "DistributedTrainableCreator"),
        ("tune.track", "trial_dir"),
        ("tune.cli.commands", "list_trials"),
        ("tune.schedulers.pb2", "import_pb2_dependencies"),
        ("tune.progress_reporter", "RemoteReporterMixin"),
        ("tune.registry", "register_input"),
        ("tune.resources", "json_to_resources"),
        ("tune.utils.log", "set_verbosity"),
        ("train.v2.api.config", "RunConfig"),
        ("train.collective", "barrier"),
        ("train.lightgbm", "LightGBMTrainer"),
        ("air", "DataBatchType"),
        ("air.util.node", "x"),
    ],
)
def test_what_is_absent_says_what_to_use(module: str, name: str) -> None:
    with pytest.raises(AbsentNameError, match=r"outbid\.[\w.]+ (is not here|has no \w+): .{10}") as caught:
        exec(f"from outbid.{module} import {name}")
    assert isinstance(caught.value, (tune.UnsupportedError, ImportError)) and isinstance(caught.value, ImportError)


@pytest.mark.parametrize(
    ("module", "name", "same"),
    [
        ("tune.integration.mlflow", "MLflowLoggerCallback", "air.integrations.mlflow"),
        ("tune.logger.wandb", "WandbLoggerCallback", "air.integrations.wandb"),
        ("tune.exceptions", "TuneError", "tune"),
        ("tune.logger.json", "JsonLoggerCallback", "tune.logger"),
        ("tune.stopper.timeout", "TimeoutStopper", "tune.stopper"),
        ("tune.analysis.experiment_analysis", "ExperimentAnalysis", "tune"),
        ("tune.search.optuna.optuna_search", "OptunaSearch", "tune.search.optuna"),
        ("train.context", "TrainContext", "train"),
        ("air.result", "Result", "tune"),
    ],
)
def test_modules_of_rays_are_found_whatever_was_imported_before(module: str, name: str, same: str) -> None:
    code = f"from outbid.{same} import {name} as one\nfrom outbid.{module} import {name}\nassert one is {name}"
    exec(code)
    subprocess.run([sys.executable, "-c", code], check=True)


def test_track_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    from outbid.tune import track

    told: list[Any] = []
    monkeypatch.setattr(track, "report", told.append)
    track.log(loss=1, acc=2)
    assert told == [{"loss": 1, "acc": 2}]


@pytest.mark.parametrize("name", ["nonsense", "schedulers.nonsense", "logger.nonsense"])
def test_what_ray_does_not_have_is_an_ordinary_error(name: str) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(f"outbid.tune.{name}")
    assert not isinstance(caught.value, AbsentNameError)
    with pytest.raises(AttributeError):
        _ = tune.schedulers.nonsense
    assert not hasattr(tune, "nonsense")


def test_no_module_is_both_here_and_absent() -> None:
    from outbid.tune._import_hook import _TRAIN, _TUNE

    here = {f"tune.{name}" for name in _TUNE} | {f"train.{name}" for name in _TRAIN}
    assert not here & MODULES.keys()
    for module in ("tune", "tune.schedulers", "tune.search", "tune.stopper", "train"):
        assert not set(importlib.import_module(f"outbid.{module}").__all__) & NAMES.keys()


def test_a_trial_process_does_not_import_what_only_the_driver_needs() -> None:
    heavy = "{'numpy', 'grpc', 'pandas', 'outbid._client.client', 'outbid.tune._driver'}"
    code = f"import sys, outbid.tune._trial_process\nfound = {heavy} & sys.modules.keys()\nassert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_are_found_on_first_use() -> None:
    assert set(dir(tune)) >= set(tune.__all__)
    for name in tune.__all__:
        assert getattr(tune, name) is getattr(tune, name)
    code = "from outbid.tune import *\nassert Tuner.__name__ == 'Tuner' and callable(loguniform) and callable(run)"
    subprocess.run([sys.executable, "-c", code], check=True)
