"""Loggers. Every trial's directory always has result.json, progress.csv and params.json."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outbid._core.errors import MissingExtraError
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._trial import Trial, flatten, to_json
from outbid.tune.callback import Callback

_UNLOGGED = frozenset({"config", "pid", "timestamp", "time_total_s", "training_iteration"})
"""Entries of every result that are not logged as curves."""


class LoggerCallback(Callback):
    """Base class of logging callbacks: override `log_trial_start`, `log_trial_result` and `log_trial_end`."""

    def log_trial_start(self, trial: Trial) -> None:
        """Log the start of a trial."""

    def log_trial_restore(self, trial: Trial) -> None:
        """Log that a trial continues from a checkpoint."""

    def log_trial_save(self, trial: Trial) -> None:
        """Log that a trial has saved."""

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Log a result."""

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Log the end of a trial."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Log a result."""
        self.log_trial_result(iteration, trial, result)

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Log the start of a trial."""
        self.log_trial_start(trial)

    def on_trial_restore(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Log that a trial continues from a checkpoint."""
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Log that a trial has saved."""
        self.log_trial_save(trial)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Log the end of a trial."""
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Log the failure of a trial."""
        self.log_trial_end(trial, failed=True)


class JsonLoggerCallback(LoggerCallback):
    """Does nothing, because every trial writes its result.json."""


class CSVLoggerCallback(LoggerCallback):
    """Does nothing, because every trial writes its progress.csv."""


class TBXLoggerCallback(LoggerCallback):
    """Writes TensorBoard event files into the trials' directories. Needs tensorboardX or torch."""

    def __init__(self) -> None:
        self._writers: dict[str, Any] = {}
        self._last: dict[str, dict[str, float]] = {}
        self._kind, self._hparams = _writer()

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        """Write the numbers."""
        writer = self._writers.get(trial.trial_id)
        if writer is None:
            writer = self._writers[trial.trial_id] = self._kind(trial.local_path)
        step = int(result.get("timesteps_total") or result["training_iteration"])
        flat = flatten({k: v for k, v in result.items() if k not in _UNLOGGED})
        numbers = {f"ray/tune/{k}": v for k, v in flat.items() if isinstance(v, (int, float)) and not math.isnan(v)}
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        for name, value in flat.items():
            if isinstance(value, list) and value:
                with contextlib.suppress(ValueError, TypeError):  # not a list of numbers
                    writer.add_histogram(f"ray/tune/{name}", value, step)
        self._last[trial.trial_id] = numbers
        writer.flush()

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        """Close the file."""
        writer = self._writers.pop(trial.trial_id, None)
        if writer is None:
            return
        flat = flatten(trial.evaluated_params)
        plain = {k: v for k, v in flat.items() if isinstance(v, (int, float, str, bool))}
        if plain:
            for summary in self._hparams(plain, self._last.pop(trial.trial_id, {})):
                writer.file_writer.add_summary(summary)
        writer.close()


def _writer() -> tuple[Any, Any]:
    """Return the class that writes the files, and the function for entries of parameters."""
    for module in ("tensorboardX", "torch.utils.tensorboard"):
        with contextlib.suppress(ImportError):
            summary = importlib.import_module(f"{module}.summary")
            return importlib.import_module(module).SummaryWriter, summary.hparams
    raise MissingExtraError("TBXLoggerCallback needs tensorboardX: pip install tensorboardX")


class AimLoggerCallback(LoggerCallback):
    """Not supported."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        from outbid.tune._errors import unsupported

        unsupported("AimLoggerCallback", "write a LoggerCallback, or use TBXLoggerCallback")


def pretty_print(result: dict[str, Any], exclude: set[str] | None = None) -> str:
    """Return a result as text: one line per entry, sorted by name, with nested entries indented."""
    hidden = {"config", "hist_stats", *(exclude or ())}
    shown = {k: v for k, v in result.items() if v is not None and k not in hidden}
    return "".join(_lines(shown, ""))


def _lines(entries: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, value in sorted(entries.items(), key=lambda pair: str(pair[0])):
        if isinstance(value, Mapping) and value:
            yield f"{indent}{name}:\n"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name}: {value if isinstance(value, str) else to_json(value)}\n"


class Logger:
    """Base class of loggers in Ray until 2.6. Subclasses are not called."""

    def __init__(self, config: dict[str, Any], logdir: str | Path, trial: Trial | None = None) -> None:
        self.config, self.logdir, self.trial = config, logdir, trial


CSVLogger = JsonLogger = TBXLogger = NoopLogger = Logger
DEFAULT_LOGGERS = (JsonLoggerCallback, CSVLoggerCallback)

__all__ = [
    "DEFAULT_LOGGERS",
    "AimLoggerCallback",
    "CSVLogger",
    "CSVLoggerCallback",
    "Checkpoint",
    "JsonLogger",
    "JsonLoggerCallback",
    "Logger",
    "LoggerCallback",
    "NoopLogger",
    "TBXLogger",
    "TBXLoggerCallback",
    "pretty_print",
]
