"""Connection: a connection to a server with results in the SDK's own types."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import urllib.parse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outbid._client.local_server import LocalServer
from outbid._core.errors import CheckpointError, UnavailableError
from outbid._results import checkpoint_info, from_proto, model
from outbid._training.manifest import shard_path
from outbid.rpc import Address, Patience, Service
from outbid.v1 import event_pb2, sweep_pb2
from outbid.v1 import service_pb2 as pb


class Connection:
    """A connection to an Outbid server, used by handles and results. `rpc` makes the calls."""

    def __init__(self, address: Address, token: str | None = None, ca_file: str | None = None) -> None:
        self._address = address
        self.token = token
        self.ca_file = ca_file
        self.rpc = Service(address, token, ca_file)
        """The calls of the server's API."""
        self._submitted: set[str] = set()  # sweeps whose code came from this program
        self.objects: dict[str, Any] = {}
        """The objects in the choices of sweeps that were submitted here, by sweep."""

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
        """The server in words: its URL, and its directory if it is a local server."""
        if isinstance(self._address, LocalServer):
            return f"the server of {self._address.data} ({self.url})"
        return f"the server at {self.url}"

    def page_of(self, sweep: str) -> str:
        """Return the address of a sweep's page in the server's dashboard; "" if the URL is not one for a browser."""
        if not self.url.startswith(("http://", "https://")):
            return ""
        return f"{self.url.rstrip('/')}/ui/sweeps/{urllib.parse.quote(sweep, safe='')}"

    @property
    def data(self) -> Path | None:
        """The directory of a local server; None for a server given by its URL."""
        return self._address.data if isinstance(self._address, LocalServer) else None

    @property
    def passing(self) -> bool:
        """Whether the server ends with the programs that use it: `connect` started it without `keep`."""
        return isinstance(self._address, LocalServer) and self._address.passing

    def hurry(self) -> None:
        """Do not wait for a local server to end when Python exits."""
        if isinstance(self._address, LocalServer):
            self._address.hurry = True

    @property
    def hurried(self) -> bool:
        """Whether `hurry` was called."""
        return isinstance(self._address, LocalServer) and self._address.hurry

    def close(self) -> None:
        """Close the connection.

        A local server that it started ends if no other program uses it, unless `keep` was set.
        """
        self.rpc.close()
        if isinstance(self._address, LocalServer):
            self._address.stop()

    def server(self) -> dict[str, str]:
        """Return information about the server: version, policy with its options, store and so on."""
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
        """Ask what a sweep would do, without starting anything."""
        request = pb.PreviewSweepRequest(spec=spec, step_seconds=step_seconds)
        return self.rpc.preview_sweep(request)

    def put_blob(self, blob: bytes) -> str:
        """Store bytes and return their name, which is their SHA-256 in hex."""
        return self.rpc.put_blob(blob)

    def sweep(self, sweep_id: str) -> model.SweepInfo:
        """Return the current state of a sweep."""
        request = pb.GetSweepRequest(sweep=sweep_id)
        answer = self.rpc.get_sweep(request)
        return from_proto.sweep_info(answer.sweep, self)

    def spec(self, sweep_id: str) -> sweep_pb2.SweepSpec:
        """Return the submitted spec of a sweep."""
        request = pb.GetSweepRequest(sweep=sweep_id)
        return self.rpc.get_sweep(request).sweep.spec

    def trials(self, sweep_id: str) -> list[model.TrialResult]:
        """Return every trial of a sweep, by number."""
        found: list[model.TrialResult] = []
        request = pb.ListTrialsRequest(sweep=sweep_id)
        while True:
            page = self.rpc.list_trials(request)
            found.extend(from_proto.trial_result(trial, self) for trial in page.trials)
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def reports(self, sweep: str, trial: int | None = None) -> list[model.Report]:
        """Return every report of a sweep, or of one trial, oldest first."""
        request = pb.ListReportsRequest(sweep=sweep)
        if trial is not None:
            request.trial = trial
        waiting = Patience()
        while True:
            try:
                return [
                    from_proto.report_info(report)
                    for piece in self.rpc.list_reports(request)
                    for report in piece.reports
                    if report.report.metrics  # others only contain attributes
                ]
            except UnavailableError as error:
                self.rpc.recover(error, waiting)

    def foreign(self, sweep_id: str) -> str | None:
        """Return the tenant that wrote the sweep's checkpoints, or None if it is the caller's tenant.

        On a server without tokens every sweep belongs to the caller. So does a sweep that this program submitted.
        """
        if sweep_id in self._submitted:
            return None
        tenant = self.spec(sweep_id).tenant or "default"
        caller = self.rpc.get_server_info(pb.GetServerInfoRequest()).caller
        return None if caller.local or caller.tenant == tenant else tenant

    def download(self, sweep: str, trial: int, step: int | None, path: Path) -> Path:
        """Write a trial's checkpoint to a file, atomically, and its shards next to it, with their rank added."""
        request = pb.GetCheckpointRequest(sweep=sweep, trial=trial)
        if step is not None:
            request.step = step
        else:
            request.best = True
        path.parent.mkdir(parents=True, exist_ok=True)
        found = self._write(request, path)
        for rank in range(found.shards):
            shard = pb.GetCheckpointRequest(sweep=sweep, trial=trial, step=found.step, shard=rank)
            self._write(shard, shard_path(path, rank))
        return path

    def _write(self, request: pb.GetCheckpointRequest, path: Path) -> event_pb2.Checkpoint:
        """Write one file of a checkpoint, atomically."""
        waiting = Patience()
        while True:
            handle, part = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    found = self._receive(request, file)
                os.replace(part, path)
                return found
            except UnavailableError as error:
                self.rpc.recover(error, waiting)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(part)

    def publish_soup(
        self, sweep: str, file: Path, metric: float | None, ingredients: Iterable[checkpoint_info.Ingredient]
    ) -> checkpoint_info.SoupInfo:
        """Store an average of a sweep's checkpoints with the sweep."""
        soup = event_pb2.Soup(bytes=file.stat().st_size, sha256=_sha256(file), metric=metric)
        for i in ingredients:
            soup.parts.add(trial=i.trial, metric=i.metric, soup=i.soup, kept=i.kept, note=i.note)
        return checkpoint_info.soup_info(self.rpc.put_soup(pb.PutSoupRequest(sweep=sweep, soup=soup), file).soup)

    def fetch_soup(self, sweep: str, number: int, path: Path) -> checkpoint_info.SoupInfo:
        """Write a sweep's stored soup to a file; the newest if `number` is 0."""
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
            return checkpoint_info.soup_info(soup)

    def _receive(self, request: pb.GetCheckpointRequest, file: Any) -> event_pb2.Checkpoint:
        digest, found = hashlib.sha256(), event_pb2.Checkpoint()
        for piece in self.rpc.get_checkpoint(request):
            if piece.HasField("checkpoint"):
                found = piece.checkpoint
            digest.update(piece.data)
            file.write(piece.data)
        expected = found.sha256
        if expected and digest.hexdigest() != expected:
            raise CheckpointError(
                f"the checkpoint of trial {request.sweep}/{request.trial} is damaged: its SHA-256 is "
                f"{digest.hexdigest()} instead of {expected}"
            )
        return found


def _sha256(file: Path) -> str:
    """Return a file's SHA-256 in hex."""
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while data := source.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()
