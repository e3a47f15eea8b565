"""Schedulers that let trials use free devices."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from outbid.tune._config import Placement
from outbid.tune._elastic import Growth
from outbid.tune._trial import Trial
from outbid.tune.schedulers._base import FIFOScheduler, TrialScheduler


class DistributeResources:
    """Lets running trials use free devices: GPUs if they have any, otherwise CPU cores.

    A trial gets any number of additional devices up to `increase_by_times` times `increase_by`, or up to those of a
    node. It gets at most all devices of the cluster except `reserve_resources`. Other resources in `increase_by` grow
    in proportion.
    """

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
    ) -> None:
        name = type(self).__name__
        self.add_bundles, self.increase_by_times = add_bundles, increase_by_times
        self.increase_by = _amounts(f"{name}: increase_by", increase_by)
        self.reserve_resources = _amounts(f"{name}: reserve_resources", reserve_resources)
        if increase_by and not any(self.increase_by.values()):
            raise ValueError(f'{name}: increase_by must name something, such as {{"GPU": 1}}, got {increase_by!r}')

    def growth(self, base: Placement) -> Growth:
        """Return how trials with these initial resources grow."""
        if not self.add_bundles and len(base.bundles) > 1:
            raise ValueError(
                f"{type(self).__name__}: with add_bundles=False a trial must have 1 bundle, got {len(base.bundles)}: "
                "give add_bundles=True, or one bundle to with_resources"
            )
        kind = "GPU" if base.required_resources.get("GPU") else "CPU"
        step = self.increase_by or (base.bundles[-1] if self.add_bundles else {kind: 1.0})
        if not step.get(kind):
            raise ValueError(
                f"{type(self).__name__}: trials that start with {base.required_resources} grow by {kind}, which "
                f'increase_by must contain, such as {{"{kind}": 1}}; got {dict(step)!r}'
            )
        times = max(0, self.increase_by_times) if self.increase_by else 0
        return Growth(base, step, times, self.add_bundles, self.reserve_resources)


class DistributeResourcesToTopJob(DistributeResources):
    """Like DistributeResources: free devices go to all running trials equally, not to the best one first."""

    def __init__(
        self,
        add_bundles: bool = False,
        increase_by: Mapping[str, float] | None = None,
        increase_by_times: int = -1,
        reserve_resources: Mapping[str, float] | None = None,
        metric: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        self.metric, self.mode = metric, mode
        warnings.warn(
            "DistributeResourcesToTopJob: free devices go to all running trials equally, like with "
            "DistributeResources, and not to the best first",
            stacklevel=2,
        )


def _amounts(name: str, given: Mapping[str, float] | None) -> dict[str, float]:
    """Return valid amounts of resources by name."""
    for key, n in (given or {}).items():
        if isinstance(n, bool) or not isinstance(n, (int, float)) or not (math.isfinite(n) and n >= 0):
            raise ValueError(f"{name}: {key} must be a number that is at least 0, got {n!r}")
    return {str(key): float(n) for key, n in (given or {}).items() if n}


_DISTRIBUTE = DistributeResources()


class ResourceChangingScheduler(TrialScheduler):
    """Decides like its base scheduler, and lets running trials use free devices.

    A trial that gets more devices saves and continues from its checkpoint. `tune.get_context().get_trial_resources()`
    and `Trainable.trial_resources` return its resources.
    """

    def __init__(
        self,
        base_scheduler: TrialScheduler | None = None,
        resources_allocation_function: DistributeResources | Callable[..., Any] | None = _DISTRIBUTE,
    ) -> None:
        self._base = base_scheduler or FIFOScheduler()
        self._distribute: DistributeResources | None = None
        if isinstance(resources_allocation_function, DistributeResources):
            self._distribute = resources_allocation_function
        elif resources_allocation_function is None:
            warnings.warn(
                "ResourceChangingScheduler: resources_allocation_function is None, so trials do not grow",
                stacklevel=2,
            )
        else:
            warnings.warn(
                "ResourceChangingScheduler: a user-defined resources_allocation_function is not called, and trials "
                "keep their initial resources; the default, DistributeResources(), lets them use free devices",
                stacklevel=2,
            )

    def growth(self, base: Placement) -> Growth | None:
        """Return how trials with these initial resources grow; None if they do not."""
        return self._distribute.growth(base) if self._distribute else None

    @property
    def compares(self) -> bool:  # type: ignore[override]
        """Whether the base scheduler compares trials."""
        return self._base.compares

    @property
    def metric(self) -> str | None:
        """The metric of the base scheduler."""
        return self._base.metric

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Set metric and mode of the base scheduler."""
        return self._base.set_search_properties(metric, mode, **spec)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Forward to the base scheduler."""
        self._base.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Forward to the base scheduler."""
        self._base.on_trial_error(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> Any:
        """Forward to the base scheduler."""
        return self._base.on_trial_result(tune_controller, trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Forward to the base scheduler."""
        self._base.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Forward to the base scheduler."""
        self._base.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Forward to the base scheduler."""
        return self._base.choose_trial_to_run(tune_controller)

    def target(self, trial: Trial, step: int) -> int:
        """Forward to the base scheduler."""
        return self._base.target(trial, step)
