"""Keeps Ray tasks and actors of a trial within its worker's bundle.

The workers' bundles may contain all of Ray's resources, so a task outside of them could wait indefinitely. Ray Tune's
trials are actors in a placement group that captures their children. An Outbid trial is a separate program, for which
Ray has no such setting. Therefore this module patches Ray when it is imported in a process with a bundle.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from outbid.ray._setup import BUNDLE, RESOURCES

_TRAINER = "ray.train.v2.api.data_parallel_trainer"


def capture() -> None:
    """Make this process's tasks, actors and data sets run in its bundle when it imports Ray."""
    if not os.environ.get(BUNDLE) or _held("CPU") < 1:
        return  # a bundle without CPUs does not reserve those of its node
    sys.meta_path.insert(0, _Finder({"ray": _tasks, "ray.data": _data, _TRAINER: _train}))


class _Finder(importlib.abc.MetaPathFinder):
    """Calls functions with modules after these are imported."""

    def __init__(self, after: dict[str, Callable[[ModuleType], None]]) -> None:
        self._after = after

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of such a module."""
        if fullname not in self._after:
            return None
        then: Callable[[ModuleType], None] = self._after.pop(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        run: Any = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            then(module)

        loader.exec_module = exec_module
        return spec


def _tasks(ray: ModuleType) -> None:
    """Capture tasks and actors of this process, like those of an actor in a placement group."""
    from ray._private import worker

    kind: Any = getattr(worker, "Worker", None)
    names = ("placement_group_id", "should_capture_child_tasks_in_placement_group")
    own, captures = (getattr(getattr(kind, name, None), "fget", None) for name in names)
    if own is None or captures is None:
        print(
            f"outbid.ray: Ray {ray.__version__} has no placement groups in its worker (tested with Ray 2.60): set the "
            "scheduling strategy of tasks to outbid.ray.bundle()",
            file=sys.stderr,
        )
        return
    group = os.environ[BUNDLE].partition(":")[0]

    def is_driver(one: Any) -> bool:
        return bool(one.mode == worker.SCRIPT_MODE)

    def placement_group_id(one: Any) -> Any:
        return ray.PlacementGroupID(bytes.fromhex(group)) if is_driver(one) else own(one)

    def should_capture(one: Any) -> Any:
        return is_driver(one) or captures(one)

    kind.placement_group_id = property(placement_group_id)
    kind.should_capture_child_tasks_in_placement_group = property(should_capture)
    _spread_within(ray, lambda: is_driver(worker.global_worker))


def _spread_within(ray: Any, is_driver: Callable[[], bool]) -> None:
    """Spread tasks and actors with the strategy SPREAD, such as Ray Data's shuffles, within the bundle."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    from outbid.ray._trial_context import bundle

    for kind in (ray.remote_function.RemoteFunction, ray.actor.ActorClass):

        def started(self: Any, *args: Any, _start: Any = kind._remote, **options: Any) -> Any:
            strategy = options.get("scheduling_strategy")
            elsewhere = strategy is not None and not isinstance(strategy, PlacementGroupSchedulingStrategy)
            if is_driver() and not (elsewhere and options.get("num_cpus") == 0):
                if elsewhere:
                    options["scheduling_strategy"] = bundle()
                if not _held("memory"):
                    options.pop("memory", None)  # Ray Data's estimates, which the bundle does not count
                if "node-id" in str(options.get("label_selector")):
                    options.pop("label_selector")  # the bundle is on one node anyway
            return _start(self, *args, **options)

        kind._remote = started


def _data(data: ModuleType) -> None:
    """Make Ray Data read and map in the bundle, because it sets its own strategy for tasks."""
    from ray.data import DataContext

    from outbid.ray._trial_context import bundle

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this setting is deprecated and will change in 2027
        context = DataContext.get_current()
        context.scheduling_strategy = context.scheduling_strategy_large_args = bundle()
    with contextlib.suppress(ImportError):  # older versions count the whole cluster
        _count_store()


def _count_store() -> None:
    """Make Ray Data count its part of the node's object store. It treats bundles without one as having no space."""
    import ray
    from ray.data import ExecutionResources
    from ray.data._internal.cluster_autoscaler import placement_group_cluster_autoscaler as module

    kind: Any = module.PlacementGroupClusterAutoscaler
    own = kind.get_total_resources

    def with_store(self: Any) -> Any:
        total = own(self)
        if total.object_store_memory:
            return total
        here = ray.get_runtime_context().get_node_id()
        node: dict[str, float] = next((n["Resources"] for n in ray.nodes() if n["NodeID"] == here), {})
        share = min(_held("CPU") / max(node.get("CPU", 1.0), 1.0), 1.0)
        return total.add(ExecutionResources(object_store_memory=node.get("object_store_memory", 0.0) * share))

    kind.get_total_resources = with_store


def _train(trainer: ModuleType) -> None:
    """Run Ray Train's workers in the bundle. Otherwise they wait for another placement group."""
    from outbid.ray._train import use_bundle

    use_bundle(trainer, {name: _held(name) for name in json.loads(os.environ.get(RESOURCES, "{}"))})


def _held(name: str) -> float:
    """Return the amount of a resource in the bundle."""
    return float(json.loads(os.environ.get(RESOURCES, "{}")).get(name, 0.0))
