"""Modules and names of Ray Tune, Train and AIR that Outbid does not have, with alternatives."""

from __future__ import annotations

from typing import NoReturn

from outbid.tune._errors import AbsentNameError

_TRAINERS = "tune a function that trains on its trial's devices; outbid.Resources(devices=, processes=) has gangs"
_RAYS_OWN = (
    "it is Ray's own machinery; a tune.Callback, a scheduler or a search algorithm of your own hears of every trial"
)

MODULES: dict[str, str] = {
    "tune.automl": "use Tuner with a search algorithm",
    "tune.cli": "use `outbid ls`, `outbid show` and `outbid logs`",
    "tune.constants": "set what these environment variables say in RunConfig and TuneConfig",
    "tune.execution.class_cache": _RAYS_OWN,
    "tune.execution.cluster_info": "use `outbid nodes`, or ob.connect().nodes()",
    "tune.execution.experiment_state": _RAYS_OWN,
    "tune.execution.insufficient_resources_manager": _RAYS_OWN,
    "tune.execution.ray_trial_executor": _RAYS_OWN,
    "tune.execution.trial_runner": _RAYS_OWN,
    "tune.execution.tune_controller": _RAYS_OWN,
    "tune.experiment.config_parser": "give tune.run its arguments, or a dict to tune.Experiment.from_json",
    "tune.experimental": "use tune.progress_reporter",
    "tune.impl.out_of_band_serialize_dataset": "load data in the function, or bind it with tune.with_parameters",
    "tune.impl.placeholder": "large objects of param_space travel once, by themselves",
    "tune.impl.tuner_internal": "use tune.Tuner",
    "tune.impl.test_utils": _RAYS_OWN,
    "tune.integration.torch": _TRAINERS,
    "tune.integration.tensorflow": _TRAINERS,
    "tune.integration.horovod": _TRAINERS,
    "tune.integration.mxnet": "call tune.report in a callback of your own",
    "tune.integration.docker": "give a storage_path that all machines share",
    "tune.integration.kubernetes": "give a storage_path that all machines share",
    "tune.logger.comet": "write a tune.logger.LoggerCallback",
    "tune.schedulers.pb2_utils": "use tune.schedulers.PB2, which has a Gaussian process of its own",
    "tune.schedulers.util": _RAYS_OWN,
    "tune.search.util": _RAYS_OWN,
    "tune.trainable.metadata": "use Result.metrics and Result.best_checkpoints",
    "tune.trial_runner": _RAYS_OWN,
    "tune.ray_trial_executor": _RAYS_OWN,
    "tune.utils.callback": "give callbacks to RunConfig(callbacks=[...])",
    "tune.utils.file_transfer": "give a storage_path that all machines share",
    "tune.utils.mock": "raise in the training function of a test",
    "tune.utils.object_cache": _RAYS_OWN,
    "tune.utils.release_test_util": _RAYS_OWN,
    "tune.utils.resource_updater": "use `outbid nodes`",
    "tune.utils.serialization": "use cloudpickle",
    "train.backend": _TRAINERS,
    "train.base_trainer": _TRAINERS,
    "train.collective": _TRAINERS,
    **{f"train.{kind}.{name}": _TRAINERS for kind in ("lightgbm", "xgboost") for name in ("config", "v2")},
    **{
        f"train.{kind}.{kind}_{name}": _TRAINERS
        for kind in ("lightgbm", "xgboost")
        for name in ("checkpoint", "trainer")
    },
    "train.constants": "set what these environment variables say in RunConfig",
    "train.error": "a trial that failed has its error in Result.error",
    "train.gbdt_trainer": _TRAINERS,
    "train.jax": _TRAINERS,
    "train.predictor": "load the checkpoint, and call the model",
    "train.session": "use train.report, train.get_checkpoint and train.get_context",
    "train.sklearn": _TRAINERS,
    "train.utils": _TRAINERS,
    "train.v2": _TRAINERS,
    "air.checkpoint": "use tune.Checkpoint",
    "air.data_batch_type": "it is of Ray Data",
    "air.execution": _RAYS_OWN,
    "air.integrations.comet": "write a tune.logger.LoggerCallback",
    "air.util": "it is of Ray Data",
}
"""Alternatives by module, without the package's name. Modules below these are absent as well."""

NAMES: dict[str, str] = {
    "AcquiredResources": _RAYS_OWN,
    "DataBatchType": "it is of Ray Data",
    "ResourceRequest": _RAYS_OWN,
    "DistributedTrainableCreator": _TRAINERS,
    "LightGBMCheckpoint": "save the model's file, and report tune.Checkpoint.from_directory(path)",
    "LightGBMConfig": _TRAINERS,
    "LightGBMTrainer": _TRAINERS,
    "XGBoostCheckpoint": "save the model's file, and report tune.Checkpoint.from_directory(path)",
    "XGBoostConfig": _TRAINERS,
    "XGBoostTrainer": _TRAINERS,
    "RecursiveDependencyError": "parameters that wait for one another raise RuntimeError",
    "RemoteReporterMixin": "write a tune.ProgressReporter",
    "TrialProgressCallback": "write a tune.Callback",
    "assign_value": "change the configuration's dict",
    "get_network_params": _TRAINERS,
    "has_verbosity": "give RunConfig(verbose=...)",
    "import_pb2_dependencies": "PB2 needs nothing else",
    "init": "leave it out: a trial begins by itself",
    "json_to_resources": "use tune.with_resources",
    "mlflow_mixin": "call outbid.air.integrations.mlflow.setup_mlflow(config) in the training function",
    "normalize_pandas_for_lightgbm": _TRAINERS,
    "parse_spec_vars": "use tune.search.variant_generator.generate_variants",
    "register_input": "there is no RLlib",
    "registry_contains_input": "there is no RLlib",
    "registry_get_input": "there is no RLlib",
    "register_mock_trainable": "use tune.register_trainable with MyTrainableClass",
    "resources_to_json": "use tune.with_resources",
    "set_verbosity": "give RunConfig(verbose=...)",
    "shutdown": "leave it out: a trial ends by itself",
    "trial_dir": "use tune.get_context().get_trial_dir()",
    "trial_id": "use tune.get_context().get_trial_id()",
    "verbosity": "give RunConfig(verbose=...)",
    "disable_ipython": "give RunConfig(verbose=...)",
    "wandb_mixin": "call outbid.air.integrations.wandb.setup_wandb(config) in the training function",
}
"""Alternatives by name in modules that exist."""


def check_module(module: str) -> None:
    """Raise AbsentNameError if a module such as outbid.tune.cli, or a package around it, is absent."""
    below = module.partition(".")[2]
    while below:
        if below in MODULES:
            raise AbsentNameError(f"{module} is not here: {MODULES[below]}")
        below = below.rpartition(".")[0]


def absent(module: str, name: str) -> NoReturn:
    """Raise AbsentNameError for an absent name of Ray's, AttributeError for any other."""
    if name in NAMES:
        raise AbsentNameError(f"{module} has no {name}: {NAMES[name]}")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
