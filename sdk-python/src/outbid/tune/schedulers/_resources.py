"""Schedulers that would change what a running trial has. Outbid's trials keep what they were given."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from outbid.tune._trial import Trial
from outbid.tune.schedulers._base import FIFOScheduler, TrialScheduler


class DistributeResources:
    """Of no consequence: see ResourceChangingScheduler."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs


class DistributeResourcesToTopJob(DistributeResources):
    """Of no consequence: see ResourceChangingScheduler."""


class ResourceChangingScheduler(TrialScheduler):
    """Decides as its base scheduler does; trials keep what they have.

    Idle devices go to other sweeps, by auction; `outbid.Resources(devices=(1, 4))` is for a trial that can use more.
    """

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: Callable[..., Any] | None = None,
    ) -> None:
        self._base = base_scheduler or FIFOScheduler()
        self._base_trial_resources: Any = None
        if resources_allocation_function is not None:
            warnings.warn(
                "ResourceChangingScheduler: trials keep the resources that they start with; idle devices go to other "
                "sweeps, and outbid.Resources(devices=(1, 4)) is for trials that can use more",
                stacklevel=2,
            )

    @property
    def compares(self) -> bool:  # type: ignore[override]
        """Whether the base compares trials."""
        return self._base.compares

    @property
    def metric(self) -> str | None:
        """That of the base."""
        return self._base.metric

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Hand them on."""
        return self._base.set_search_properties(metric, mode, **spec)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Hand it on."""
        self._base.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Hand it on."""
        self._base.on_trial_error(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> Any:
        """Hand it on."""
        return self._base.on_trial_result(tune_controller, trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Hand it on."""
        self._base.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Hand it on."""
        self._base.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Hand it on."""
        return self._base.choose_trial_to_run(tune_controller)

    def target(self, trial: Trial, step: int) -> int:
        """Hand it on."""
        return self._base.target(trial, step)
