"""A connection to a server, and what it tells of sweeps, in the SDK's own types."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outbid import _model, _stored
from outbid._errors import CheckpointError, UnavailableError
from outbid._server import LocalServer
from outbid.rpc import Address, Patience, Service
from outbid.v1 import event_pb2, sweep_pb2
from outbid.v1 import service_pb2 as pb


class Connection:
    """A connection to an Outbid server: what handles and results stand on. `rpc` makes the calls."""

    def __init__(self, address: Address, token: str | None = None, ca_file: str | None = None) -> None:
        self._address = address
        self.rpc = Service(address, token, ca_file)
        """The server's calls, one by one."""
        self._submitted: set[str] = set()  # sweeps whose code is this program's
        self.objects: dict[str, Any] = {}
        """What the choices of sweeps that were submitted here stand for, by sweep."""

    @property
    def url(self) -> str:
        """The server's URL."""
        return self.rpc.url

    @property
    def local(self) -> bool:
        """Whether the server is on this machine."""
        return self.rpc.local

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

    @property
    def hurried(self) -> bool:
        """Whether `hurry` was called."""
        return isinstance(self._address, LocalServer) and self._address.hurry

    def close(self) -> None:
        """Close the connection; a server of one's own ends if no other program uses it, unless it is to be kept."""
        self.rpc.close()
        if isinstance(self._address, LocalServer):
            self._address.stop()

    def server(self) -> dict[str, str]:
        """Return what the server says of itself: version, policy and all its options, store and so on."""
        info = self.rpc.get_server_info(pb.GetServerInfoRequest())
        options = " ".join(f"{name}={value}" for name, value in sorted(info.policy_options.items()))
        return {
            "version": info.version,
            "nats": info.nats,
            "store": info.store,
            "policy": info.policy,
            "policy_options": options,
        }

    def preview_spec(self, spec: sweep_pb2.SweepSpec, step_seconds: float = 0.0) -> pb.PreviewSweepResponse:
        """Ask what a sweep would do; nothing is started."""
        request = pb.PreviewSweepRequest(spec=spec, step_seconds=step_seconds)
        return self.rpc.preview_sweep(request)

    def put_blob(self, blob: bytes) -> str:
        """Store bytes; returns their SHA-256 in hex, which is their name."""
        return self.rpc.put_blob(blob)

    def sweep(self, sweep_id: str) -> _model.SweepInfo:
        """Return a sweep as it stands now."""
        request = pb.GetSweepRequest(sweep=sweep_id)
        answer = self.rpc.get_sweep(request)
        return _model.sweep_info(answer.sweep, self)

    def spec(self, sweep_id: str) -> sweep_pb2.SweepSpec:
        """Return what was submitted as a sweep."""
        request = pb.GetSweepRequest(sweep=sweep_id)
        return self.rpc.get_sweep(request).sweep.spec

    def trials(self, sweep_id: str) -> list[_model.TrialResult]:
        """Return every trial of a sweep by number."""
        found: list[_model.TrialResult] = []
        request = pb.ListTrialsRequest(sweep=sweep_id)
        while True:
            page = self.rpc.list_trials(request)
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
                    for piece in self.rpc.list_reports(request)
                    for report in piece.reports
                    if report.report.metrics  # others only note something
                ]
            except UnavailableError as error:
                self.rpc.recover(error, waiting)

    def foreign(self, sweep_id: str) -> str | None:
        """Return the tenant that wrote what a sweep saved, or None if it is the caller's.

        On a server without tokens every sweep is the caller's, and so is one that this program submitted.
        """
        if sweep_id in self._submitted:
            return None
        tenant = self.spec(sweep_id).tenant or "default"
        caller = self.rpc.get_server_info(pb.GetServerInfoRequest()).caller
        return None if caller.local or caller.tenant == tenant else tenant

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
            except UnavailableError as error:
                self.rpc.recover(error, waiting)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(part)

    def publish_soup(
        self, sweep: str, file: Path, metric: float | None, ingredients: Iterable[_stored.Ingredient]
    ) -> _stored.SoupInfo:
        """Have a sweep keep an average of its checkpoints."""
        soup = event_pb2.Soup(bytes=file.stat().st_size, sha256=_sha256(file), metric=metric)
        for i in ingredients:
            soup.parts.add(trial=i.trial, metric=i.metric, soup=i.soup, kept=i.kept, note=i.note)
        return _stored.soup_info(self.rpc.put_soup(pb.PutSoupRequest(sweep=sweep, soup=soup), file).soup)

    def fetch_soup(self, sweep: str, number: int, path: Path) -> _stored.SoupInfo:
        """Write a soup that a sweep keeps to a file, the newest if `number` is 0."""
        waiting = Patience()
        while True:
            digest, soup = hashlib.sha256(), event_pb2.Soup()
            try:
                with path.open("wb") as file:
                    for piece in self.rpc.get_soup(pb.GetSoupRequest(sweep=sweep, number=number)):
                        if piece.HasField("soup"):
                            soup = piece.soup
                        digest.update(piece.data)
                        file.write(piece.data)
            except UnavailableError as error:
                self.rpc.recover(error, waiting)
                continue
            if digest.hexdigest() != soup.sha256:
                raise CheckpointError(
                    f"soup {soup.number} of {sweep} is damaged: its SHA-256 is {digest.hexdigest()} instead of "
                    f"{soup.sha256}"
                )
            return _stored.soup_info(soup)

    def _receive(self, request: pb.GetCheckpointRequest, file: Any) -> None:
        digest, expected = hashlib.sha256(), ""
        for piece in self.rpc.get_checkpoint(request):
            expected = piece.checkpoint.sha256 or expected
            digest.update(piece.data)
            file.write(piece.data)
        if expected and digest.hexdigest() != expected:
            raise CheckpointError(
                f"the checkpoint of trial {request.sweep}/{request.trial} is damaged: its SHA-256 is "
                f"{digest.hexdigest()} instead of {expected}"
            )


def _sha256(file: Path) -> str:
    """Return a file's SHA-256 in hex."""
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while data := source.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()
