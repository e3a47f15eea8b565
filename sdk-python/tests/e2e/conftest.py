"""Fixtures of the tests with the real binary."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import outbid as ob
from server_log import check_log

SRC = str(Path(__file__).resolve().parents[2] / "src")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this directory, and skip them without a binary."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if not os.environ.get("OUTBID_BIN"):
                item.add_marker(pytest.mark.skip(reason="OUTBID_BIN is not set (make build; OUTBID_BIN=bin/outbid)"))


@pytest.fixture(scope="session", autouse=True)
def slots() -> Iterator[None]:
    """Declare virtual devices instead of claiming the machine's cores, because several servers run at the same time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTBID_DEVICES", f"cpu:{os.cpu_count()}")
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory."""
    return tmp_path_factory.mktemp("outbid") / "data"


@pytest.fixture(scope="module")
def real(data: Path) -> Iterator[ob.Client]:
    """Connect to a real server whose workers use this checkout's SDK."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SRC)
        for name in ("OUTBID_URL", "OUTBID_TOKEN"):
            patch.delenv(name, raising=False)
        with ob.connect(data=data) as client:
            yield client
        check_log(data / "server.log")


@pytest.fixture(autouse=True)
def own_servers(tmp_path: Path) -> Iterator[None]:
    """Check the logs of servers that a test starts itself."""
    yield
    for log in sorted(tmp_path.rglob("server.log")):
        check_log(log)
