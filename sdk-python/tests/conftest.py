"""Fixtures for every test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the fakes, with importlib mode

import outbid as ob
from fake_server import FakeServer
from fake_worker import FakeWorker
from outbid._client import local_server


@pytest.fixture(scope="session", autouse=True)
def servers_end() -> Iterator[None]:
    """Wait for servers that were left to end by themselves, which takes a while on a busy machine."""
    yield
    for process in local_server._staying:
        process.wait(120)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[..., FakeWorker]]:
    """Return a function that makes fake workers, which start one training process each."""
    made: list[FakeWorker] = []

    def make(function: Callable[..., Any] | None = None, **env: str) -> FakeWorker:
        place = tmp_path / str(len(made))
        place.mkdir()
        made.append(FakeWorker(place, function, **env))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """Run a fake server."""
    made = FakeServer()
    yield made
    made.close()


@pytest.fixture
def client(server: FakeServer) -> Iterator[ob.Client]:
    """Connect to the fake server; it is the default until the test ends."""
    with ob.connect(server.url) as made:
        yield made


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the machine's settings."""
    for name in ("OUTBID_URL", "OUTBID_TOKEN", "OUTBID_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
