"""Progress reporters. Outbid shows its own table; a reporter of one's own is called in its place."""

from __future__ import annotations

from typing import Any

from outbid.tune._trial import Trial


class ProgressReporter:
    """Base of progress reporters: override `should_report` and `report`."""

    own = True
    """Whether it takes the place of Outbid's table."""

    def setup(self, start_time: float | None = None, total_samples: int | None = None, **kwargs: Any) -> None:
        """Begin."""

    def should_report(self, trials: list[Trial], done: bool = False) -> bool:
        """Return whether to report now."""
        return True

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        """Show how the trials stand."""
        raise NotImplementedError


class TuneReporterBase(ProgressReporter):
    """Base of Ray's own reporters: Outbid's table takes their place, unless a subclass says what to show."""

    def __init__(self, *, metric_columns: Any = None, parameter_columns: Any = None, **kwargs: Any) -> None:
        self._metric_columns, self._parameter_columns, self._more = metric_columns, parameter_columns, kwargs

    @property
    def own(self) -> bool:  # type: ignore[override]
        """Whether a subclass says what to show."""
        return type(self).report is not TuneReporterBase.report

    def report(self, trials: list[Trial], done: bool, *sys_info: Any) -> None:
        """Leave it to Outbid's table."""

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Of no consequence."""

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Of no consequence."""


class CLIReporter(TuneReporterBase):
    """Outbid's table in a terminal."""


class JupyterNotebookReporter(TuneReporterBase):
    """Outbid's table in a notebook."""

    def __init__(self, overwrite: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)


class TrainReporter(TuneReporterBase):
    """Outbid's table."""


__all__ = ["CLIReporter", "JupyterNotebookReporter", "ProgressReporter", "TrainReporter", "TuneReporterBase"]
