"""Service: a typed method for each call of the server's API."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from outbid._core.errors import ServerError
from outbid.rpc._transport import Address, FixedAddress, Patience, Transport
from outbid.v1 import permission_pb2, retention_pb2, tenant_pb2, usage_pb2
from outbid.v1 import service_pb2 as pb

_PIECE = 1 << 20


class Service:
    """The API of one server. Each method is one call; all may be called from any thread.

    `address` is the server's URL, http://host:port or https://host:port, or an `Address` that returns it for each
    connection. `token` is sent with every call. `ca_file` (PEM) is needed if a private authority signed the
    certificate.

    Requests and answers are the messages of `outbid.v1.service_pb2`. Errors are those of the SDK: InvalidError,
    NotFoundError, ConflictError, UnauthenticatedError, UnavailableError, ServerError, and TimeoutError. If a server
    that was reached before becomes unavailable, a call with one answer is retried for at most a minute. A call with a
    stream of answers is not, because only the caller knows where to continue: call `recover` after an UnavailableError.
    """

    def __init__(self, address: Address | str, token: str | None = None, ca_file: str | None = None) -> None:
        self._transport = Transport(FixedAddress(address) if isinstance(address, str) else address, token, ca_file)

    def __repr__(self) -> str:
        return f"<outbid.rpc.Service of {self.url}>"

    @property
    def url(self) -> str:
        """The server's URL."""
        return self._transport.url

    @property
    def local(self) -> bool:
        """Whether the server is on this machine."""
        return self._transport.local

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def recover(self, error: Exception, waiting: Patience) -> None:
        """Wait before a failed call is repeated, or raise its error.

        It only waits for a server that was reached before, and not longer than `waiting` allows.
        """
        self._transport.recover(error, waiting)

    def submit_sweep(self, request: pb.SubmitSweepRequest) -> pb.SubmitSweepResponse:
        """Submit a sweep. If the answer is lost, a request with the same idempotency key returns the same sweep."""
        return self._transport.call(lambda s: s.SubmitSweep, request, pb.SubmitSweepResponse)

    def preview_sweep(self, request: pb.PreviewSweepRequest) -> pb.PreviewSweepResponse:
        """Ask what a sweep would do, without starting anything."""
        return self._transport.call(lambda s: s.PreviewSweep, request, pb.PreviewSweepResponse)

    def list_sweeps(self, request: pb.ListSweepsRequest) -> pb.ListSweepsResponse:
        """Return one page of the sweeps, newest first."""
        return self._transport.call(lambda s: s.ListSweeps, request, pb.ListSweepsResponse)

    def set_secret(self, request: pb.SetSecretRequest) -> pb.SetSecretResponse:
        """Store a secret of a tenant, or replace its value."""
        return self._transport.call(lambda s: s.SetSecret, request, pb.SetSecretResponse)

    def list_secrets(self, request: pb.ListSecretsRequest) -> pb.ListSecretsResponse:
        """Return the names of a tenant's secrets."""
        return self._transport.call(lambda s: s.ListSecrets, request, pb.ListSecretsResponse)

    def delete_secret(self, request: pb.DeleteSecretRequest) -> pb.DeleteSecretResponse:
        """Remove a secret of a tenant."""
        return self._transport.call(lambda s: s.DeleteSecret, request, pb.DeleteSecretResponse)

    def get_sweep(self, request: pb.GetSweepRequest) -> pb.GetSweepResponse:
        """Return the current state of a sweep."""
        return self._transport.call(lambda s: s.GetSweep, request, pb.GetSweepResponse)

    def list_trials(self, request: pb.ListTrialsRequest) -> pb.ListTrialsResponse:
        """Return one page of the trials of a sweep, by number."""
        return self._transport.call(lambda s: s.ListTrials, request, pb.ListTrialsResponse)

    def get_trial(self, request: pb.GetTrialRequest) -> pb.GetTrialResponse:
        """Return the current state of a trial."""
        return self._transport.call(lambda s: s.GetTrial, request, pb.GetTrialResponse)

    def list_reports(self, request: pb.ListReportsRequest) -> Iterator[pb.ListReportsResponse]:
        """Yield the reports of a sweep, or of one trial, oldest first."""
        return self._transport.stream(lambda s: s.ListReports, request, pb.ListReportsResponse)

    def watch_sweep(
        self,
        request: pb.WatchSweepRequest,
        *,
        timeout: float | None = None,
        started: Callable[[Any], None] | None = None,
        idle: Callable[[], float | None] | None = None,
    ) -> Iterator[pb.WatchSweepResponse]:
        """Yield updates of a sweep until it has ended. Raises TimeoutError after `timeout` seconds.

        `started` gets the call, which has a method `cancel`, before anything has come. `idle` is called before news is
        waited for, and again after the seconds that it returns if none has come by then; None waits for the next news.
        """
        return self._transport.stream(
            lambda s: s.WatchSweep, request, pb.WatchSweepResponse, timeout=timeout, started=started, idle=idle
        )

    def read_columns(self, request: pb.ReadColumnsRequest) -> Iterator[pb.ReadColumnsResponse]:
        """Yield the sweep and its trials as columns, in pieces of many trials."""
        return self._transport.stream(lambda s: s.ReadColumns, request, pb.ReadColumnsResponse)

    def control_sweep(self, request: pb.ControlSweepRequest) -> pb.ControlSweepResponse:
        """Pause, resume or stop a sweep."""
        return self._transport.call(lambda s: s.ControlSweep, request, pb.ControlSweepResponse)

    def control_trial(self, request: pb.ControlTrialRequest) -> pb.ControlTrialResponse:
        """Stop one trial, or run a failed one again; its sweep continues."""
        return self._transport.call(lambda s: s.ControlTrial, request, pb.ControlTrialResponse)

    def explain_sweep(self, request: pb.ExplainSweepRequest) -> pb.ExplainSweepResponse:
        """Return why a sweep or a trial has its state, and how it would fare under another policy or weight."""
        return self._transport.call(lambda s: s.ExplainSweep, request, pb.ExplainSweepResponse)

    def forecast_curves(self, request: pb.ForecastCurvesRequest) -> pb.ForecastCurvesResponse:
        """Return quantiles of the metric of unfinished trials at later steps."""
        return self._transport.call(lambda s: s.ForecastCurves, request, pb.ForecastCurvesResponse)

    def simulate_ledger(self, request: pb.SimulateLedgerRequest) -> Iterator[pb.SimulateLedgerResponse]:
        """Yield how the sweeps of a period fared, and how they would fare under other policies."""
        return self._transport.stream(lambda s: s.SimulateLedger, request, pb.SimulateLedgerResponse)

    def extend_sweep(self, request: pb.ExtendSweepRequest) -> pb.ExtendSweepResponse:
        """Raise the limits of a sweep."""
        return self._transport.call(lambda s: s.ExtendSweep, request, pb.ExtendSweepResponse)

    def annotate_sweep(self, request: pb.AnnotateSweepRequest) -> pb.AnnotateSweepResponse:
        """Change the description and the tags of a sweep."""
        return self._transport.call(lambda s: s.AnnotateSweep, request, pb.AnnotateSweepResponse)

    def delete_sweep(self, request: pb.DeleteSweepRequest) -> pb.DeleteSweepResponse:
        """Delete a sweep permanently."""
        return self._transport.call(lambda s: s.DeleteSweep, request, pb.DeleteSweepResponse)

    def stream_logs(self, request: pb.StreamLogsRequest) -> Iterator[pb.StreamLogsResponse]:
        """Yield lines that the trials of a sweep printed."""
        return self._transport.stream(lambda s: s.StreamLogs, request, pb.StreamLogsResponse)

    def list_nodes(self, request: pb.ListNodesRequest) -> pb.ListNodesResponse:
        """Return the nodes that the server knows, and their trials."""
        return self._transport.call(lambda s: s.ListNodes, request, pb.ListNodesResponse)

    def put_blob(self, blob: bytes) -> str:
        """Store bytes and return their name, which is their SHA-256 in hex."""

        def pieces() -> Iterator[pb.PutBlobRequest]:
            for start in range(0, len(blob), _PIECE):
                yield pb.PutBlobRequest(data=blob[start : start + _PIECE])

        answer = self._transport.upload(lambda s: s.PutBlob, pieces, pb.PutBlobResponse)
        if answer.sha256 != hashlib.sha256(blob).hexdigest():
            raise ServerError("the server stored other data than was sent")
        return answer.sha256

    def get_checkpoint(self, request: pb.GetCheckpointRequest) -> Iterator[pb.GetCheckpointResponse]:
        """Yield a checkpoint in pieces; the first piece describes it."""
        return self._transport.stream(lambda s: s.GetCheckpoint, request, pb.GetCheckpointResponse)

    def put_soup(self, request: pb.PutSoupRequest, file: Path) -> pb.PutSoupResponse:
        """Store a soup: `request` has the sweep and the soup's description, `file` the weights."""

        def pieces() -> Iterator[pb.PutSoupRequest]:
            yield request
            with file.open("rb") as source:
                while data := source.read(_PIECE):
                    yield pb.PutSoupRequest(data=data)

        return self._transport.upload(lambda s: s.PutSoup, pieces, pb.PutSoupResponse)

    def get_soup(self, request: pb.GetSoupRequest) -> Iterator[pb.GetSoupResponse]:
        """Yield a soup in pieces; the first piece describes it."""
        return self._transport.stream(lambda s: s.GetSoup, request, pb.GetSoupResponse)

    def ask_trial(self, request: pb.AskTrialRequest) -> pb.AskTrialResponse:
        """Ask for a trial to train in your own loop."""
        return self._transport.call(lambda s: s.AskTrial, request, pb.AskTrialResponse)

    def tell_trial(self, request: pb.TellTrialRequest) -> pb.TellTrialResponse:
        """Report measurements of such a trial."""
        return self._transport.call(lambda s: s.TellTrial, request, pb.TellTrialResponse)

    def read_ledger(self, request: pb.ReadLedgerRequest) -> Iterator[pb.ReadLedgerResponse]:
        """Yield batches of the ledger. Needs an admin token."""
        return self._transport.stream(lambda s: s.ReadLedger, request, pb.ReadLedgerResponse)

    def get_round(self, request: pb.GetRoundRequest) -> pb.GetRoundResponse:
        """Return one round of the policy."""
        return self._transport.call(lambda s: s.GetRound, request, pb.GetRoundResponse)

    def create_token(self, request: pb.CreateTokenRequest) -> pb.CreateTokenResponse:
        """Create an API token and return it, once."""
        return self._transport.call(lambda s: s.CreateToken, request, pb.CreateTokenResponse)

    def list_tokens(self, request: pb.ListTokensRequest) -> pb.ListTokensResponse:
        """Return the API tokens, without the tokens."""
        return self._transport.call(lambda s: s.ListTokens, request, pb.ListTokensResponse)

    def rotate_token(self, request: pb.RotateTokenRequest) -> pb.RotateTokenResponse:
        """Replace an API token by another and return it, once."""
        return self._transport.call(lambda s: s.RotateToken, request, pb.RotateTokenResponse)

    def revoke_token(self, request: pb.RevokeTokenRequest) -> pb.RevokeTokenResponse:
        """Remove an API token at once."""
        return self._transport.call(lambda s: s.RevokeToken, request, pb.RevokeTokenResponse)

    def list_audit(self, request: pb.ListAuditRequest) -> pb.ListAuditResponse:
        """Return records of the audit, oldest first."""
        return self._transport.call(lambda s: s.ListAudit, request, pb.ListAuditResponse)

    def get_prices(self, request: pb.GetPricesRequest) -> pb.GetPricesResponse:
        """Return the prices of devices in coming slots, under a policy that has prices."""
        return self._transport.call(lambda s: s.GetPrices, request, pb.GetPricesResponse)

    def run_retention(self, request: retention_pb2.RunRetentionRequest) -> retention_pb2.RunRetentionResponse:
        """Delete the sweeps that ended longer ago than their tenant keeps them, or list them in a dry run."""
        return self._transport.call(lambda s: s.RunRetention, request, retention_pb2.RunRetentionResponse)

    def check_access(self, request: permission_pb2.CheckAccessRequest) -> permission_pb2.CheckAccessResponse:
        """Return whether the caller may make a call, and the role or scope that allows it or is missing."""
        return self._transport.call(lambda s: s.CheckAccess, request, permission_pb2.CheckAccessResponse)

    def get_usage(self, request: usage_pb2.GetUsageRequest) -> usage_pb2.GetUsageResponse:
        """Return the device time of leases in a period, and its cost."""
        return self._transport.call(lambda s: s.GetUsage, request, usage_pb2.GetUsageResponse)

    def list_rounds(self, request: pb.ListRoundsRequest) -> pb.ListRoundsResponse:
        """Return the newest rounds of the policy."""
        return self._transport.call(lambda s: s.ListRounds, request, pb.ListRoundsResponse)

    def new_worker_token(self, request: pb.NewWorkerTokenRequest) -> pb.NewWorkerTokenResponse:
        """Create a token for one worker to join. Needs an admin token."""
        return self._transport.call(lambda s: s.NewWorkerToken, request, pb.NewWorkerTokenResponse)

    def join_worker(self, request: pb.JoinWorkerRequest) -> pb.JoinWorkerResponse:
        """Add a worker to the cluster."""
        return self._transport.call(lambda s: s.JoinWorker, request, pb.JoinWorkerResponse)

    def remove_worker(self, request: pb.RemoveWorkerRequest) -> pb.RemoveWorkerResponse:
        """Remove a worker from the cluster. Needs an admin token."""
        return self._transport.call(lambda s: s.RemoveWorker, request, pb.RemoveWorkerResponse)

    def control_node(self, request: pb.ControlNodeRequest) -> pb.ControlNodeResponse:
        """Cordon, drain or open a node. Needs an admin token."""
        return self._transport.call(lambda s: s.ControlNode, request, pb.ControlNodeResponse)

    def set_tenant(self, request: tenant_pb2.SetTenantRequest) -> tenant_pb2.SetTenantResponse:
        """Add or change a tenant. Needs an admin token."""
        return self._transport.call(lambda s: s.SetTenant, request, tenant_pb2.SetTenantResponse)

    def get_tenant(self, request: tenant_pb2.GetTenantRequest) -> tenant_pb2.GetTenantResponse:
        """Return a tenant's limits and usage."""
        return self._transport.call(lambda s: s.GetTenant, request, tenant_pb2.GetTenantResponse)

    def list_tenants(self, request: tenant_pb2.ListTenantsRequest) -> tenant_pb2.ListTenantsResponse:
        """Return the tenants for which the caller may act."""
        return self._transport.call(lambda s: s.ListTenants, request, tenant_pb2.ListTenantsResponse)

    def remove_tenant(self, request: tenant_pb2.RemoveTenantRequest) -> tenant_pb2.RemoveTenantResponse:
        """Delete the settings of a tenant. Needs an admin token."""
        return self._transport.call(lambda s: s.RemoveTenant, request, tenant_pb2.RemoveTenantResponse)

    def get_server_info(self, request: pb.GetServerInfoRequest) -> pb.GetServerInfoResponse:
        """Return information about the server."""
        return self._transport.call(lambda s: s.GetServerInfo, request, pb.GetServerInfoResponse)
