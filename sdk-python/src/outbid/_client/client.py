"""Client: a connection to a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType

from outbid._client import programs, tenant, usage, whatif
from outbid._client.connection import Connection
from outbid._client.handle import SweepHandle
from outbid._client.local_server import DATA, LocalServer
from outbid._client.secrets import Secrets
from outbid._core import validation
from outbid._core.errors import NotFoundError
from outbid._core.user_warning import warn_user
from outbid._results import from_proto, model
from outbid._results.result import Result
from outbid.rpc import FixedAddress
from outbid.v1 import service_pb2 as pb
from outbid.v1 import sweep_pb2, tenant_pb2

_default: Client | None = None


class Client(Connection):
    """A connection to an Outbid server, made by `connect`. Every method may be called from any thread.

    `client.rpc` makes single calls of the API: see `outbid.rpc`.
    """

    def __repr__(self) -> str:
        return f"<outbid.Client of {self.url}>"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection.

        A local server that it started ends if no other program uses it, unless `keep` was set.
        """
        global _default
        if _default is self:
            _default = None
        super().close()

    def sweeps(self, *, tenant: str = "") -> list[model.SweepInfo]:
        """Return every sweep, or those of `tenant`, newest first."""
        found: list[model.SweepInfo] = []
        request = pb.ListSweepsRequest(tenant=tenant)
        while True:
            page = self.rpc.list_sweeps(request)
            found.extend(from_proto.sweep_info(sweep, self) for sweep in page.sweeps)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def tenants(self) -> list[tenant.Tenant]:
        """Return the tenants for which the caller may act, by name, with their limits and usage."""
        found = self.rpc.list_tenants(tenant_pb2.ListTenantsRequest()).tenants
        return [tenant.tenant(state) for state in found]

    def usage(
        self,
        *by: str,
        since: datetime | None = None,
        until: datetime | None = None,
        prices: Mapping[str, float] | None = None,
    ) -> usage.Usage:
        """Return the device time of leases in a period, and its cost.

        `by` names the columns: "tenant", "user", "type" (of devices) or "label.NAME". Without times the period is the
        whole ledger up to now; a time without a zone is UTC. `prices` are those of a device for an hour by device type,
        "*" for other types, instead of those of the server.
        """
        return usage.usage(self.rpc.get_usage(usage.request(by, since, until, prices)))

    def what_if(
        self,
        *policies: str,
        sweep: str = "",
        weight: float | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[whatif.SimulatedRun]:
        """Simulate what other policies, or another weight of a sweep, would have done.

        The first run is what happened, the next the server's own policy; compare the others with that one. The server
        simulates the sweeps that were submitted in the period for at most a minute, and for one caller at a time.
        """
        return whatif.runs(self.rpc.simulate_ledger(whatif.request(policies, sweep, weight, since, until)))

    @property
    def secrets(self) -> Secrets:
        """The secrets of the caller's tenant, or of another tenant for which the caller may act."""
        return Secrets(self.rpc)

    def attach(self, sweep: str) -> SweepHandle:
        """Return the handle of an existing sweep: "digits-1", or "digits" for the newest with that name.

        Raises NotFoundError if the sweep does not exist; the error says where it was looked for.
        """
        validation.text("attach: sweep", sweep, 'the id of a sweep, such as "digits-1"')
        try:
            return self._attached(self.sweep(sweep).id)
        except NotFoundError:
            pass
        there = self.sweeps()
        for found in there:
            if found.name == sweep:
                return self._attached(found.id)
        names = ", ".join(found.id for found in there[:10]) + (", ..." if len(there) > 10 else "")
        raise NotFoundError(
            f"there is no sweep {sweep!r} on {self.where}, which has {names or 'no sweeps'}; for another server, "
            "ob.connect(url) or ob.connect(data=directory) first"
        )

    def _attached(self, sweep: str) -> SweepHandle:
        programs.hold(self, sweep, new=False)
        return SweepHandle(self, sweep)

    def submit_spec(self, spec: sweep_pb2.SweepSpec) -> SweepHandle:
        """Submit a sweep given as the API's message."""
        # If the answer is lost, the same key makes the retry return the same sweep.
        request = pb.SubmitSweepRequest(spec=spec, idempotency_key=os.urandom(16).hex())
        answer = self.rpc.submit_sweep(request)
        self._submitted.add(answer.sweep.id)
        for warning in answer.warnings:
            warn_user(warning)
        return SweepHandle(self, answer.sweep.id)


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    ca_file: str | None = None,
    data: str | os.PathLike[str] = DATA,
    keep: bool = False,
) -> Client:
    """Connect to a server and make it the default one.

    `url` is http://host:port, or https://host:port for TLS. `ca_file` (PEM) is needed if a private authority signed the
    certificate. The default of `url` is OUTBID_URL, and without that the server of the directory `data` on this
    machine, which is started if it is not running. Such a server saves its trials and ends when the last program that
    uses it has ended, even if that was killed. With `keep` it runs until it is stopped. The default of `token` is
    OUTBID_TOKEN, and without that the sign-in of `outbid login`.

    Raises UnavailableError if the server does not answer, UnauthenticatedError if it refuses the token.
    """
    global _default
    url = url or os.environ.get("OUTBID_URL")
    address = FixedAddress(url) if url else LocalServer(data, keep=keep)
    client = Client(
        address,
        token or os.environ.get("OUTBID_TOKEN"),
        ca_file or os.environ.get("OUTBID_CA_FILE"),
    )
    try:
        client.server()
    except BaseException:
        client.close()
        raise
    _default = client
    return client


def default_client() -> Client:
    """Return the client of the latest `connect`, or connect to OUTBID_URL or a local server."""
    return _default if _default is not None else connect()


def load(sweep: str) -> Result:
    """Return the current result of an existing sweep: "digits-1", or "digits" for the newest with that name.

    It is looked for like in `attach`: after `connect(url)` or with OUTBID_URL, from any machine.
    """
    return attach(sweep).result()


def attach(sweep: str) -> SweepHandle:
    """Return the handle of an existing sweep: "digits-1", or "digits" for the newest with that name.

    It is looked for on the server of the latest `connect`, on that of OUTBID_URL, or in ./.outbid, whose server is
    started if it is not running. Raises NotFoundError, which says where it looked.
    """
    if _default is None and not os.environ.get("OUTBID_URL") and not Path(DATA).is_dir():
        raise NotFoundError(
            f"there is no sweep {sweep!r}: looked in {Path(DATA).resolve()}, which does not exist; say where it is "
            "with ob.connect(data=directory), or ob.connect(url) or OUTBID_URL for a server"
        )
    return default_client().attach(sweep)
