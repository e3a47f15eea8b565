"""Progress reporters. Outbid shows its own table unless a reporter is customised or user-defined."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from outbid.tune import _order
from outbid.tune._absent_names import absent
from outbid.tune._trial import Trial, flatten

_USUAL = {
    "mean_accuracy": "acc",
    "mean_loss": "loss",
    "training_iteration": "iter",
    "time_total_s": "total time (s)",
    "timesteps_total": "ts",
    "episode_reward_mean": "reward",
}
"""The default metrics, which are shown with short names."""

_ADDED = frozenset(
    {"timestamp", "checkpoint_dir_name", "done", "trial_id", "date", "time_this_iter_s", "pid", "hostname", "node_ip"}
    | {"config", "time_since_restore", "iterations_since_restore", "experiment_tag"}
)


class ProgressReporter:
    """Base class of progress reporters: override `should_report` and `report`."""

    own = True
    """Whether it replaces Outbid's table."""

    def setup(self, start_time: float | None = None, total_samples: int | None = None, **kwargs: Any) -> None:
        """Start reporting."""

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        """Return whether to report now."""
        return True

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        """Show the state of the trials."""
        raise NotImplementedError


class TuneReporterBase(ProgressReporter):
    """Prints a table of the trials periodically, with their parameters and the selected metrics."""

    def __init__(
        self,
        *,
        metric_columns: Sequence[str] | Mapping[str, str] | None = None,
        parameter_columns: Sequence[str] | Mapping[str, str] | None = None,
        total_samples: int | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        infer_limit: int = 3,
        print_intermediate_tables: bool | None = None,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
    ) -> None:
        self._metric_columns = _columns(metric_columns or _USUAL)
        self._infers = infer_limit if metric_columns is None else 0
        self._parameter_columns = _columns(parameter_columns or ())
        self._total_samples, self._rows, self._error_rows = total_samples, max_progress_rows, max_error_rows
        self._width, self._every = max_column_length, max_report_frequency
        self._tables_meanwhile = print_intermediate_tables is not False
        self._metric, self._mode, self._sorts = metric, mode, sort_by_metric
        self._said = any((metric_columns, parameter_columns, metric, sort_by_metric, print_intermediate_tables))
        self._start_time = time.time()
        self._last_report_time = 0.0

    @property
    def own(self) -> bool:  # type: ignore[override]
        """Whether it is customised; otherwise Outbid's table replaces it."""
        return self._said or any(
            getattr(type(self), name).__module__ != __name__ for name in ("report", "should_report")
        )

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Set defaults from the experiment."""
        self._start_time = start_time or self._start_time
        self._total_samples = total_samples or self._total_samples
        self._metric, self._mode = self._metric or metric, self._mode or mode

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        """Return whether the last table is old enough."""
        now = time.time()
        if now - self._last_report_time <= self._every:
            return done
        self._last_report_time = now
        return True

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        """Print the table."""
        print(self._progress_str(trials, done, *sys_info))

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Add a column for a metric."""
        _add(self._metric_columns, "metric", metric, representation)
        self._said = True

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Add a column for a parameter."""
        _add(self._parameter_columns, "parameter", parameter, representation)
        self._said = True

    def _progress_str(self, trials: list[Trial], done: bool, *sys_info: Any, **_: Any) -> str:
        """Return the text that `report` prints."""
        ran = datetime.timedelta(seconds=int(time.time() - self._start_time))
        lines = ["== Status ==", f"Current time: {datetime.datetime.now():%Y-%m-%d %H:%M:%S} (running for {ran})"]
        lines += [*map(str, sys_info)]
        best = self._best(trials)
        if best is not None:
            value = flatten(best.last_result)[str(self._metric)]
            lines.append(
                f"Current best trial: {best.trial_id} with {self._metric}={value} and parameters={best.config}"
            )
        states = ", ".join(f"{n} {state}" for state, n in sorted(Counter(t.status for t in trials).items()))
        lines.append(f"Number of trials: {len(trials)}/{self._total_samples or len(trials)} ({states})")
        if done or self._tables_meanwhile:
            lines += self._table(trials, None if done else self._rows)
        failed = [t for t in trials if t.status == Trial.ERROR]
        if failed:
            lines.append(f"Number of errored trials: {len(failed)}")
            rows = [[str(t), str(t.num_failures), str(t.error_file)] for t in failed]
            lines += grid(["Trial name", "# failures", "error file"], rows[: None if done else self._error_rows])
        return "\n".join(lines) + "\n"

    def _table(self, trials: list[Trial], most: int | None) -> list[str]:
        shown = self._sorted(trials)[:most]
        flat = [(t, flatten(t.last_result), flatten(t.config)) for t in shown]
        metrics = {n: as_ for n, as_ in self._metric_columns.items() if any(r.get(n) is not None for _, r, _ in flat)}
        metrics |= self._inferred(trials)
        parameters = self._parameter_columns or _columns(
            list(dict.fromkeys(n for t in trials for n in t.evaluated_params))
        )
        head = ["Trial name", "status", *parameters.values(), *metrics.values()]
        rows = []
        for trial, result, config in flat:
            values = [config.get(n, trial.config.get(n)) for n in parameters] + [result.get(n) for n in metrics]
            rows.append([str(trial), trial.status, *(self._short(v) for v in values)])
        left = len(trials) - len(shown)
        return [*grid(head, rows), *([f"... {left} more trials not shown"] if left else [])]

    def _sorted(self, trials: list[Trial]) -> list[Trial]:
        """Return the trials sorted by state, running first; or by the metric if that is enabled."""
        order = [Trial.RUNNING, Trial.PAUSED, Trial.PENDING, Trial.TERMINATED, Trial.ERROR]
        by = sorted(trials, key=lambda t: order.index(t.status))
        if not (self._sorts and self._metric and self._mode):
            return by
        metric, mode = self._metric, self._mode
        return sorted(by, key=lambda t: _order.rank(flatten(t.last_result).get(metric), mode), reverse=True)

    def _inferred(self, trials: list[Trial]) -> dict[str, str]:
        names: dict[str, str] = {}
        for trial in trials:
            for name, value in trial.last_result.items():
                if len(names) < self._infers and name not in _USUAL and name not in _ADDED:
                    names |= {name: name} if isinstance(value, (int, float)) else {}
        return names

    def _best(self, trials: list[Trial]) -> Trial | None:
        if not self._metric or not self._mode:
            return None
        metric = self._metric
        numbers = [t for t in trials if _order.is_number(flatten(t.last_result).get(metric))]
        return _order.best(numbers, lambda t: flatten(t.last_result).get(metric), self._mode)

    def _short(self, value: Any) -> str:
        text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
        return text if len(text) <= self._width else f"{text[: self._width - 3]}..."


class CLIReporter(TuneReporterBase):
    """Prints the table in a terminal."""


class JupyterNotebookReporter(TuneReporterBase):
    """Prints the table in a notebook."""

    def __init__(self, overwrite: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._overwrite = overwrite

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        """Print the table, replacing the last one."""
        if self._overwrite:
            with contextlib.suppress(ImportError):  # not in a notebook
                clear: Any = importlib.import_module("IPython.display").clear_output
                clear(wait=True)
        super().report(trials, done, *sys_info)


class TrainReporter(TuneReporterBase):
    """Prints the table in a terminal."""


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    edge = f"+{'+'.join('-' * (w + 2) for w in widths)}+"

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.ljust(w) for cell, w in zip(cells, widths, strict=True))} |"

    return [edge, line(head), f"|{edge[1:-1]}|", *map(line, rows), edge]


def _columns(given: Any) -> dict[str, str]:
    return dict(given) if isinstance(given, Mapping) else {name: name for name in given}


def _add(columns: dict[str, str], what: str, name: str, representation: str | None) -> None:
    if name in columns:
        raise ValueError(f"add_{what}_column: there is a column {name!r} already")
    columns[name] = representation or name


__all__ = ["CLIReporter", "JupyterNotebookReporter", "ProgressReporter", "TrainReporter", "TuneReporterBase"]


__getattr__ = partial(absent, __name__)  # names that only Ray has
