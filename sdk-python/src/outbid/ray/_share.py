"""Share: a scheduler for an experiment of Ray Tune that runs as many trials as it holds leases."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.air.execution.resources.request import AcquiredResources, ResourceRequest
from ray.air.execution.resources.resource_manager import ResourceManager
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from outbid._client.client import Client
from outbid.ray._experiment_leases import Place, Places, number

_log = logging.getLogger("outbid.ray")
_PATIENCE_SECONDS = 90.0  # seconds in which a trial with a revoked lease must report; the worker allows two minutes
_IDLE_SECONDS = 0.05


class LeasedResources(AcquiredResources):  # type: ignore[misc]
    """A place as the resources on which Tune starts a trial's actor."""

    def __init__(self, resource_request: ResourceRequest, place: Place) -> None:
        super().__init__(resource_request)
        self.place = place

    def _annotate_remote_entity(self, entity: Any, bundle: dict[str, float], bundle_index: int) -> Any:
        group, _, index = self.place.bundle.partition(":")
        options: dict[str, Any] = {
            "num_cpus": 0,  # the lease counts the trial's usage, so that its children may use the bundle
            "num_gpus": 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group))),
                placement_group_bundle_index=int(index),
                placement_group_capture_child_tasks=True,
            ),
        }
        if self.place.gpus:
            variables = {"CUDA_VISIBLE_DEVICES": self.place.gpus, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
            options["runtime_env"] = {"env_vars": variables}
        return entity.options(**options)


class LeaseManager(ResourceManager):  # type: ignore[misc]
    """Tune's resource manager, which requests leases; they are ready when a worker holds them."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._requests: list[ResourceRequest] = []

    def request_resources(self, resource_request: ResourceRequest) -> None:
        """Add a waiting trial."""
        self._requests.append(resource_request)
        self._want()

    def cancel_resource_request(self, resource_request: ResourceRequest) -> None:
        """Remove a waiting trial."""
        self._requests.remove(resource_request)
        self._want()

    def has_resources_ready(self, resource_request: ResourceRequest) -> bool:
        """Return whether a trial may start."""
        return resource_request in self._requests and self._places.waiting()

    def acquire_resources(self, resource_request: ResourceRequest) -> LeasedResources | None:
        """Take a place for a trial."""
        place = self._places.take() if resource_request in self._requests else None
        if place is None:
            return None
        self._requests.remove(resource_request)
        self._want()
        return LeasedResources(resource_request, place)

    def free_resources(self, acquired_resource: LeasedResources) -> None:
        """Return a place."""
        self._places.give_back(acquired_resource.place)

    def get_resource_futures(self) -> list[Any]:
        """Return no futures, after a short pause, because Tune polls again at once."""
        if self._requests:
            time.sleep(_IDLE_SECONDS)
        return []

    def update_state(self) -> None:
        """Do nothing: the state of places is always current."""

    def clear(self) -> None:
        """End the experiment."""
        self._requests.clear()
        self._places.close()

    def _want(self) -> None:
        devices = max((devices_of(request.required_resources) for request in self._requests), default=1)
        self._places.want(len(self._requests), devices)


def devices_of(resources: Mapping[str, float]) -> int:
    """Return how many Outbid devices a trial of Tune needs: its GPUs, or its CPUs if it has none."""
    return max(math.ceil(resources.get("GPU", 0) or resources.get("CPU", 0)), 1)


class Share(FIFOScheduler):  # type: ignore[misc]
    """A Ray Tune scheduler that shares a cluster of `outbid.ray.up` with other experiments and sweeps.

        tune.TuneConfig(scheduler=outbid.ray.Share(ASHAScheduler()), ...)

    `inner` is the scheduler that decides about trials, by default FIFO. The experiment is a sweep of the server at
    `url`, by default that of the cluster that `outbid.ray.attach(cluster)` finds. It bids for devices like every sweep,
    and runs as many trials as it holds leases, on the leases' devices. When a lease is revoked, its trial is paused at
    its next report through Tune's checkpoints and continues under another lease. A trial that does not report for 90 s
    is ended and continues from its last checkpoint.

    `name`, `tenant`, `weight`, `labels` and `bidder` are like in `ob.Sweep`.
    """

    def __init__(
        self,
        inner: TrialScheduler | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        cluster: str = "outbid",
        name: str = "tune",
        **sweep: Any,
    ) -> None:
        super().__init__()
        known = {"tenant", "weight", "labels", "bidder", "bidder_settings", "agent", "agent_settings"}
        if unknown := sweep.keys() - known:
            raise TypeError(f"Share: there is no argument {sorted(unknown)[0]!r}")
        self._inner = inner or FIFOScheduler()
        self._url, self._token, self._cluster = url, token, cluster
        self._ca = Path(ca_file).read_text() if ca_file else ""
        self._sweep = {"name": name, **sweep}
        self._mode = "min"
        self._places: Places | None = None
        self._yielded: set[str] = set()  # trials that were paused because their lease was revoked

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_places": None}

    @property
    def metric(self) -> str | None:
        """The metric of the inner scheduler."""
        found: str | None = self._inner.metric or self._metric
        return found

    @property
    def supports_buffered_results(self) -> bool:
        """False, because a trial with a revoked lease is paused at the next report."""
        return False

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Set the metric and the mode from the experiment."""
        self._mode = mode or getattr(self._inner, "_mode", None) or self._mode
        super().set_search_properties(metric, mode, **spec)
        return bool(self._inner.set_search_properties(metric, mode, **spec))

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Make trials run on leases, before the first one starts."""
        if self._places is None:
            self._join(getattr(tune_controller, "_tune_controller", tune_controller))
        self._inner.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Forward to the inner scheduler."""
        self._inner.on_trial_error(tune_controller, trial)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Report, and forward to the inner scheduler."""
        self._report(tune_controller, trial, result)
        self._inner.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Forward to the inner scheduler."""
        self._inner.on_trial_remove(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Decide like the inner scheduler, but pause a trial whose lease is revoked."""
        place = self._report(tune_controller, trial, result)
        decision = str(self._inner.on_trial_result(tune_controller, trial, result))
        if place is not None and place.revoked and decision == TrialScheduler.CONTINUE:
            self._yielded.add(trial.trial_id)
            return str(TrialScheduler.PAUSE)
        return decision

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return the inner scheduler's choice, or a trial whose lease was revoked."""
        self._end_overdue(tune_controller)
        if (chosen := self._inner.choose_trial_to_run(tune_controller)) is not None:
            return chosen
        for trial in tune_controller.get_trials():
            if trial.trial_id in self._yielded and trial.status == Trial.PAUSED:
                return trial
        return None

    def debug_string(self) -> str:
        """Return the inner scheduler's description with the sweep's id."""
        shown = f" as {self._places.sweep}" if self._places and self._places.sweep else ""
        return f"{self._inner.debug_string()} On Outbid{shown}."

    def save(self, checkpoint_path: str) -> None:
        """Save the inner scheduler."""
        self._inner.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        """Restore the inner scheduler."""
        self._inner.restore(checkpoint_path)

    def _join(self, controller: Any) -> None:
        if not hasattr(getattr(controller, "_actor_manager", None), "_resource_manager"):
            raise RuntimeError(f"Share: Ray {ray.__version__} is not supported; tested with Ray 2.60")
        self._places = Places(
            self._client(), ray.util.get_node_ip_address(), self._sweep, self.metric or "metric", self._mode
        )
        controller._actor_manager._resource_manager = LeaseManager(self._places)

    def _client(self) -> Client:
        if self._url is None:
            from outbid.ray._cluster import attach

            return attach(self._cluster).own_client()
        from outbid.ray._setup import Access
        from outbid.ray._supervisor import client_of

        return client_of(Access(self._url, self._token or "", self._ca))

    def _report(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> Place | None:
        place = _place_of(tune_controller, trial)
        metric = self.metric
        if place is not None and metric is not None and metric in result:
            place.say(metric=number(result[metric]), say=f"{trial} {trial.config}")
        return place

    def _end_overdue(self, tune_controller: Any) -> None:
        """End trials whose lease was lost, or was revoked long ago."""
        for trial in tune_controller.get_live_trials():
            place = _place_of(tune_controller, trial)
            if place is None or trial.status != Trial.RUNNING:
                continue
            if place.gone or (place.revoked and time.monotonic() - place.revoked > _PATIENCE_SECONDS):
                _log.warning("outbid.ray: %s has lost its lease and will continue from its last checkpoint", trial)
                actor = trial.temporary_state.ray_actor
                self._yielded.add(trial.trial_id)
                tune_controller.pause_trial(trial, should_checkpoint=False)
                if actor is not None:
                    ray.kill(actor)


def _place_of(tune_controller: Any, trial: Trial) -> Place | None:
    """Return the place of a trial, or None."""
    controller = getattr(tune_controller, "_tune_controller", tune_controller)
    actor = controller._trial_to_actor.get(trial)
    _, acquired = controller._actor_manager._live_actors_to_ray_actors_resources.get(actor, (None, None))
    return acquired.place if isinstance(acquired, LeasedResources) else None
