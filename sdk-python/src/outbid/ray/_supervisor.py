"""The actor that manages a cluster: the server, and a placement group and an actor for each worker."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from outbid._client.client import Client
from outbid.ray._head_server import Serving
from outbid.ray._setup import Access, Setup
from outbid.ray._worker import WorkerActor, visible_gpus
from outbid.rpc import FixedAddress
from outbid.v1 import service_pb2 as pb

_POLL_SECONDS = 0.3
_STOP_SECONDS = 60.0
_AGAIN_SECONDS = 5.0  # seconds before a failed worker is restarted

_log = logging.getLogger("outbid.ray")


@dataclass
class Place:
    """A placement group with one bundle, and the worker in it."""

    group: Any
    node: str = ""
    name: str = ""
    gpus: Any = None  # the task that finds out which GPUs the bundle has
    actor: Any = None
    run: Any = None
    leaving: bool = False
    not_before: float = 0.0
    why: str = ""


@dataclass
class Seen:
    """The state of Ray's nodes at one time."""

    alive: dict[str, dict[str, float]] = field(default_factory=dict)
    draining: set[str] = field(default_factory=set)


class Supervisor:
    """Starts workers where Ray has space, removes them from draining nodes, and replaces failed ones."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._places: list[Place] = []
        self._lock = threading.Lock()  # protects the places
        self._stopping = threading.Event()
        self._serving = None if setup.server else Serving(setup)
        self.access_to_server = self._serving.access if self._serving else Access(setup.server, setup.token, setup.ca)
        self._client = client_of(self.access_to_server)
        self._watcher = threading.Thread(target=self._watch, name="outbid-watch", daemon=True)
        self._count = 0
        self._boot = os.urandom(2).hex()  # makes names of workers unique
        self._watcher.start()

    def access(self) -> Access:
        """Return how to reach the server."""
        return self.access_to_server

    def workers(self) -> list[dict[str, str]]:
        """Return every place: its worker's name, Ray's node, and the state."""
        with self._lock:
            return [
                {"name": place.name, "node": place.node, "state": _state(place), "why": place.why}
                for place in self._places
            ]

    def stop(self) -> None:
        """Make every worker save and leave, then end the server."""
        self._stopping.set()
        self._watcher.join(_STOP_SECONDS)
        with self._lock:
            runs = [place.run for place in self._places if place.run is not None]
            for place in self._places:
                _leave(place)
        if runs:
            ray.wait(runs, num_returns=len(runs), timeout=_STOP_SECONDS)
        with self._lock:
            for place in self._places:
                _remove(place)
            self._places.clear()
        self._client.close()
        if self._serving:
            self._serving.stop(_STOP_SECONDS)

    def _watch(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            try:
                seen = look()
                with self._lock:
                    self._follow(seen)
            except Exception:  # Ray's control store is temporarily unavailable
                _log.exception("outbid.ray: could not look at the cluster")

    def _follow(self, seen: Seen) -> None:
        for place in list(self._places):
            self._follow_place(place, seen)
        wanted = self._wanted(seen)
        spare = [place for place in self._places if place.run is None and not place.leaving]
        while len(self._places) > wanted and spare:  # the space for them is gone
            place = spare.pop()
            _remove(place)
            self._places.remove(place)
        while sum(not place.leaving for place in self._places) < wanted:
            self._places.append(Place(placement_group([dict(self._setup.resources)], strategy="STRICT_PACK")))

    def _wanted(self, seen: Seen) -> int:
        if self._setup.workers is not None:
            return self._setup.workers
        fits = sum(
            fitting(total, self._setup.resources) for node, total in seen.alive.items() if node not in seen.draining
        )
        return fits if self._setup.most is None else min(fits, self._setup.most)

    def _follow_place(self, place: Place, seen: Seen) -> None:
        table = placement_group_table(place.group)
        node = next(iter(table.get("bundles_to_node_id", {}).values()), "")
        if place.run is not None:
            self._follow_worker(place, seen)
        elif table.get("state") == "CREATED" and node in seen.alive and time.monotonic() >= place.not_before:
            if node in seen.draining:
                return
            place.node = node
            self._start(place)

    def _follow_worker(self, place: Place, seen: Seen) -> None:
        if place.node in seen.draining and not place.leaving:
            _log.warning("outbid.ray: node %s is draining: worker %s saves and leaves", place.node[:8], place.name)
            _leave(place)
        done, _ = ray.wait([place.run], timeout=0)
        if not done:
            return
        try:
            code, log = ray.get(place.run)
            place.why = "" if code == 0 else f"worker {place.name} ended with exit code {code}\n{log}"
        except Exception as error:  # its actor or its node died
            place.why = f"worker {place.name} is lost: {type(error).__name__}"
        if place.why:
            _log.warning("outbid.ray: %s", place.why)
        auto = self._setup.workers is None
        if place.leaving or (auto and place.node not in seen.alive):
            _remove(place)
            self._places.remove(place)
            return
        if place.node in seen.alive:  # otherwise Ray moves the bundle to another node
            place.not_before = time.monotonic() + _AGAIN_SECONDS
        place.run = place.actor = place.gpus = None
        place.node = ""

    def _start(self, place: Place) -> None:
        """Start a worker in a place's bundle. With GPUs, wait until a task has found out which these are."""
        there = PlacementGroupSchedulingStrategy(place.group, placement_group_bundle_index=0)
        gpus = None
        if count := self._setup.resources.get("GPU", 0):
            if place.gpus is None:
                asking = ray.remote(num_cpus=0, num_gpus=count)(visible_gpus).options(scheduling_strategy=there)
                place.gpus = asking.remote()
            if not ray.wait([place.gpus], timeout=0)[0]:
                return
            try:
                gpus = str(ray.get(place.gpus))
            except Exception:  # the node died during the task
                place.gpus = None
                return
        self._count += 1
        place.name = f"{self._setup.name}-{self._boot}-{self._count}"
        made = ray.remote(num_cpus=0, max_concurrency=4)(WorkerActor).options(scheduling_strategy=there)
        bundle = f"{place.group.id.hex()}:0"
        place.actor = made.remote(self._setup, self.access_to_server, place.name, bundle, gpus)
        token = self._client.rpc.new_worker_token(pb.NewWorkerTokenRequest(node=place.name)).token
        place.run = place.actor.run.remote(token)
        place.why = ""


def look() -> Seen:
    """Return the current state of Ray's nodes."""
    seen = Seen()
    for node in ray.nodes():
        if node["Alive"]:
            seen.alive[node["NodeID"]] = node["Resources"]
    with contextlib.suppress(AttributeError):  # this is only available in a private interface
        seen.draining = set(ray._private.state.state.get_draining_nodes())
    return seen


def fitting(total: dict[str, float], resources: Any) -> int:
    """Return how many bundles fit on a node."""
    return min(int((total.get(name, 0.0) + 1e-6) // amount) for name, amount in resources.items() if amount > 0)


def client_of(access: Access) -> Client:
    """Return a client that is not the default one."""
    ca = None
    if access.ca:
        with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
            file.write(access.ca)
        ca = file.name
    return Client(FixedAddress(access.url), access.token or None, ca)


def _leave(place: Place) -> None:
    place.leaving = True
    if place.actor is not None:
        place.actor.leave.remote()


def _remove(place: Place) -> None:
    with contextlib.suppress(Exception):
        if place.actor is not None:
            ray.kill(place.actor)
    with contextlib.suppress(Exception):
        remove_placement_group(place.group)


def _state(place: Place) -> str:
    if place.leaving:
        return "leaving"
    if place.run is not None:
        return "up"
    return "failed" if place.why else "waiting"
