"""ExperimentAnalysis: the result of `tune.run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from outbid._core.errors import NotFoundError, UnavailableError
from outbid.tune import _order
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._config import ResumeConfig
from outbid.tune._record import STATE, Run, read
from outbid.tune._results import best_of, best_row, frame, table, value_in
from outbid.tune._trial import Trial, flatten

if TYPE_CHECKING:
    import pandas as pd


class ExperimentAnalysis:
    """Analyses the trials of an experiment, which may be given by its directory."""

    def __init__(
        self,
        experiment_checkpoint_path: Any = None,
        *,
        storage_filesystem: Any = None,
        trials: list[Trial] | None = None,
        default_metric: str | None = None,
        default_mode: str | None = None,
        folder: str = "",
    ) -> None:
        if default_mode not in (None, "min", "max"):
            raise ValueError(f"ExperimentAnalysis: default_mode must be 'min' or 'max', got {default_mode!r}")
        self.default_metric, self.default_mode = default_metric, default_mode
        if trials is None:
            path = Path(str(experiment_checkpoint_path).removeprefix("file://")).expanduser().absolute()
            path = path.parent if path.is_file() else path
            if not (path / STATE).is_file():
                raise ValueError(f"{path} is not an experiment's directory: it has no {STATE}")
            trials, folder = _of(path), str(path)
        self.trials = trials
        self._folder = folder

    @property
    def experiment_path(self) -> str:
        """The experiment's directory."""
        return self._folder

    @property
    def best_trial(self) -> Trial:
        """The trial with the best last value."""
        found = self.get_best_trial()
        if found is None:
            raise ValueError(f"no trial has a value of {self.default_metric!r}")
        return found

    @property
    def best_config(self) -> dict[str, Any]:
        """The configuration of the best trial."""
        return self.best_trial.config

    @property
    def best_result(self) -> dict[str, Any]:
        """The last result of the best trial."""
        return self.best_trial.last_result

    @property
    def best_result_df(self) -> pd.DataFrame:
        """The last result of the best trial as a table of one row."""
        return frame([flatten(self.best_result)]).set_index("trial_id")

    @property
    def best_dataframe(self) -> pd.DataFrame:
        """All results of the best trial."""
        return table(self.best_trial.history)

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint of the best trial."""
        return self.get_best_checkpoint(self.best_trial)

    @property
    def best_logdir(self) -> str:
        """The directory of the best trial."""
        return self.best_trial.local_path

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The last results by trial id."""
        return {t.trial_id: t.last_result for t in self.trials}

    @property
    def results_df(self) -> pd.DataFrame:
        """The last results as a table by trial id."""
        made = frame([flatten(t.last_result) for t in self.trials])
        return made.set_index("trial_id") if "trial_id" in made else made

    @property
    def trial_dataframes(self) -> dict[str, pd.DataFrame]:
        """All results of each trial by trial id."""
        return {t.trial_id: table(t.history) for t in self.trials}

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> pd.DataFrame:
        """Return a table with each trial's last result, or its best result by a metric."""
        if mode is not None and mode not in ("max", "min"):
            raise ValueError(f"mode must be 'min' or 'max', got {mode!r}")
        if mode and not metric:
            raise ValueError(f"dataframe: mode={mode!r} needs a metric: give metric=")
        rows = []
        for trial in self.trials:
            rows.append({**flatten(best_row(trial, metric, mode)), "logdir": trial.local_path})
        return frame(rows)

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Trial | None:
        """Return the best trial, or None if no trial has a value."""
        if len(self.trials) == 1:
            return self.trials[0]
        return best_of(self.trials, self._metric(metric), self._mode(mode), scope, filter_nan_and_inf)

    def get_best_config(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> Any:
        """Return the configuration of the best trial."""
        found = self.get_best_trial(metric, mode, scope)
        return found.config if found else None

    def get_best_logdir(self, metric: str | None = None, mode: str | None = None, scope: str = "last") -> str | None:
        """Return the directory of the best trial."""
        found = self.get_best_trial(metric, mode, scope)
        return found.local_path if found else None

    def get_best_checkpoint(
        self, trial: Trial, metric: str | None = None, mode: str | None = None
    ) -> Checkpoint | None:
        """Return a trial's checkpoint with the best value, or its newest if no result has one; None if all are NaN."""
        metric, mode = self._metric(metric), self._mode(mode)
        found = _order.best(trial.checkpoints, lambda pair: value_in(pair[1], metric), mode)
        if found is None:
            return trial.checkpoint
        return found[0] if _order.is_number(value_in(found[1], metric)) else None

    def get_trial_checkpoints_paths(self, trial: Trial, metric: str | None = None) -> list[tuple[str, Any]]:
        """Return a trial's checkpoints with their values."""
        name = metric or self.default_metric or "training_iteration"
        return [(c.path, flatten(r).get(name)) for c, r in trial.checkpoints]

    def get_last_checkpoint(self, trial: Trial | None = None, metric: str = "", mode: str = "") -> Checkpoint | None:
        """Return the newest checkpoint of a trial, by default the best one."""
        trial = trial or self.get_best_trial(metric or "training_iteration", mode or "max")
        return trial.checkpoint if trial else None

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """Return the configurations by trial id; with `prefix` flat, with "config/" before each name."""
        return {t.trial_id: flatten(t.config, "config/") if prefix else t.config for t in self.trials}

    def _metric(self, metric: str | None) -> str:
        found = metric or self.default_metric
        if not found:
            raise ValueError("name a metric, here or in tune.run(metric=)")
        return found

    def _mode(self, mode: str | None) -> str:
        found = mode or self.default_mode
        if found not in ("min", "max"):
            raise ValueError(f"mode must be 'min' or 'max', here or in tune.run(mode=), got {found!r}")
        return found


def _of(path: Path) -> list[Trial]:
    """Return the trials of a directory: from the server, or from files if the server does not have the sweep."""
    from outbid.tune._restore import Restored

    run = Run.load(path)
    try:
        return Restored(run, None, ResumeConfig()).results().trials
    except (NotFoundError, UnavailableError):
        return read(run.plan)


Analysis = ExperimentAnalysis

__all__ = ["Analysis", "ExperimentAnalysis"]
