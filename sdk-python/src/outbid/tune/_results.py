"""Result and ResultGrid: the result of one trial, and of all."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outbid._core.errors import MissingExtraError
from outbid.tune import _checkpoint_ranking, _order
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._result_files import read_error, read_results
from outbid.tune._trial import Trial, flatten

if TYPE_CHECKING:
    import pandas as pd


def frame(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return records as a pandas DataFrame."""
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("dataframes need pandas: pip install 'outbid[frame]'") from None
    return pandas.DataFrame.from_records(records)


def table(history: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a trial's results as a table, like its progress.csv."""
    return frame([flatten(result) for result in history])


class Result:
    """A trial's last metrics, its checkpoints, its error, and its directory."""

    def __init__(
        self,
        metrics: dict[str, Any] | None = None,
        checkpoint: Checkpoint | None = None,
        error: Exception | None = None,
        metrics_dataframe: Any = None,
        best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] | None = None,
        *,
        path: str = "",
        history: list[dict[str, Any]] | None = None,
    ) -> None:
        self.metrics = metrics
        self.checkpoint = checkpoint
        self.error = error
        self.best_checkpoints = best_checkpoints or []
        self.path = path
        self._frame = metrics_dataframe
        self._history = history or []

    def __repr__(self) -> str:
        shown = {k: v for k, v in (self.metrics or {}).items() if k not in ("config", "date", "pid", "hostname")}
        wrong = f", error={type(self.error).__name__}" if self.error else ""
        return f"Result(metrics={shown}, path={self.path!r}, checkpoint={self.checkpoint}{wrong})"

    @property
    def config(self) -> dict[str, Any] | None:
        """The trial's configuration."""
        return (self.metrics or {}).get("config")

    @property
    def log_dir(self) -> Path:
        """The trial's directory."""
        return Path(self.path)

    @property
    def metrics_dataframe(self) -> Any:
        """All results, one per row."""
        if self._frame is None and self._history:
            self._frame = table(self._history)
        return self._frame

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """Return the checkpoint with the best value of a metric."""
        if not self.best_checkpoints:
            return None
        if mode not in ("max", "min"):
            raise ValueError(f"get_best_checkpoint: mode must be 'min' or 'max', got {mode!r}")
        found = _order.best(self.best_checkpoints, lambda pair: value_in(pair[1], metric), mode)
        if found is None:
            known = sorted({k for _, m in self.best_checkpoints for k in flatten(m) if not k.startswith("config/")})
            raise RuntimeError(f"no checkpoint has the metric {metric!r}; they have {', '.join(known)}")
        return found[0]

    @classmethod
    def from_path(cls, path: str, storage_filesystem: Any = None) -> Result:
        """Return the result of the trial with this directory."""
        folder = Path(path).expanduser()
        if not folder.is_dir():
            raise RuntimeError(f"there is no directory {folder}")
        history = read_results(folder)
        with contextlib.suppress(OSError, ValueError):
            config = json.loads((folder / "params.json").read_text())
            for result in history:
                result["config"] = config
        kept = [
            (Checkpoint(folder / name), r)
            for r in history
            if (name := r.get("checkpoint_dir_name")) and (folder / name).is_dir()
        ]
        return cls(
            history[-1] if history else {},
            kept[-1][0] if kept else None,
            read_error(folder),
            None,
            kept,
            path=str(folder),
            history=history,
        )


def result_of(trial: Trial) -> Result:
    """Return a trial's result."""
    rules = trial.checkpoint_config
    scored = [((c, r), _checkpoint_ranking.score(rules, r, flatten(r))) for c, r in trial.checkpoints]
    return Result(
        metrics=trial.last_result or {"config": trial.config},
        checkpoint=trial.checkpoint,
        error=trial.error,
        best_checkpoints=_checkpoint_ranking.best(rules, scored),
        path=trial.local_path,
        history=trial.history,
    )


def value_of(trial: Trial, metric: str, mode: str, scope: str) -> float | None:
    """Return a trial's value of a metric over a scope: last, all, avg, last-5-avg or last-10-avg."""
    if scope not in ("last", "all", "avg", "last-5-avg", "last-10-avg"):
        raise ValueError(f"scope must be last, all, avg, last-5-avg or last-10-avg, got {scope!r}")
    values = [v for r in trial.history if (v := _order.number(value_in(r, metric))) is not None]
    last = _order.number(value_in(trial.last_result, metric))
    if scope == "last" and last is not None:
        return last
    if not values:
        return None
    if scope == "all":
        return _order.extreme(values, mode)
    among = values[-{"last": 1, "avg": len(values), "last-5-avg": 5, "last-10-avg": 10}[scope] :]
    return sum(among) / len(among)


def value_in(result: Mapping[str, Any], metric: str) -> Any:
    """Return a metric in a result, or None. The name may be a path with slashes."""
    return result.get(metric, flatten(result).get(metric))


def best_row(trial: Trial, metric: str | None, mode: str | None) -> dict[str, Any]:
    """Return a trial's best result by a metric, or the last one without a metric or without values."""
    if not metric or not mode:
        return trial.last_result
    found = _order.best(trial.history, lambda result: value_in(result, metric), mode)
    return trial.last_result if found is None else found


def best_of(trials: list[Trial], metric: str, mode: str, scope: str, finite: bool) -> Trial | None:
    """Return the best trial; the first of equal ones."""
    if mode not in ("max", "min"):
        raise ValueError(f"mode must be 'min' or 'max', got {mode!r}")
    values = [(trial, value_of(trial, metric, mode, scope)) for trial in trials]
    found = _order.best(
        [(trial, v) for trial, v in values if v is not None and (math.isfinite(v) or not finite)],
        lambda pair: pair[1],
        mode,
    )
    return found[0] if found else None


class ResultGrid:
    """The results of an experiment, one for each trial, in order."""

    def __init__(self, experiment_analysis: Any) -> None:
        if not hasattr(experiment_analysis, "trials"):
            raise TypeError(
                "ResultGrid: experiment_analysis must be a tune.ExperimentAnalysis, such as that of an experiment's "
                f"directory, tune.ExperimentAnalysis(path), got {experiment_analysis!r:.80}"
            )
        self._trials: list[Trial] = experiment_analysis.trials
        self._folder: str = experiment_analysis.experiment_path
        self._metric, self._mode = experiment_analysis.default_metric, experiment_analysis.default_mode
        self._results = [result_of(trial) for trial in self._trials]

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, i: int) -> Result:
        return self._results[i]

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def __repr__(self) -> str:
        return f"ResultGrid<[{', '.join(map(repr, self._results))}]>"

    @property
    def experiment_path(self) -> str:
        """The experiment's directory."""
        return self._folder

    @property
    def errors(self) -> list[Exception]:
        """The errors of failed trials."""
        return [r.error for r in self._results if r.error is not None]

    @property
    def num_errors(self) -> int:
        """The number of failed trials."""
        return sum(t.status == Trial.ERROR for t in self._trials)

    @property
    def num_terminated(self) -> int:
        """The number of trials that ended without an error."""
        return sum(t.status == Trial.TERMINATED for t in self._trials)

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """Return the result with the best value of a metric; the defaults are those of TuneConfig."""
        if len(self._trials) == 1:
            return self._results[0]
        metric, mode = metric or self._metric, mode or self._mode
        if not metric:
            raise ValueError("get_best_result: name a metric, here or in TuneConfig")
        if not mode:
            raise ValueError("get_best_result: mode must be 'min' or 'max', here or in TuneConfig")
        best = best_of(self._trials, metric, mode, scope, filter_nan_and_inf)
        if best is None:
            some = "; some failed" if self.num_errors else ""
            known = sorted({k for t in self._trials for k in flatten(t.last_result) if not k.startswith("config/")})
            raise RuntimeError(
                f"no trial has a value of the metric {metric!r}{some}; reported were: {', '.join(known) or 'none'}"
            )
        return self._results[self._trials.index(best)]

    def get_dataframe(self, filter_metric: str | None = None, filter_mode: str | None = None) -> pd.DataFrame:
        """Return a table with each trial's last result, or its best result by a metric if a mode is given too."""
        if filter_mode and filter_mode not in ("min", "max"):
            raise ValueError(f"get_dataframe: filter_mode must be 'min' or 'max', got {filter_mode!r}")
        if filter_mode and not filter_metric:
            raise ValueError(f"get_dataframe: filter_mode={filter_mode!r} needs a metric: give filter_metric=")
        rows = []
        for trial in self._trials:
            row = best_row(trial, filter_metric, filter_mode)
            flat = {k: v for k, v in flatten(row).items() if k != "experiment_tag"}
            rows.append({**flat, "logdir": Path(trial.local_path).name})
        return frame(rows)
