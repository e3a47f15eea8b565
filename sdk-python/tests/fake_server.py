"""A server for tests, which answers OutbidService from memory."""

from __future__ import annotations

import hashlib
import queue
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc

from outbid.v1 import event_pb2
from outbid.v1 import service_pb2 as pb
from outbid.v1 import service_pb2_grpc as service

TRAINED = b"the bytes of a checkpoint"


def make_trial(number: int, state: str = "completed", **fields: Any) -> pb.Trial:
    trial = pb.Trial(sweep="s-1", number=number, config_json=f'{{"lr":{number}.5,"units":{number}}}', **fields)
    trial.state = event_pb2.TrialState.Value(f"TRIAL_STATE_{state.upper()}")
    return trial


def make_report(trial: int, step: int, **metrics: float) -> pb.TrialReport:
    return pb.TrialReport(trial=trial, report=event_pb2.Report(step=step, metrics=metrics, train_seconds=step / 10))


class FakeServer(service.OutbidServiceServicer):
    """The service, and the gRPC server that serves it."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.sweep = pb.Sweep(id="s-1", state=event_pb2.SWEEP_STATE_RUNNING)
        self.trials: dict[int, pb.Trial] = {}
        self.told_reports: list[pb.TrialReport] = []
        self.requests: list[Any] = []
        self.traceparent = ""
        self.blobs: dict[str, bytes] = {}
        self.checkpoint = TRAINED
        self.sha256 = hashlib.sha256(TRAINED).hexdigest()
        self.page = 2
        self.caller = pb.Caller(name="local", tenant="*", role="admin", local=True)
        self.secrets: dict[tuple[str, str], str] = {}
        self.warnings: list[str] = []
        self.news: queue.SimpleQueue[pb.WatchSweepResponse | grpc.StatusCode | None] = queue.SimpleQueue()
        self.trained_again: list[pb.TrainedAgain] = []
        self.soups: list[tuple[event_pb2.Soup, bytes]] = []
        self.asks: queue.SimpleQueue[pb.AskTrialResponse] = queue.SimpleQueue()
        self.tells: queue.SimpleQueue[pb.TellTrialResponse] = queue.SimpleQueue()
        self.fail: list[tuple[grpc.StatusCode, str]] = []  # errors of the next calls
        self.retry_after_ms: list[int] = []
        self._pool = futures.ThreadPoolExecutor(8)
        self._server = grpc.server(self._pool)
        service.add_OutbidServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self.url = f"http://127.0.0.1:{self.port}"
        self._server.start()

    def close(self) -> None:
        self.news.put(None)
        self._server.stop(None).wait(30)
        self._pool.shutdown()

    def tell_news(self, *trials: pb.Trial, reports: list[pb.TrialReport] | None = None, ended: bool = False) -> None:
        """Send an update to all watchers."""
        self.trials.update({trial.number: trial for trial in trials})
        if ended:
            self.sweep.state = event_pb2.SWEEP_STATE_DONE
        news = pb.WatchSweepResponse(trials=trials, reports=reports or [])
        news.sweep.CopyFrom(self.sweep)
        self.news.put(news)
        if ended:
            self.news.put(None)

    def _take(self, request: Any, context: Any) -> None:
        sent = dict(context.invocation_metadata())
        given, self.traceparent = sent.get("authorization", ""), sent.get("traceparent", "")
        if self.token and given != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is wrong")
        self.requests.append(request)
        if self.fail:
            if self.retry_after_ms:
                context.set_trailing_metadata([("retry-after-ms", str(self.retry_after_ms.pop(0)))])
            context.abort(*self.fail.pop(0))

    def GetServerInfo(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.GetServerInfoResponse(
            version="1.2.3",
            policy="themis",
            policy_options={"seed": "1", "lease": "10m0s"},
            caller=self.caller,
        )

    def SetSecret(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        self.secrets[request.tenant or "default", request.name] = request.value
        return pb.SetSecretResponse(
            secret=pb.Secret(tenant=request.tenant or "default", name=request.name, set_by="me")
        )

    def ListSecrets(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        tenant = request.tenant or "default"
        return pb.ListSecretsResponse(secrets=[pb.Secret(tenant=t, name=n) for t, n in self.secrets if t == tenant])

    def DeleteSecret(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        if self.secrets.pop((request.tenant or "default", request.name), None) is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "there is no such secret")
        return pb.DeleteSecretResponse()

    def PutBlob(self, request_iterator: Any, context: Any) -> Any:
        blob = b"".join(piece.data for piece in request_iterator)
        self._take(pb.PutBlobRequest(), context)
        self.blobs[hashlib.sha256(blob).hexdigest()] = blob
        return pb.PutBlobResponse(sha256=hashlib.sha256(blob).hexdigest())

    def SubmitSweep(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        self.sweep.spec.CopyFrom(request.spec)
        return pb.SubmitSweepResponse(sweep=self.sweep, warnings=self.warnings)

    def PreviewSweep(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        answer = pb.PreviewSweepResponse(device_hours=request.step_seconds, warnings=["no node has a v100"])
        answer.outlook.trials, answer.outlook.steps = 9, 27
        answer.outlook.rungs.add(bracket=0, until_step=1, trials=9, steps=9)
        answer.examples.add().update({"lr": 0.5, "layers": 3, "sizes": [1, {"b": 2}]})
        return answer

    def ListSweeps(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.ListSweepsResponse(sweeps=[self.sweep])

    def GetSweep(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        if request.sweep != self.sweep.id:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no sweep {request.sweep}")
        return pb.GetSweepResponse(sweep=self.sweep)

    def ListTrials(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        start = int(request.page_token or 0)
        numbers = sorted(self.trials)
        page = [self.trials[n] for n in numbers[start : start + self.page]]
        rest = str(start + self.page) if start + self.page < len(numbers) else ""
        return pb.ListTrialsResponse(trials=page, next_page_token=rest)

    def ListReports(self, request: Any, context: Any) -> Iterator[Any]:
        self._take(request, context)
        for report in self.told_reports:
            if not request.HasField("trial") or report.trial == request.trial:
                yield pb.ListReportsResponse(reports=[report])

    def WatchSweep(self, request: Any, context: Any) -> Iterator[Any]:
        self._take(request, context)
        while (news := self.news.get()) is not None:
            if isinstance(news, grpc.StatusCode):
                context.abort(news, "the server is going down")
            yield news

    def ReadColumns(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    def ControlSweep(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.ControlSweepResponse(sweep=self.sweep)

    def ControlTrial(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.ControlTrialResponse()

    def CreateToken(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.CreateTokenResponse()

    def ListAudit(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.ListAuditResponse()

    def ListTokens(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.ListTokensResponse()

    def RevokeToken(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.RevokeTokenResponse()

    def RotateToken(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.RotateTokenResponse()

    def ExplainSweep(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.ExplainSweepResponse(why="It waits.", lost="It lost nothing.", otherwise="No policy differs.")

    def ExtendSweep(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.ExtendSweepResponse(sweep=self.sweep, trained_again=self.trained_again)

    def AnnotateSweep(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.AnnotateSweepResponse(sweep=self.sweep)

    def SimulateLedger(self, request: Any, context: Any) -> Iterator[Any]:
        self._take(request, context)
        yield pb.SimulateLedgerResponse(progress=pb.SimulationProgress(waiting=True))
        for policy in ("", *request.policies):
            sweep = pb.SimulatedSweep(sweep="s-1", seconds=9, device_seconds=18)
            yield pb.SimulateLedgerResponse(run=pb.SimulatedRun(policy=policy, sweeps=[sweep]))

    def DeleteSweep(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return pb.DeleteSweepResponse()

    def StreamLogs(self, request: Any, context: Any) -> Iterator[Any]:
        self._take(request, context)
        yield pb.StreamLogsResponse(trial=0, node="a", stream="stdout", line="hello")
        yield pb.StreamLogsResponse(trial=1, node="b", stream="stderr", line="trouble")

    def GetCheckpoint(self, request: Any, context: Any) -> Iterator[Any]:
        self._take(request, context)
        if request.HasField("step") and request.step == 99:
            context.abort(grpc.StatusCode.NOT_FOUND, "no checkpoint of step 99")
        head = event_pb2.Checkpoint(step=3, sha256=self.sha256)
        half = len(self.checkpoint) // 2
        yield pb.GetCheckpointResponse(checkpoint=head, data=self.checkpoint[:half])
        yield pb.GetCheckpointResponse(data=self.checkpoint[half:])

    def PutSoup(self, request_iterator: Any, context: Any) -> Any:
        pieces = list(request_iterator)
        self._take(pieces[0], context)
        self.soups.append((pieces[0].soup, b"".join(piece.data for piece in pieces)))
        pieces[0].soup.number = len(self.soups)
        return pb.PutSoupResponse(soup=pieces[0].soup)

    def GetSoup(self, request: Any, context: Any) -> Iterator[Any]:
        self._take(request, context)
        if not self.soups:
            context.abort(grpc.StatusCode.NOT_FOUND, "sweep s-1 keeps no soup")
        soup, data = self.soups[request.number - 1]
        yield pb.GetSoupResponse(soup=soup, data=data[:7])
        yield pb.GetSoupResponse(data=data[7:])

    def AskTrial(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return self.asks.get(timeout=30)

    def TellTrial(self, request: Any, context: Any) -> Any:
        self._take(request, context)
        return self.tells.get(timeout=30)

    def GetTrial(self, request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "the SDK does not use this")

    JoinWorker = NewWorkerToken = RemoveWorker = ListNodes = ReadLedger = GetPrices = GetRound = ListRounds = GetTrial
    ControlNode = SetTenant = GetTenant = ListTenants = RemoveTenant = GetUsage = CheckAccess = RunRetention = GetTrial
    ForecastCurves = GetTrial

    def last(self, kind: type[Any]) -> Any:
        """Return the newest request of a type."""
        return next(request for request in reversed(self.requests) if isinstance(request, kind))


__all__ = ["TRAINED", "FakeServer", "make_report", "make_trial"]
