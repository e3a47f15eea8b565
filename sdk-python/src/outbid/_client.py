"""The client: a connection to a server, and what can be asked of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import grpc

from outbid import _model
from outbid._errors import CheckpointError, NotFoundError, ServerError
from outbid._server import LocalServer
from outbid._transport import Address, FixedAddress, Patience, Transport
from outbid.v1 import service_pb2 as pb
from outbid.v1 import sweep_pb2

if TYPE_CHECKING:
    from outbid._handle import SweepHandle

_PIECE = 1 << 20

DATA = ".outbid"
"""The directory of a server of one's own, unless another is named."""

_default: Client | None = None


class Client:
    """A connection to an Outbid server. Made by `connect`; every method may be called from any thread."""

    def __init__(self, address: Address, token: str | None = None, ca_file: str | None = None) -> None:
        self._address = address
        self._transport = Transport(address, token, ca_file)

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

    @property
    def url(self) -> str:
        """The server's URL."""
        return self._transport.url

    @property
    def local(self) -> bool:
        """Whether the server is on this machine."""
        return self._transport.local

    @property
    def where(self) -> str:
        """The server, for people: its URL, and its directory if it is a server of one's own."""
        if isinstance(self._address, LocalServer):
            return f"the server of {self._address.data} ({self.url})"
        return f"the server at {self.url}"

    @property
    def data(self) -> Path | None:
        """The directory of a server of one's own; None for one that was named by its URL."""
        return self._address.data if isinstance(self._address, LocalServer) else None

    @property
    def passing(self) -> bool:
        """Whether the server ends with the programs that use it, as one that `connect` started without `keep`."""
        return isinstance(self._address, LocalServer) and self._address.passing

    def hurry(self) -> None:
        """Do not wait, when Python ends, for a server of one's own to end."""
        if isinstance(self._address, LocalServer):
            self._address.hurry = True

    def close(self) -> None:
        """Close the connection; a server of one's own ends if no other program uses it, unless it is to be kept."""
        global _default
        if _default is self:
            _default = None
        self._transport.close()
        if isinstance(self._address, LocalServer):
            self._address.stop()

    def server(self) -> dict[str, str]:
        """Return what the server says of itself: version, policy and all its options, store and so on."""
        info = self._transport.call(lambda s: s.GetServerInfo, pb.GetServerInfoRequest(), pb.GetServerInfoResponse)
        options = " ".join(f"{name}={value}" for name, value in sorted(info.policy_options.items()))
        return {
            "version": info.version,
            "nats": info.nats,
            "store": info.store,
            "policy": info.policy,
            "policy_options": options,
        }

    def sweeps(self, *, tenant: str = "") -> list[_model.SweepInfo]:
        """Return every sweep, newest first; only `tenant`'s if it is given."""
        found: list[_model.SweepInfo] = []
        request = pb.ListSweepsRequest(tenant=tenant)
        while True:
            page = self._transport.call(lambda s: s.ListSweeps, request, pb.ListSweepsResponse)
            found.extend(_model.sweep_info(sweep, self) for sweep in page.sweeps)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def attach(self, sweep: str) -> SweepHandle:
        """Return the handle of a sweep that is there: "digits-1", or "digits" for the newest of that name.

        Raises NotFoundError, which says where it looked, if there is none.
        """
        from outbid._handle import SweepHandle

        try:
            return SweepHandle(self, self.sweep(sweep).id)
        except NotFoundError:
            pass
        there = self.sweeps()
        for found in there:
            if found.name == sweep:
                return SweepHandle(self, found.id)
        names = ", ".join(found.id for found in there[:10]) + (", ..." if len(there) > 10 else "")
        raise NotFoundError(
            f"there is no sweep {sweep!r} on {self.where}, which has {names or 'no sweeps'}; for another server, "
            "ob.connect(url) or ob.connect(data=directory) first"
        )

    def submit_spec(self, spec: sweep_pb2.SweepSpec) -> SweepHandle:
        """Submit a sweep given as the API's message."""
        from outbid._handle import SweepHandle

        # The same key again, after a lost answer, returns the same sweep.
        request = pb.SubmitSweepRequest(spec=spec, idempotency_key=os.urandom(16).hex())
        answer = self._transport.call(lambda s: s.SubmitSweep, request, pb.SubmitSweepResponse)
        return SweepHandle(self, answer.sweep.id)

    def preview_spec(self, spec: sweep_pb2.SweepSpec, step_seconds: float = 0.0) -> pb.PreviewSweepResponse:
        """Ask what a sweep would do; nothing is started."""
        request = pb.PreviewSweepRequest(spec=spec, step_seconds=step_seconds)
        return self._transport.call(lambda s: s.PreviewSweep, request, pb.PreviewSweepResponse)

    def put_blob(self, blob: bytes) -> str:
        """Store bytes; returns their SHA-256 in hex, which is their name."""

        def pieces() -> Iterator[pb.PutBlobRequest]:
            for start in range(0, len(blob), _PIECE):
                yield pb.PutBlobRequest(data=blob[start : start + _PIECE])

        answer = self._transport.upload(lambda s: s.PutBlob, pieces, pb.PutBlobResponse)
        if answer.sha256 != hashlib.sha256(blob).hexdigest():
            raise ServerError("the server stored something else than the function that was sent")
        return answer.sha256

    def sweep(self, sweep_id: str) -> _model.SweepInfo:
        """Return a sweep as it stands now."""
        request = pb.GetSweepRequest(sweep=sweep_id)
        answer = self._transport.call(lambda s: s.GetSweep, request, pb.GetSweepResponse)
        return _model.sweep_info(answer.sweep, self)

    def spec(self, sweep_id: str) -> sweep_pb2.SweepSpec:
        """Return what was submitted as a sweep."""
        request = pb.GetSweepRequest(sweep=sweep_id)
        return self._transport.call(lambda s: s.GetSweep, request, pb.GetSweepResponse).sweep.spec

    def trials(self, sweep_id: str) -> list[_model.TrialResult]:
        """Return every trial of a sweep by number."""
        found: list[_model.TrialResult] = []
        request = pb.ListTrialsRequest(sweep=sweep_id)
        while True:
            page = self._transport.call(lambda s: s.ListTrials, request, pb.ListTrialsResponse)
            found.extend(_model.trial_result(trial, self) for trial in page.trials)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def reports(self, sweep: str, trial: int | None = None) -> list[_model.Report]:
        """Return every report of a sweep, or of one trial, oldest first."""
        request = pb.ListReportsRequest(sweep=sweep)
        if trial is not None:
            request.trial = trial
        waiting = Patience()
        while True:
            try:
                return [
                    _model.report_info(report)
                    for piece in self._transport.stream(lambda s: s.ListReports, request, pb.ListReportsResponse)
                    for report in piece.reports
                ]
            except grpc.RpcError as error:
                self._transport.recover(error, waiting)

    def download(self, sweep: str, trial: int, step: int | None, path: Path) -> Path:
        """Write a trial's checkpoint to a file, whole or not at all."""
        request = pb.GetCheckpointRequest(sweep=sweep, trial=trial)
        if step is not None:
            request.step = step
        else:
            request.best = True
        waiting = Patience()
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            handle, part = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    self._receive(request, file)
                os.replace(part, path)
                return path
            except grpc.RpcError as error:
                self._transport.recover(error, waiting)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(part)

    def _receive(self, request: pb.GetCheckpointRequest, file: Any) -> None:
        digest, expected = hashlib.sha256(), ""
        for piece in self._transport.stream(lambda s: s.GetCheckpoint, request, pb.GetCheckpointResponse):
            expected = piece.checkpoint.sha256 or expected
            digest.update(piece.data)
            file.write(piece.data)
        if expected and digest.hexdigest() != expected:
            raise CheckpointError(
                f"the checkpoint of trial {request.sweep}/{request.trial} is damaged: its SHA-256 is "
                f"{digest.hexdigest()} instead of {expected}"
            )


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    ca_file: str | None = None,
    data: str | os.PathLike[str] = DATA,
    keep: bool = False,
) -> Client:
    """Connect to a server, which is used from then on wherever none is named.

    `url` is http://host:port, or https://host:port for TLS, with `ca_file` (PEM) if the certificate is signed
    by an authority of your own. Left out, it is OUTBID_URL; without that, the server of the directory `data`
    on this machine, which is started if it does not run. It ends, saving its trials, when the last program that
    uses it so has ended, even if that was killed; with `keep` it stays until somebody stops it.
    `token` is OUTBID_TOKEN if left out.

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
    """Return the client that `connect` made last, or connect to OUTBID_URL or to a server of one's own."""
    return _default if _default is not None else connect()


def attach(sweep: str) -> SweepHandle:
    """Return the handle of a sweep that is there: "digits-1", or "digits" for the newest of that name.

    It is looked for on the server that `connect` made last, on that of OUTBID_URL, or in ./.outbid, whose server is
    started again if it does not run. Raises NotFoundError, which says where it looked.
    """
    if _default is None and not os.environ.get("OUTBID_URL") and not Path(DATA).is_dir():
        raise NotFoundError(
            f"there is no sweep {sweep!r}: looked in {Path(DATA).resolve()}, which does not exist; say where it is "
            "with ob.connect(data=directory), or ob.connect(url) or OUTBID_URL for a server"
        )
    return default_client().attach(sweep)
