"""Keeps what a trial starts on Ray within its worker's bundle.

All that Ray has may be in the workers' bundles, so a task anywhere else could wait for ever. Ray Tune's trials are
actors in a placement group that captures what they start; a trial of Outbid's is a program of its own, for which Ray
has no such setting. So this sets it where Ray looks, in a process that stands on a bundle, when it imports Ray.
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
    """Have this process's tasks, actors and data sets run on its bundle, once it imports Ray."""
    if not os.environ.get(BUNDLE) or _held("CPU") < 1:
        return  # a bundle without CPUs leaves those of its node to everybody
    sys.meta_path.insert(0, _Finder({"ray": _tasks, "ray.data": _data, _TRAINER: _train}))


class _Finder(importlib.abc.MetaPathFinder):
    """Calls functions with modules, once each has been imported."""

    def __init__(self, after: dict[str, Callable[[ModuleType], None]]) -> None:
        self._after = after

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module that is waited for."""
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
    """Let tasks and actors of this process be captured, as those of an actor in a placement group are."""
    from ray._private import worker

    kind: Any = getattr(worker, "Worker", None)
    names = ("placement_group_id", "should_capture_child_tasks_in_placement_group")
    own, captures = (getattr(getattr(kind, name, None), "fget", None) for name in names)
    if own is None or captures is None:
        print(
            f"outbid.ray: Ray {ray.__version__} keeps placement groups elsewhere (tested with Ray 2.60): give tasks "
            "outbid.ray.bundle() as their scheduling strategy",
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
    """Have tasks and actors that ask to be spread, as Ray Data's shuffles do, spread within the bundle."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    from outbid.ray._inside import bundle

    for kind in (ray.remote_function.RemoteFunction, ray.actor.ActorClass):

        def started(self: Any, *args: Any, _start: Any = kind._remote, **options: Any) -> Any:
            strategy = options.get("scheduling_strategy")
            elsewhere = strategy is not None and not isinstance(strategy, PlacementGroupSchedulingStrategy)
            if is_driver() and not (elsewhere and options.get("num_cpus") == 0):
                if elsewhere:
                    options["scheduling_strategy"] = bundle()
                if not _held("memory"):
                    options.pop("memory", None)  # Ray Data's estimates: the bundle counts none
                if "node-id" in str(options.get("label_selector")):
                    options.pop("label_selector")  # the bundle stands on one node already
            return _start(self, *args, **options)

        kind._remote = started


def _data(data: ModuleType) -> None:
    """Let Ray Data read and map on the bundle: it names a strategy of its own for what it starts."""
    from ray.data import DataContext

    from outbid.ray._inside import bundle

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is to be another setting in 2027
        context = DataContext.get_current()
        context.scheduling_strategy = context.scheduling_strategy_large_args = bundle()
    with contextlib.suppress(ImportError):  # older ones count the whole cluster
        _count_store()


def _count_store() -> None:
    """Let Ray Data count its part of the node's object store: bundles name none, which it takes for no room."""
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
    """Let Ray Train's workers stand in the bundle, which else wait for a placement group of their own."""
    from outbid.ray._train import use_bundle

    use_bundle(trainer, {name: _held(name) for name in json.loads(os.environ.get(RESOURCES, "{}"))})


def _held(name: str) -> float:
    """Return how much of a resource the bundle holds."""
    return float(json.loads(os.environ.get(RESOURCES, "{}")).get(name, 0.0))
