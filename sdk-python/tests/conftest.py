"""Fixtures for every test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the fakes, under importlib mode

from fake_worker import FakeWorker


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[..., FakeWorker]]:
    """Make fake workers; each starts one training process."""
    made: list[FakeWorker] = []

    def make(function: Callable[..., Any] | None = None, **env: str) -> FakeWorker:
        place = tmp_path / str(len(made))
        place.mkdir()
        made.append(FakeWorker(place, function, **env))
        return made[-1]

    yield make
    for one in made:
        one.close()
