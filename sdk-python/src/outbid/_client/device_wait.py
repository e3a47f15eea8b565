"""Tell the user which process uses the devices that a sweep on a local server waits for."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from outbid._client.connection import Connection
from outbid._core.errors import OutbidError
from outbid.v1 import service_pb2 as pb

_LOOK_SECONDS = 1.0


@contextlib.contextmanager
def telling_who(client: Connection, sweep: str) -> Iterator[None]:
    """Print on stderr, once, which process uses the devices if another server's trials keep all trials waiting."""
    if client.data is None:  # a remote server, whose devices this user cannot free
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_look, args=(client, sweep, over), name="outbid-held", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _look(client: Connection, sweep: str, over: threading.Event) -> None:
    """Poll every second until a trial has reported or the process that uses the devices is known."""
    while not over.wait(_LOOK_SECONDS):
        try:
            info = client.sweep(sweep)
            if info.over or info.steps:
                return
            checks = client.rpc.get_server_info(pb.GetServerInfoRequest()).checks
        except OutbidError:
            continue  # the code that waits for the sweep reports it
        why = next((f"{check.detail}; {check.fix}" for check in checks if check.name == "devices" and not check.ok), "")
        if why and not over.is_set():
            print(f"outbid: {sweep} waits: {why}", file=sys.stderr, flush=True)
            return
