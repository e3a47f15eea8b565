"""Ray Train's workers on a trial's bundle: it asks for a placement group of its own, for which there is no room."""

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
    """A placement group that is there, and is not Ray Train's to remove."""

    def __init__(self, group: Any) -> None:
        self._group = group

    @property
    def placement_group(self) -> Any:
        """The group."""
        return self._group

    def ready(self) -> Any:
        """Return what is ready."""
        return self._group.ready()

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Return that it is there."""
        return True

    def shutdown(self) -> None:
        """Leave it as it is."""


class Controller(TrainController):  # type: ignore[misc]
    """Ray Train's controller, which runs in an actor of the bundle, with all workers in that bundle."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        group = ray.util.get_current_placement_group()
        create = groups.WorkerGroup._create_workers

        def create_workers(self: Any, num_workers: int, *given: Any, **named: Any) -> Any:
            named["placement_group_bundle_indices"] = [0] * num_workers  # Ray Train's own has one for each
            return create(self, num_workers, *given, **named)

        groups.WorkerGroup._create_placement_group = lambda self, *given, **named: Held(group)
        groups.WorkerGroup._create_workers = create_workers
        super().__init__(*args, **kwargs)


def use_bundle(trainer: ModuleType, held: Mapping[str, float]) -> None:
    """Have the trainers of this process put their workers into its bundle."""
    module: Any = trainer
    module.TrainController = Controller
    run = module.DataParallelTrainer._initialize_and_run_controller

    def checked(self: Any, **kwargs: Any) -> Any:
        scaling = self.scaling_config
        each = scaling._resources_per_worker_not_none
        for name, amount in each.items():
            if amount * scaling.num_workers > held.get(name, 0.0) + 1e-6:
                raise ValueError(
                    f"Ray Train's {scaling.num_workers} workers need {amount * scaling.num_workers:g} {name}, and this "
                    f"trial's bundle holds {held.get(name, 0.0):g}: give outbid.ray.up more resources for each worker, "
                    f"or ScalingConfig fewer workers, or less with resources_per_worker"
                )
        # One of these removes the workers' placement group when the controller dies, as with a trial that is paused.
        kwargs["callbacks"] = [one for one in kwargs["callbacks"] if not isinstance(one, PlacementGroupCleanerCallback)]
        return run(self, **kwargs)

    module.DataParallelTrainer._initialize_and_run_controller = checked
