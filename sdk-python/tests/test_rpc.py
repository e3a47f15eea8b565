"""The RPC layer: every call of the API, its errors and its retries."""

from __future__ import annotations

import inspect
import re
import typing

import grpc
import pytest

import outbid as ob
from fake_server import FakeServer, make_report, make_trial
from outbid import rpc
from outbid.v1 import service_pb2 as pb

CALLS = list(pb.DESCRIPTOR.services_by_name["OutbidService"].methods)


@pytest.fixture
def service(server: FakeServer) -> typing.Iterator[rpc.Service]:
    service = rpc.Service(server.url)
    yield service
    service.close()


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call.name))
def test_every_call_has_its_typed_method(call: typing.Any) -> None:
    method = getattr(rpc.Service, snake(call.name))
    assert inspect.getdoc(method)
    if call.client_streaming:
        return  # takes bytes or a file
    hints = typing.get_type_hints(method)
    answer = hints["return"]
    if call.server_streaming:
        (answer,) = typing.get_args(answer)
    assert (hints["request"].DESCRIPTOR, answer.DESCRIPTOR) == (call.input_type, call.output_type)


def test_no_method_lacks_its_call() -> None:
    own = {"close", "local", "recover", "url"}
    methods = {name for name in vars(rpc.Service) if not name.startswith("_")} - own
    assert methods == {snake(call.name) for call in CALLS}


def test_public_names_are_documented() -> None:
    for name in rpc.__all__:
        assert inspect.getdoc(getattr(rpc, name)), name


def test_messages_go_in_and_out(server: FakeServer, service: rpc.Service) -> None:
    assert service.local
    assert server.url in repr(service)
    assert [s.id for s in service.list_sweeps(pb.ListSweepsRequest()).sweeps] == ["s-1"]
    blob = b"x" * (3 << 20)
    assert server.blobs[service.put_blob(blob)] == blob
    server.tell_news(make_trial(0), reports=[make_report(0, 1, accuracy=0.5)], ended=True)
    news = list(service.watch_sweep(pb.WatchSweepRequest(sweep="s-1", reports=True)))
    assert [t.number for n in news for t in n.trials] == [0]


def test_streams_fail_with_the_sdks_errors(server: FakeServer, service: rpc.Service) -> None:
    server.fail = [(grpc.StatusCode.NOT_FOUND, "there is no sweep s-9")]
    with pytest.raises(ob.NotFoundError, match="no sweep s-9"):
        list(service.list_reports(pb.ListReportsRequest(sweep="s-9")))
    with pytest.raises(TimeoutError, match="did not answer in time"):
        list(service.watch_sweep(pb.WatchSweepRequest(sweep="s-1"), timeout=0.2))


def test_recover_waits_for_who_was_there_before(server: FakeServer, service: rpc.Service) -> None:
    away = ob.UnavailableError("away")
    with pytest.raises(ob.UnavailableError):
        service.recover(away, rpc.Patience())  # no server has ever answered at this address
    service.get_server_info(pb.GetServerInfoRequest())
    service.recover(away, rpc.Patience())
    with pytest.raises(ob.UnavailableError):
        service.recover(away, rpc.Patience(0))
    with pytest.raises(ob.NotFoundError):
        service.recover(ob.NotFoundError("no"), rpc.Patience())


def test_a_call_outlives_a_connection_that_another_thread_replaces(service: rpc.Service) -> None:
    request = pb.GetServerInfoRequest()
    service.get_server_info(request)
    transport, replaced = service._transport, list[bool]()

    def method(stub: typing.Any) -> typing.Any:
        call = stub.GetServerInfo
        if not replaced:
            replaced.append(True)
            transport._drop()
            transport._dial()
        return call

    assert transport.call(method, request, pb.GetServerInfoResponse).version and replaced
    service.close()
    with pytest.raises(ob.UnavailableError, match="was closed"):
        service.get_server_info(request)


def test_an_address_is_asked_again_after_a_loss(server: FakeServer) -> None:
    """A restarted server may listen at another address."""
    other = FakeServer()
    urls = iter([server.url, other.url])

    class Moving:
        def url(self) -> str:
            return next(urls)

    service = rpc.Service(Moving())
    try:
        service.get_server_info(pb.GetServerInfoRequest())
        server.fail = [(grpc.StatusCode.UNAVAILABLE, "going down")]
        service.get_server_info(pb.GetServerInfoRequest())
        assert service.url == other.url
    finally:
        service.close()
        other.close()
