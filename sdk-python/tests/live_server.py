"""A real server in another process, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any


def until(holds: Callable[[], bool], what: str, log: Path, deadline: float) -> None:
    """Wait until a condition holds; after `deadline` seconds fail with the server's log.

    Conditions are asked for less and less often, as most ask the server, which takes processor time of the trials.
    """
    end, pause, seconds = time.monotonic() + deadline, threading.Event(), 0.02
    while not holds():
        assert time.monotonic() < end, f"not in time: {what}\n{log.read_text()}"
        pause.wait(seconds)
        seconds = min(1.3 * seconds, 0.25)


def nodes_up(url: str, deadline: float) -> int:
    """Return the number of nodes that are up."""
    with urllib.request.urlopen(f"{url}/v1/nodes", timeout=deadline) as answer:
        return str(answer.read()).count("NODE_STATE_UP")


def events(data: Path) -> list[dict[str, Any]]:
    """Return all events in the ledger of a data directory."""
    command = [os.environ["OUTBID_BIN"], "export", "--ledger", "-", "--data", str(data)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [event for line in text.splitlines() for event in json.loads(line).get("events", [])]
