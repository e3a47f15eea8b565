"""MLflow: a run for each trial."""

from __future__ import annotations

import os
from typing import Any

from outbid._core.optional import optional
from outbid.integrations.loggers import mlflow_experiment
from outbid.tune import _session
from outbid.tune._trial import Trial, flatten
from outbid.tune.logger import LoggerCallback


def _mlflow() -> Any:
    return optional("MLflowLoggerCallback", "mlflow")


def _settings(name: str | None, token: str | None) -> str:
    """Return the name of the experiment, and use the token for all calls of this process."""
    if token:
        os.environ["MLFLOW_TRACKING_TOKEN"] = token
    return name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"


class MLflowLoggerCallback(LoggerCallback):
    """Logs each trial's parameters, numbers and optionally files as a run of an MLflow experiment."""

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: dict[str, Any] | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
    ) -> None:
        self.tracking_uri, self.registry_uri, self.experiment_name = tracking_uri, registry_uri, experiment_name
        self.tags, self.should_save_artifact = tags or {}, save_artifact
        self._token = tracking_token
        self._client: Any = None
        self._experiment = ""
        self._runs: dict[str, str] = {}

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Open the experiment."""
        name = _settings(self.experiment_name, self._token)
        self._client = _mlflow().tracking.MlflowClient(self.tracking_uri, self.registry_uri)
        self._experiment = mlflow_experiment(self._client, name)

    def log_trial_start(self, trial: Trial) -> None:
        """Start a run."""
        if trial.trial_id in self._runs:
            return
        tags = {**{k: str(v) for k, v in self.tags.items()}, "trial_name": str(trial), "mlflow.runName": str(trial)}
        run = self._client.create_run(experiment_id=self._experiment, tags=tags)
        self._runs[trial.trial_id] = run.info.run_id
        for name, value in flatten(trial.config).items():
            self._client.log_param(run.info.run_id, name, str(value)[:500])

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Log the numbers."""
        run, step = self._runs[trial.trial_id], int(result.get("timesteps_total") or result["training_iteration"])
        for name, value in flatten({k: v for k, v in result.items() if k != "config"}).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._client.log_metric(run, name, float(value), step=step)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """End the run."""
        run = self._runs[trial.trial_id]
        if self.should_save_artifact:
            self._client.log_artifacts(run, local_dir=trial.local_path)
        self._client.set_terminated(run, status="FAILED" if failed else "FINISHED")


def setup_mlflow(
    config: dict[str, Any] | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    tracking_token: str | None = None,
    artifact_location: str | None = None,
    run_name: str | None = None,
    create_experiment_if_not_exists: bool = False,
    tags: dict[str, Any] | None = None,
    rank_zero_only: bool = True,
) -> Any:
    """Start an MLflow run within a trial, and return the module `mlflow`.

    Defaults are read from config["mlflow"], like Ray until 2.4.
    """
    mlflow = _mlflow()
    config = dict(config or {})
    old = config.pop("mlflow", None) or {}
    tracking_uri, experiment_id = tracking_uri or old.get("tracking_uri"), experiment_id or old.get("experiment_id")
    name = _settings(experiment_name or old.get("experiment_name"), tracking_token or old.get("token"))
    if tracking_uri:
        mlflow.set_tracking_uri(tracking_uri)
    if registry_uri:
        mlflow.set_registry_uri(registry_uri)
    if experiment_id is None and mlflow.get_experiment_by_name(name) is None:
        if not create_experiment_if_not_exists:
            raise ValueError(
                f"setup_mlflow: there is no experiment {name!r}; create_experiment_if_not_exists=True creates it"
            )
        mlflow.create_experiment(name, artifact_location=artifact_location)
    mlflow.set_experiment(experiment_id=experiment_id) if experiment_id else mlflow.set_experiment(name)
    trial = _session.current.trial if _session.current else None
    mlflow.end_run()  # a run of the previous trial of this process
    mlflow.start_run(run_name=run_name or (str(trial) if trial else None), tags=tags)
    if config:
        mlflow.log_params({k: str(v)[:500] for k, v in flatten(config).items()})
    return mlflow


__all__ = ["MLflowLoggerCallback", "setup_mlflow"]
