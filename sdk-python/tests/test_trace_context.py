"""The trace that a program's sweeps belong to, without OpenTelemetry."""

from __future__ import annotations

import os

import pytest

from fake_server import FakeServer
from outbid import rpc
from outbid._core.trace_context import VARIABLE, of_trial, span, trace_headers
from outbid.v1 import service_pb2 as pb

SPAN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(("value", "sent"), [(SPAN, SPAN), ("", ""), ("00-xyz", ""), (SPAN + "\n", ""), ("\xe9", "")])
def test_calls_send_the_span_of_the_environment(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, value: str, sent: str
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    service = rpc.Service(server.url)
    with span("outbid.run"):
        service.list_sweeps(pb.ListSweepsRequest())
    service.close()
    assert server.traceparent == sent
    assert trace_headers() == ([("traceparent", sent)] if sent else [])


def test_each_trial_of_a_process_has_its_own_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "of the process before")
    with of_trial(SPAN):
        assert os.environ[VARIABLE] == SPAN
    with of_trial(""):
        assert VARIABLE not in os.environ
