"""Weights & Biases: a run for each trial."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from outbid._core.optional import optional
from outbid.tune import _session
from outbid.tune._trial import Trial, flatten
from outbid.tune.logger import LoggerCallback

_LEFT_OUT = frozenset({"config", "date", "done", "hostname", "node_ip", "pid", "timestamp", "trial_id"})


def _wandb() -> Any:
    return optional("WandbLoggerCallback", "wandb")


def _log_in(key: str | None, file: str | None) -> None:
    """Use an API key, or the one in a file, for all runs of this process."""
    if key := Path(file).expanduser().read_text().strip() if file else key:
        os.environ["WANDB_API_KEY"] = key


class WandbLoggerCallback(LoggerCallback):
    """Logs each trial's parameters and numbers as a run of a project."""

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | None = None,
        api_key: str | None = None,
        excludes: list[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        save_checkpoints: bool = False,
        upload_timeout: int = 1800,
        **kwargs: Any,
    ) -> None:
        self.project, self.group, self._more = project or os.environ.get("WANDB_PROJECT_NAME"), group, kwargs
        self._excludes, self._log_config, self._upload = set(excludes or ()), log_config, upload_checkpoints
        _log_in(api_key, api_key_file)
        self._runs: dict[str, Any] = {}

    def log_trial_start(self, trial: Trial) -> None:
        """Start a run."""
        if trial.trial_id in self._runs:
            return
        self._runs[trial.trial_id] = _wandb().init(
            id=trial.trial_id,
            name=str(trial),
            project=self.project,
            group=self.group or trial.trainable_name,
            config={k: v for k, v in trial.config.items() if k not in self._excludes},
            reinit="create_new",
            **self._more,
        )

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Log the numbers."""
        kept = {
            k: v
            for k, v in result.items()
            if k not in _LEFT_OUT | self._excludes or (k == "config" and self._log_config)
        }
        numbers = {k: v for k, v in flatten(kept).items() if isinstance(v, (int, float))}
        self._runs[trial.trial_id].log(numbers)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """End the run."""
        run = self._runs.pop(trial.trial_id)
        if self._upload and trial.checkpoint:
            artifact = _wandb().Artifact(name=f"checkpoint_{trial.trial_id}", type="model")
            artifact.add_dir(trial.checkpoint.path)
            run.log_artifact(artifact)
        run.finish(exit_code=1 if failed else 0)


def setup_wandb(
    config: dict[str, Any] | None = None,
    api_key: str | None = None,
    api_key_file: str | None = None,
    rank_zero_only: bool = True,
    **kwargs: Any,
) -> Any:
    """Start a run in a trial, and return it; config["wandb"] may contain arguments, like in Ray until 2.4."""
    config = dict(config or {})
    old = dict(config.pop("wandb", None) or {})
    _log_in(api_key or old.pop("api_key", None), api_key_file or old.pop("api_key_file", None))
    kwargs = {**old, **kwargs}
    trial = _session.current.trial if _session.current else None
    named = {"id": trial.trial_id, "name": str(trial), "group": trial.trainable_name} if trial else {}
    return _wandb().init(**{**named, "config": config, "reinit": "finish_previous", **kwargs})


__all__ = ["WandbLoggerCallback", "setup_wandb"]
