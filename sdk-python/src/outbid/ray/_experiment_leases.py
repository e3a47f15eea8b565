"""The leases of an experiment of Ray Tune: where its trials may run, and how many it requests.

The experiment is a sweep on Outbid's server. Each of the sweep's trials is a *place*: while a worker runs it
(`_hold.py`), it holds a lease whose devices are idle, so that the experiment can train on them.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from outbid._client.client import Client
from outbid._client.handle import SweepHandle
from outbid._core.errors import OutbidError
from outbid._search.resources import Resources
from outbid._search.space import constant
from outbid._search.sweep import Sweep
from outbid._search.tuner_classes import Random
from outbid.ray._lease_process import hold

_log = logging.getLogger("outbid.ray")
_GRACE_SECONDS = 2.0  # seconds for which an unwanted place is kept


@dataclass(eq=False)
class Place:
    """A lease that a worker holds for the experiment."""

    number: int
    node: str
    bundle: str
    gpus: str
    connection: socket.socket
    used: bool = False
    revoked: float = 0.0  # when the lease was revoked
    gone: bool = False
    idle: float = field(default_factory=time.monotonic)

    @property
    def free(self) -> bool:
        """Whether a trial may start there."""
        return not (self.used or self.revoked or self.gone)

    def say(self, **message: Any) -> None:
        """Send a message to the worker, if it is still connected."""
        try:
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.gone = True


class Places:
    """The places of an experiment. Methods may be called from any thread and do not wait for leases."""

    def __init__(self, client: Client, host: str, sweep: dict[str, Any], metric: str, mode: str) -> None:
        self._client = client
        self._sweep = sweep
        self._metric, self._mode = metric, mode
        self._key = secrets.token_hex(16)
        self._listener = socket.create_server((host, 0))
        self._host = host
        self._lock = threading.Lock()
        self._places: list[Place] = []
        self._wanted = 0  # number of trials that wait for a place
        self._devices = 1
        self._created = 0
        self._over: set[int] = set()  # numbers of places that were ended for good
        self._handle: SweepHandle | None = None
        self._closed = threading.Event()
        self._changed = threading.Event()
        for run in (self._accept, self._keep):
            threading.Thread(target=run, name=f"outbid-places{run.__name__}", daemon=True).start()

    @property
    def sweep(self) -> str:
        """The sweep's id; "" before the first trial has waited."""
        return self._handle.id if self._handle else ""

    def want(self, trials: int, devices: int) -> None:
        """Set how many trials wait for a place, and how many devices a place has."""
        with self._lock:
            self._wanted, self._devices = trials, devices
        self._changed.set()

    def take(self) -> Place | None:
        """Return a free place for a trial, or None."""
        with self._lock:
            for place in self._places:
                if place.free:
                    place.used = True
                    return place
        return None

    def waiting(self) -> bool:
        """Return whether a place is free."""
        with self._lock:
            return any(place.free for place in self._places)

    def give_back(self, place: Place) -> None:
        """Return a place when its trial has ended or paused."""
        with self._lock:
            place.used = False
            place.say(end="leave" if place.revoked else "done")
            self._drop(place, over=not place.revoked)
        self._changed.set()

    def close(self) -> None:
        """Return all places and end the sweep."""
        self._closed.set()
        with self._lock:
            for place in list(self._places):
                place.say(end="done")
                self._drop(place, over=True)
        self._listener.close()
        if self._handle is not None:
            try:
                if self._created > len(self._over):
                    self._handle.stop()
            except OutbidError as error:
                _log.warning("outbid.ray: sweep %s continues: %s", self._handle.id, error)
        self._client.close()

    def _drop(self, place: Place, *, over: bool) -> None:
        if place in self._places:
            self._places.remove(place)
            if over:
                self._over.add(place.number)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Serve the connection of one worker."""
        place: Place | None = None
        with connection, connection.makefile("r") as lines:
            try:
                hello = json.loads(lines.readline() or "{}")
                if not secrets.compare_digest(str(hello.get("key", "")), self._key):
                    return
                place = Place(hello["number"], hello["node"], hello["bundle"], hello["gpus"], connection)
                with self._lock:
                    self._places.append(place)
                    self._over.discard(place.number)  # its worker was lost and it was restarted elsewhere
                for _ in lines:  # the only message of a worker is that the lease is revoked
                    with self._lock:
                        place.revoked = time.monotonic()
                        if not place.used:
                            place.say(end="leave")
                            self._drop(place, over=False)
            except (OSError, ValueError, KeyError):
                pass
            finally:
                if place is not None:
                    with self._lock:
                        place.gone = True
                        self._drop(place, over=not place.revoked)

    def _keep(self) -> None:
        """Request as many places as are wanted, and end unwanted ones."""
        while not self._closed.is_set():
            self._changed.wait(0.5)
            self._changed.clear()
            try:
                self._ask()
            except OutbidError as error:  # the server is unavailable: try again later
                _log.warning("outbid.ray: %s", error)

    def _ask(self) -> None:
        with self._lock:
            now = time.monotonic()
            spare = [p for p in self._places if p.free and now - p.idle > _GRACE_SECONDS]
            for place in spare if not self._wanted else []:
                place.say(end="done")
                self._drop(place, over=True)
            used = sum(place.used for place in self._places)
            short = used + self._wanted - (self._created - len(self._over))
            created = self._created + max(short, 0)
            devices = self._devices
        if short <= 0 or self._closed.is_set():
            return
        if self._handle is None:
            space = {"host": self._host, "port": self._listener.getsockname()[1], "key": self._key}
            made = Sweep(
                hold,
                {name: constant(value) for name, value in {**space, "metric": self._metric}.items()},
                metric=self._metric,
                mode="max" if self._mode == "max" else "min",
                tuner=Random(seed=0),
                trials=created,
                resources=Resources(devices=devices),
                max_restarts=0,
                **self._sweep,
            )
            self._handle = made.submit(client=self._client)
        else:
            self._handle.extend(trials=created)
        with self._lock:
            self._created = created


def number(value: Any) -> float:
    """Return a metric as a number; NaN for other values."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
