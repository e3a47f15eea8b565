"""Loggers of sweeps: TensorBoard, MLflow, Weights & Biases. The public module is `outbid.loggers`."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from outbid._client.callbacks import Callback
from outbid._core.errors import MissingExtraError, one_line
from outbid._core.optional import optional
from outbid._core.user_warning import warn_user
from outbid._results.model import Report, SweepInfo, TrialResult, flatten

if TYPE_CHECKING:
    from outbid._results.result import Result

__all__ = ["Logger", "MLflow", "TensorBoard", "WandB"]

_BATCH, _PAUSE = 500, 2.0  # metrics in one MLflow request, and the maximum seconds that metrics wait for one


class Logger(Callback):
    """Base class of loggers: override `begin`, `log`, `end_trial` and `end`, which are called in this order."""

    def __init__(self) -> None:
        self._broken = False

    def begin(self, sweep: SweepInfo) -> None:
        """Start logging the sweep."""

    def log(self, trial: TrialResult, report: Report) -> None:
        """Log a report. Reports that a restarted trial has replaced are left out."""

    def end_trial(self, trial: TrialResult) -> None:
        """Log the end of a trial."""

    def end(self, sweep: SweepInfo) -> None:
        """Write pending data."""

    def on_sweep_start(self, sweep: SweepInfo) -> None:
        """Call `begin`."""
        self._call(self.begin, sweep)

    def on_report(self, trial: TrialResult, report: Report) -> None:
        """Call `log`."""
        if not report.superseded:
            self._call(self.log, trial, report)

    def on_trial_end(self, trial: TrialResult) -> None:
        """Call `end_trial`."""
        self._call(self.end_trial, trial)

    def on_sweep_end(self, result: Result) -> None:
        """Call `end`."""
        self._call(self.end, result.sweep)

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        if self._broken:
            return
        try:
            function(*args)
        except MissingExtraError:
            raise
        except Exception as error:
            self._broken = True
            warn_user(
                f"{type(self).__name__} failed and stopped logging ({one_line(error)}); "
                "ob.attach(sweep).wait(loggers=[...]) logs everything",
            )


class TensorBoard(Logger):
    """Writes a folder of event files for each trial, `directory/<sweep>/<trial>`: its metrics and hparams."""

    def __init__(self, directory: str | Path = "runs") -> None:
        super().__init__()
        self._writer = optional("loggers.TensorBoard", "tensorboard.summary.writer.event_file_writer").EventFileWriter
        self._directory = Path(directory)
        self._open: dict[str, Any] = {}

    def log(self, trial: TrialResult, report: Report) -> None:
        """Write the metrics of a report."""
        values = {name: value for name, value in report.metrics.items()}
        self._write(self._file(trial), _scalars(values), report.step, _stamp(report))

    def end_trial(self, trial: TrialResult) -> None:
        """Write the best value and the state, and close the file."""
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        file = self._file(trial)
        if trial.metric is not None:
            self._write(file, _scalars({"best": trial.metric}), trial.best_step, time.time())
        status = api_pb2.STATUS_FAILURE if trial.state == "failed" else api_pb2.STATUS_SUCCESS
        ended = trial.ended.timestamp() if trial.ended else time.time()
        info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=ended)
        self._write(file, _hparams(metadata.SESSION_END_INFO_TAG, session_end_info=info), 0, ended)
        self._open.pop(trial.id).close()

    def end(self, sweep: SweepInfo) -> None:
        """Close all open files."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _file(self, trial: TrialResult) -> Any:
        if trial.id not in self._open:
            place = self._directory / trial.sweep / str(trial.number)
            place.mkdir(parents=True, exist_ok=True)
            for old in place.glob("*.outbid"):  # files of an earlier program that logged this sweep
                old.unlink()
            file = self._open[trial.id] = self._writer(str(place), filename_suffix=".outbid")
            self._begin(file, trial)
        return self._open[trial.id]

    def _begin(self, file: Any, trial: TrialResult) -> None:
        from tensorboard.plugins.hparams import summary_v2

        flat = {name: v if isinstance(v, (bool, int, float, str)) else json.dumps(v) for name, v in _flat(trial)}
        began = trial.created.timestamp() if trial.created else time.time()
        summary = summary_v2.hparams_pb(flat, trial_id=trial.id, start_time_secs=began)
        self._write(file, summary, 0, began)

    def _write(self, file: Any, summary: Any, step: int, when: float) -> None:
        from tensorboard.compat.proto import event_pb2

        file.add_event(event_pb2.Event(wall_time=when, step=step, summary=summary))


class MLflow(Logger):
    """Logs a parent run for the sweep and a nested run for each trial to a tracking server or a local store.

    `uri` is the tracking server; the default is MLflow's. `experiment` is created if it does not exist.
    """

    def __init__(self, uri: str | None = None, *, experiment: str = "outbid") -> None:
        super().__init__()
        self._client = optional("loggers.MLflow", "mlflow").MlflowClient(tracking_uri=uri)
        self._name = experiment
        self._experiment = self._parent = ""
        self._metric = ""
        self._runs: dict[str, str] = {}  # run ids of trials
        self._waiting: dict[str, list[Any]] = {}
        self._sent = time.monotonic()

    def begin(self, sweep: SweepInfo) -> None:
        """Create or find the sweep's run."""
        self._experiment = mlflow_experiment(self._client, self._name)
        self._metric = sweep.metric
        runs = self._client.search_runs([self._experiment], f"tags.`outbid.sweep` = '{sweep.id}'", max_results=50_000)
        there = {run.data.tags.get("outbid.trial", ""): run.info.run_id for run in runs}
        self._parent = there.pop("", "") or self._make(sweep.id, {"outbid.sweep": sweep.id})
        self._runs = there

    def log(self, trial: TrialResult, report: Report) -> None:
        """Add the metrics of a report to the next request."""
        from mlflow.entities import Metric

        when = int(1000 * _stamp(report))
        waiting = self._waiting.setdefault(self._run(trial), [])
        names = _allowed_names(report.metrics)
        waiting += [Metric(names[name], value, when, report.step) for name, value in report.metrics.items()]
        if len(waiting) >= _BATCH or time.monotonic() - self._sent > _PAUSE:
            self._send()

    def end_trial(self, trial: TrialResult) -> None:
        """Log the best value and the state."""
        self._send()
        run = self._run(trial)
        if trial.metric is not None:
            self._client.log_metric(
                run, _allowed(f"best_{self._metric}"), trial.metric, _milliseconds(trial.ended), trial.best_step
            )
        self._client.set_tag(run, "outbid.state", trial.state)
        names = _allowed_names(trial.attributes)
        for name, value in trial.attributes.items():
            self._client.set_tag(run, names[name], value if isinstance(value, str) else json.dumps(value))
        status = {"failed": "FAILED", "stopped": "KILLED"}.get(trial.state, "FINISHED")
        self._client.set_terminated(run, status, _milliseconds(trial.ended))

    def end(self, sweep: SweepInfo) -> None:
        """End the sweep's run, with the best configuration."""
        self._send()
        if sweep.best is not None and sweep.best.metric is not None:
            when = _milliseconds(sweep.ended)
            self._client.log_metric(self._parent, _allowed(f"best_{sweep.metric}"), sweep.best.metric, when, 0)
            self._client.set_tag(self._parent, "outbid.best", sweep.best.id)
        status = "FAILED" if sweep.state == "failed" else "FINISHED"
        self._client.set_terminated(self._parent, status, _milliseconds(sweep.ended))

    def _make(self, name: str, tags: dict[str, str]) -> str:
        run: str = self._client.create_run(self._experiment, tags=tags, run_name=name).info.run_id
        return run

    def _run(self, trial: TrialResult) -> str:
        if trial.id not in self._runs:
            from mlflow.entities import Param

            tags = {"outbid.sweep": trial.sweep, "outbid.trial": trial.id, "mlflow.parentRunId": self._parent}
            run = self._runs[trial.id] = self._make(trial.id, tags)
            params = [Param(_allowed(name), str(value)[:6000]) for name, value in _flat(trial)]
            for i in range(0, len(params), 100):
                self._client.log_batch(run, params=params[i : i + 100])
        return self._runs[trial.id]

    def _send(self) -> None:
        self._sent = time.monotonic()
        for run, metrics in self._waiting.items():
            for i in range(0, len(metrics), 1000):
                self._client.log_batch(run, metrics=metrics[i : i + 1000])
        self._waiting.clear()


class WandB(Logger):
    """Logs a run for each trial, grouped by sweep, to Weights & Biases; `mode="offline"` keeps them in `dir`."""

    def __init__(
        self,
        project: str = "outbid",
        *,
        entity: str | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
        dir: str | None = None,
    ) -> None:
        super().__init__()
        self._wandb = optional("loggers.WandB", "wandb")
        self._settings: dict[str, Any] = {"project": project, "entity": entity, "mode": mode, "dir": dir}
        self._runs: dict[str, Any] = {}

    def log(self, trial: TrialResult, report: Report) -> None:
        """Log the metrics of a report."""
        self._run(trial).log(dict(report.metrics), step=report.step)

    def end_trial(self, trial: TrialResult) -> None:
        """Log the best value and the state, and end the run."""
        run = self._run(trial)
        if trial.metric is not None:
            run.summary["best"] = trial.metric
        run.summary["state"] = trial.state
        run.summary.update(trial.attributes)
        self._runs.pop(trial.id).finish(exit_code=int(trial.state == "failed"))

    def end(self, sweep: SweepInfo) -> None:
        """End all open runs."""
        for run in self._runs.values():
            run.finish()
        self._runs.clear()

    def _run(self, trial: TrialResult) -> Any:
        if trial.id not in self._runs:
            self._runs[trial.id] = self._wandb.init(
                id=trial.id.replace("/", "-"),
                name=trial.id,
                group=trial.sweep,
                config=dict(_flat(trial)),
                reinit="create_new",
                resume="allow" if self._settings["mode"] in (None, "online") else None,
                settings=self._wandb.Settings(silent=True),
                **self._settings,
            )
        return self._runs[trial.id]


def mlflow_experiment(client: Any, name: str) -> str:
    """Return the id of an MLflow experiment, which is created if it does not exist."""
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found else client.create_experiment(name))


def _allowed(name: str) -> str:
    """Return a name that MLflow allows: "acc@1" becomes "acc_1"."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def _allowed_names(names: Iterable[str]) -> dict[str, str]:
    """Return MLflow's name for each of `names`; equal results are made distinct by a number."""
    found = {name: name for name in names if _allowed(name) == name}
    for name in sorted(set(names) - found.keys()):
        there, allowed, number = set(found.values()), _allowed(name), 1
        while allowed in there:
            number += 1
            allowed = f"{_allowed(name)}_{number}"
        found[name] = allowed
    return found


def _flat(trial: TrialResult) -> list[tuple[str, Any]]:
    return list(flatten(trial._stored).items())


def _stamp(report: Report) -> float:
    return report.time.timestamp() if report.time else time.time()


def _milliseconds(when: Any) -> int:
    return int(1000 * (when.timestamp() if when is not None else time.time()))


def _scalars(values: dict[str, float]) -> Any:
    from tensorboard.compat.proto import summary_pb2

    value = summary_pb2.Summary.Value
    return summary_pb2.Summary(value=[value(tag=n, simple_value=v) for n, v in values.items() if not math.isnan(v)])


def _hparams(tag: str, **data: Any) -> Any:
    from tensorboard.compat.proto import summary_pb2
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    content = plugin_data_pb2.HParamsPluginData(**data)
    about = metadata.create_summary_metadata(content)
    value = summary_pb2.Summary.Value(tag=tag, metadata=about, tensor=metadata.NULL_TENSOR)
    return summary_pb2.Summary(value=[value])
