"""Runs Ray Train's workers in a trial's bundle, because the placement group that it requests does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import ray
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.worker_group import worker_group as groups
from ray.train.v2._internal.execution.worker_group.placement_group_handle import PlacementGroupHandle


class Held(PlacementGroupHandle):  # type: ignore[misc]
    """An existing placement group that Ray Train must not remove."""

    def __init__(self, group: Any) -> None:
        self._group = group

    @property
    def placement_group(self) -> Any:
        """The placement group."""
        return self._group

    def ready(self) -> Any:
        """Return the future of the placement group."""
        return self._group.ready()

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Return True, because the group exists."""
        return True

    def shutdown(self) -> None:
        """Do nothing."""


class Controller(TrainController):  # type: ignore[misc]
    """Ray Train's controller, which runs in an actor of the bundle, with all workers in that bundle."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        group = ray.util.get_current_placement_group()
        create = groups.WorkerGroup._create_workers

        def create_workers(self: Any, num_workers: int, *given: Any, **named: Any) -> Any:
            # Ray Train's own group has a bundle for each worker
            named["placement_group_bundle_indices"] = [0] * num_workers
            return create(self, num_workers, *given, **named)

        groups.WorkerGroup._create_placement_group = lambda self, *given, **named: Held(group)
        groups.WorkerGroup._create_workers = create_workers
        super().__init__(*args, **kwargs)


def use_bundle(trainer: ModuleType, held: Mapping[str, float]) -> None:
    """Make the trainers of this process run their workers in its bundle."""
    module: Any = trainer
    module.TrainController = Controller
    run = module.DataParallelTrainer._initialize_and_run_controller

    def checked(self: Any, **kwargs: Any) -> Any:
        scaling = self.scaling_config
        each = scaling._resources_per_worker_not_none
        for name, amount in each.items():
            if amount * scaling.num_workers > held.get(name, 0.0) + 1e-6:
                raise ValueError(
                    f"Ray Train's {scaling.num_workers} workers need {amount * scaling.num_workers:g} {name}, but this "
                    f"trial's bundle has {held.get(name, 0.0):g}: give outbid.ray.up more resources for each worker, "
                    f"or ScalingConfig fewer workers or smaller resources_per_worker"
                )
        # One of these removes the workers' placement group when the controller dies, such as when a trial is paused.
        kwargs["callbacks"] = [one for one in kwargs["callbacks"] if not isinstance(one, PlacementGroupCleanerCallback)]
        return run(self, **kwargs)

    module.DataParallelTrainer._initialize_and_run_controller = checked
