"""Says who has this machine's devices, while a sweep waits for them on a server of one's own."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from outbid._connection import Connection
from outbid._errors import OutbidError
from outbid.v1 import service_pb2 as pb

_SILENT_SECONDS = 2.0  # of waiting for a device without a word


@contextlib.contextmanager
def telling_who(client: Connection, sweep: str) -> Iterator[None]:
    """Say on stderr, once, who has the devices, if another server's worker has them and no trial can run meanwhile."""
    if client.data is None:  # somebody else's server, whose machines are not this user's to free
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
    """Look now and then, until a trial runs or it is known who has the devices."""
    while not over.wait(_SILENT_SECONDS):
        try:
            info = client.sweep(sweep)
            if info.over or info.steps or info.counts.get("running"):
                return
            checks = client.rpc.get_server_info(pb.GetServerInfoRequest()).checks
        except OutbidError:
            continue  # who waits for the sweep sees to that
        why = next((f"{check.detail}; {check.fix}" for check in checks if check.name == "devices" and not check.ok), "")
        if why and not over.is_set():
            print(f"outbid: {sweep} waits: {why}", file=sys.stderr, flush=True)
            return
