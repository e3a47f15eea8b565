"""Ctrl-C while a program waits for a sweep."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import outbid as ob
from fake_server import FakeServer, make_trial
from outbid.v1 import event_pb2
from outbid.v1 import service_pb2 as pb


def train(trial: ob.Trial) -> None:
    trial.report(loss=1.0)


class Presses:
    """Presses Ctrl-C in the first `times` calls of watch; later calls work normally."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.left = times
        self._watch = ob.SweepHandle._watch
        monkeypatch.setattr(ob.SweepHandle, "_watch", lambda *args, **named: self(*args, **named))

    def __call__(self, *args: Any, **named: Any) -> Iterator[Any]:
        self.left -= 1
        if self.left >= 0:
            raise KeyboardInterrupt
        return self._watch(*args, **named)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every server end with this program."""
    monkeypatch.setattr(ob.Client, "passing", property(lambda _: True))


def run() -> ob.Result:
    return ob.Sweep(train, {"x": ob.uniform(0, 1)}, metric="loss", mode="min").run()


def test_an_answered_interrupt_prints_no_traceback(
    server: FakeServer, client: ob.Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt) as raised:
            Presses(monkeypatch, 1)
            run()
        capsys.readouterr()
        sys.excepthook(raised.type, raised.value, raised.tb)
        assert capsys.readouterr().err == ""
    sys.excepthook(ValueError, ValueError("another"), None)
    assert "ValueError: another" in capsys.readouterr().err


def commands(server: FakeServer) -> list[int]:
    return [request.command for request in server.requests if isinstance(request, pb.ControlSweepRequest)]


def test_on_anothers_server_the_sweep_goes_on(
    server: FakeServer, client: ob.Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Presses(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt, match=f"s-1 continues at {client.url}"):
        run()
    assert commands(server) == []
    said = capsys.readouterr().err
    assert f"ob.connect({client.url!r}).attach('s-1').wait(display=True)" in said
    assert f"`outbid --server {client.url} stop s-1`" in said
    monkeypatch.setenv("OUTBID_URL", client.url)
    Presses(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert "follow it with ob.attach('s-1').wait(display=True) or `outbid watch s-1`" in capsys.readouterr().err


def test_on_ones_own_server_it_is_saved(
    server: FakeServer,
    client: ob.Client,
    own: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Presses(monkeypatch, 1)
    server.sweep.state = event_pb2.SWEEP_STATE_PAUSED
    server.sweep.counts.running = 1
    server.tell_news(make_trial(0, "running"))
    server.sweep.counts.running = 0
    server.tell_news(make_trial(0, "paused"))
    server.news.put(None)
    with pytest.raises(KeyboardInterrupt, match="s-1 is paused, and its trials are saved"):
        run()
    assert commands(server) == [pb.SWEEP_COMMAND_PAUSE]
    assert ".attach('s-1').resume().wait(display=True)" in capsys.readouterr().err


def test_the_second_does_not_wait(
    server: FakeServer, client: ob.Client, own: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Presses(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt, match="s-1 is being paused"):
        run()
    assert commands(server) == [pb.SWEEP_COMMAND_PAUSE]


def test_one_that_has_ended_meanwhile(
    server: FakeServer, client: ob.Client, own: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Presses(monkeypatch, 1)
    server.tell_news(make_trial(0), ended=True)
    with pytest.raises(KeyboardInterrupt, match="s-1 has ended"):
        run()


def test_before_anything_is_shown(server: FakeServer, client: ob.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("outbid._client.handle.make_display", press)
    with pytest.raises(KeyboardInterrupt, match=f"s-1 continues at {client.url}"):
        run()


def test_resume_returns_the_handle(server: FakeServer, client: ob.Client) -> None:
    handle = ob.attach("s-1")
    assert handle.resume() is handle
    assert commands(server) == [pb.SWEEP_COMMAND_RESUME]
