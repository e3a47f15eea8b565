"""`up` and `attach`: Outbid workers on a Ray cluster."""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import ray

from outbid._client.client import Client, connect
from outbid._core.errors import ConflictError, NotFoundError, UnavailableError
from outbid.ray._setup import NAMESPACE, Access, Setup, devices_of
from outbid.ray._supervisor import Supervisor
from outbid.rpc import FixedAddress

_STOP_SECONDS = 150.0
_POLL_SECONDS = 0.1
HEAD = {"node:__internal_head__": 0.001}
"""A resource that only Ray's head node has."""


@dataclass(frozen=True)
class Worker:
    """A worker on the Ray cluster.

    `state` is "waiting" (Ray has no space for its bundle yet), "up", "leaving" (its node is draining) or "failed";
    `why` is the reason. `node` is the id of Ray's node.
    """

    name: str
    node: str
    state: Literal["waiting", "up", "leaving", "failed"]
    why: str = ""


class Cluster:
    """A server and workers on a Ray cluster, from `up` or `attach`.

    As a context manager it shuts everything down at the end, unless it is detached.
    """

    def __init__(self, name: str, supervisor: Any, access: Access, *, detached: bool) -> None:
        self.name = name
        """Its name in Ray's namespace "outbid"."""
        self.url = access.url
        """The server's URL."""
        self.token = access.token
        """The server's token; "" if it does not require one."""
        self.detached = detached
        """Whether it remains when this program ends."""
        self._supervisor = supervisor
        self._ca = _written(access.ca) if access.ca else None
        self._client: Client | None = None
        if not detached:
            atexit.register(self.down)  # runs before Ray's own handler, which was registered earlier

    def __repr__(self) -> str:
        return f"<outbid.ray.Cluster {self.name} at {self.url}>"

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.detached:
            self._close()
        else:
            self.down()

    @property
    def client(self) -> Client:
        """A client of the server, which becomes the default one."""
        if self._client is None:
            self._client = connect(self.url, token=self.token or None, ca_file=self._ca)
        return self._client

    def own_client(self) -> Client:
        """Return another client, which is not the default one. The caller must close it."""
        return Client(FixedAddress(self.url), self.token or None, self._ca)

    @property
    def ca_file(self) -> str | None:
        """The file with the authority that signed the server's certificate; None without TLS."""
        return self._ca

    def workers(self) -> list[Worker]:
        """Return all workers, including those for which Ray has no space yet."""
        return [Worker(**found) for found in ray.get(self._supervisor.workers.remote())]

    def wait(self, workers: int = 1, timeout: float = 120.0) -> Cluster:
        """Wait until `workers` workers are up. Raises UnavailableError with the states of workers after `timeout`."""
        end = time.monotonic() + timeout
        while True:
            there = self.workers()
            names = {worker.name for worker in there if worker.state == "up"}
            if sum(node in names for node in _nodes_up(self.client)) >= workers:
                return self
            if time.monotonic() >= end:
                states = "; ".join(f"{worker.name or '-'} {worker.state} {worker.why}".strip() for worker in there)
                raise UnavailableError(f"fewer than {workers} workers were up after {timeout:g} s: {states or 'none'}")
            time.sleep(_POLL_SECONDS)

    def down(self) -> None:
        """Save trials, stop the workers, then stop the server. May be called repeatedly."""
        atexit.unregister(self.down)
        self._close()
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        with contextlib.suppress(ray.exceptions.RayActorError):  # it has already ended
            ray.get(supervisor.stop.remote(), timeout=_STOP_SECONDS)
        ray.kill(supervisor)

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def up(
    workers: int | Literal["auto"] = "auto",
    resources: Mapping[str, float] | None = None,
    *,
    max_workers: int | None = None,
    name: str = "outbid",
    detached: bool = False,
    server: str | None = None,
    token: str | None = None,
    ca_file: str | None = None,
    data: str | os.PathLike[str] | None = None,
    devices: str | None = None,
    secure: bool | None = None,
    server_options: Sequence[str] = (),
    worker_options: Sequence[str] = (),
    pass_env: Sequence[str] | None = None,
) -> Cluster:
    """Start Outbid on the Ray cluster that this program is connected to, or that `ray.init()` finds.

    Each worker runs in an actor in a placement group with one bundle of `resources` (default: one CPU). It offers the
    bundle's GPUs, or its CPUs if it has none; `devices` overrides that like `outbid worker --devices`. `workers` is the
    number of workers; those without space wait, which makes Ray's autoscaler add nodes. "auto" is as many as fit on
    current and future nodes, up to `max_workers`.

    The server runs on the head node and stores its data in `data` there (default: ~/.outbid/ray/NAME). If other
    machines can reach it, it has a certificate and a token that are new at each start; `secure` overrides that.
    `server` is the URL of an existing server, `token` one of its admin tokens, and `ca_file` its authority.
    `server_options` and `worker_options` are additional options of `outbid serve` and `outbid worker`. `pass_env` are
    the names of variables that trials see (default: all except Ray's; only necessary ones if `server` is given).

    Everything ends with this program, however that ends, after trials have saved. With `detached` it remains until
    `down` is called; `attach` finds it by its `name`.
    """
    _connect()
    bundle = {key: float(amount) for key, amount in (resources or {"CPU": 1}).items() if amount}
    if workers != "auto" and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 0):
        raise ValueError(f'up: workers must be a number or "auto", got {workers!r}')
    if max_workers is not None and workers != "auto":
        raise ValueError(f'up: max_workers goes with workers="auto", not with workers={workers}')
    setup = Setup(
        name=name,
        resources=bundle,
        workers=None if workers == "auto" else workers,
        most=max_workers,
        devices=devices or devices_of(bundle),
        data=os.fspath(data) if data is not None else "",
        secure=secure,
        server=server or "",
        token=token or (os.environ.get("OUTBID_TOKEN") or "" if server else ""),
        ca=Path(ca_file).read_text() if ca_file else "",
        server_options=tuple(server_options),
        worker_options=tuple(worker_options),
        pass_env=tuple(pass_env) if pass_env is not None else (() if server else ("*",)),
    )
    life = "detached" if detached else None
    made = ray.remote(num_cpus=0, max_concurrency=8)(Supervisor).options(
        name=name, namespace=NAMESPACE, lifetime=life, resources=HEAD
    )
    try:
        supervisor = made.remote(setup)
        # Ray Client only reports an existing actor of this name here
        access: Access = ray.get(supervisor.access.remote())
    except ValueError as error:
        raise ConflictError(
            f"there is an outbid.ray cluster {name!r} on this Ray cluster already: outbid.ray.attach({name!r}) returns "
            "it, and up(name=...) creates another"
        ) from error
    return Cluster(name, supervisor, access, detached=detached)


def attach(name: str = "outbid") -> Cluster:
    """Return a cluster started with `detached=True`, from any program that is connected to the same Ray cluster."""
    _connect()
    try:
        supervisor = ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        raise NotFoundError(
            f"there is no outbid.ray cluster {name!r} on this Ray cluster: outbid.ray.up(detached=True) starts one"
        ) from None
    return Cluster(name, supervisor, ray.get(supervisor.access.remote()), detached=True)


def _connect() -> None:
    if not ray.is_initialized():
        ray.init()


def _nodes_up(client: Client) -> list[str]:
    from outbid.v1 import event_pb2
    from outbid.v1 import service_pb2 as pb

    nodes = client.rpc.list_nodes(pb.ListNodesRequest()).nodes
    return [node.info.name for node in nodes if node.state == event_pb2.NODE_STATE_UP]


def _written(ca: str) -> str:
    with tempfile.NamedTemporaryFile("w", prefix="outbid-ca-", suffix=".pem", delete=False) as file:
        file.write(ca)
    return file.name
