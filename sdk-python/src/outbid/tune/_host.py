"""The time and process of a result, which Ray adds to each result."""

from __future__ import annotations

import datetime
import functools
import os
import platform
import socket
from typing import Any

DATE = "%Y-%m-%d_%H-%M-%S"
"""The format of dates in results and names of directories."""


def now_and_here() -> dict[str, Any]:
    """Return the current time and the process."""
    now = datetime.datetime.now()
    return {"timestamp": int(now.timestamp()), "date": now.strftime(DATE), **process()}


def process() -> dict[str, Any]:
    """Return facts about the process."""
    return {"pid": os.getpid(), "hostname": platform.node(), "node_ip": address()}


@functools.cache
def address() -> str:
    """Return this machine's address."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
