"""The calls of the server's API, which the rest of the SDK uses.

    from outbid import rpc
    from outbid.v1 import service_pb2

    service = rpc.Service("http://127.0.0.1:7700")
    for sweep in service.list_sweeps(service_pb2.ListSweepsRequest()).sweeps:
        print(sweep.id)

Use it for features that `outbid.Client` and `outbid.SweepHandle` do not have, such as the loop of another scheduler
that bids for devices. Messages only gain fields, so code for one version works with later versions.
"""

from __future__ import annotations

from outbid.rpc._service import Service
from outbid.rpc._transport import Address, FixedAddress, Patience

__all__ = ["Address", "FixedAddress", "Patience", "Service"]
