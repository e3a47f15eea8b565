"""Ask and tell: train the trials of a sweep in your own loop, on any machine."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outbid._client.connection import Connection
from outbid._core.errors import as_text
from outbid._core.limits import check_report
from outbid._training.config import Config, parse_config
from outbid._training.metrics import metric_values
from outbid._training.notes import encode
from outbid.v1 import event_pb2
from outbid.v1 import service_pb2 as pb

_ERROR = 4_000  # maximum characters of an error that are sent; the server shows the beginning


@dataclass
class AskedTrial:
    """A trial to train from `step` until `until_step` (0: until you are done)."""

    number: int
    config: Config
    step: int
    until_step: int
    sweep: str
    lease_id: int
    seq: int = 0

    @property
    def id(self) -> str:
        """The trial's name, such as "digits-1/17"."""
        return f"{self.sweep}/{self.number}"


class AskTell:
    """The ask and tell methods of a sweep's handle. The sweep must not have a function or a program."""

    def __init__(self, client: Connection, sweep_id: str) -> None:
        self._client = client
        self._sweep_id = sweep_id
        self._metric = ""
        self._name = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"

    def ask(self, timeout: float | None = None) -> AskedTrial | None:
        """Return a trial to train, or None if there will not be another.

        While the tuner waits for results of other trials, the call waits. Raises TimeoutError
        after `timeout` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        pause = 0.02
        while True:
            request = pb.AskTrialRequest(sweep=self._sweep_id, client=self._name)
            answer = self._client.rpc.ask_trial(request)
            if answer.HasField("trial"):
                trial = answer.trial
                config = parse_config(trial.config_json)
                if objects := self._client.objects.get(self._sweep_id):
                    objects.put_back(config)
                return AskedTrial(
                    number=trial.number,
                    config=config,
                    step=trial.step,
                    until_step=trial.until_step,
                    sweep=trial.sweep or self._sweep_id,
                    lease_id=answer.lease_id,
                )
            if answer.exhausted:
                return None
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"sweep {self._sweep_id} had no trial to train within {timeout:g} s")
            time.sleep(pause)
            pause = min(1.5 * pause, 1.0)

    def tell(
        self,
        trial: AskedTrial,
        metrics: float | Mapping[str, Any] | None = None,
        *,
        step: int | None = None,
        finished: bool | None = None,
        error: str = "",
        notes: Mapping[str, Any] | None = None,
    ) -> bool:
        """Report measurements of a trial; returns whether to train it further, until `trial.until_step`.

        `metrics` is a dict, or only the value of the sweep's metric. `step` is the number of steps done; the default is
        `until_step`. Reporting `until_step` or later finishes the trial unless the tuner wants it to continue. So does
        `finished=True`, and any call for a trial without `until_step` and without `step`. `error` is the reason that
        the trial failed, in one line. `notes` are facts about the trial, like those of `Trial.note`.

        If the result is False, ask for another trial. It is also False if the trial was given to another caller because
        it was not told about for `ask_timeout`; then the report does not count.
        """
        at_end = step is None
        step = (trial.until_step or trial.step + 1) if step is None else step
        if finished is None:
            finished = bool(error) or (step >= trial.until_step if trial.until_step else at_end)
        request = pb.TellTrialRequest(
            sweep=self._sweep_id,
            trial=trial.number,
            lease_id=trial.lease_id,
            finished=finished,
            error=as_text(error)[:_ERROR],
        )
        if metrics is None and not finished:
            raise TypeError("tell: give metrics, finished=True or error")
        if metrics is not None or notes:
            report = event_pb2.Report(step=step, attributes=encode("tell", notes or {}))
            if metrics is not None:
                named = metrics if isinstance(metrics, Mapping) else {self._metric_name(): metrics}
                report.metrics.update(metric_values("tell", named))
            check_report("tell", report)
            trial.seq += 1
            report.seq = trial.seq
            report.time.GetCurrentTime()
            request.reports.append(report)
        answer = self._client.rpc.tell_trial(request)
        trial.step = step
        if answer.go_on:
            trial.until_step = answer.trial.until_step
        return answer.go_on

    def _metric_name(self) -> str:
        if not self._metric:
            self._metric = self._client.spec(self._sweep_id).metric
        return self._metric
