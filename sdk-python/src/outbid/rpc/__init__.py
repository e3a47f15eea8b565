"""The server's API from Python, call by call: what the rest of the SDK stands on.

    from outbid import rpc
    from outbid.v1 import service_pb2

    service = rpc.Service("http://127.0.0.1:7700")
    for sweep in service.list_sweeps(service_pb2.ListSweepsRequest()).sweeps:
        print(sweep.id)

Use it for what `outbid.Client` and `outbid.SweepHandle` do not offer, such as another scheduler's loop that bids for
devices. Messages only ever gain fields, so what is written against one version goes on working with later ones.
"""

from __future__ import annotations

from outbid.rpc._service import Service
from outbid.rpc._transport import Address, FixedAddress, Patience

__all__ = ["Address", "FixedAddress", "Patience", "Service"]
