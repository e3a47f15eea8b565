"""Outbid on a Ray cluster: its workers run in Ray actors. Needs the extra outbid[ray].

    import outbid as ob
    import outbid.ray

    with outbid.ray.up(workers="auto", resources={"GPU": 1}) as cluster:
        result = ob.Sweep(train, ...).run(client=cluster.client)

`up` starts a server, and one worker for each bundle of resources from Ray. New nodes are used, and trials on draining
nodes save first. `attach` finds a cluster that was started with `detached=True`. Training functions may use Ray
themselves with `connect` and `bundle`, and run Ray Train's trainers with `fit`. An experiment of Ray Tune can share
such a cluster with `Share`.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from outbid._core.errors import MissingExtraError

if importlib.util.find_spec("ray") is None:
    raise MissingExtraError("outbid.ray needs Ray: pip install 'outbid[ray]'", name="ray")

if TYPE_CHECKING:
    from outbid.ray._cluster import Cluster, Worker, attach, up
    from outbid.ray._fit import fit
    from outbid.ray._share import Share
    from outbid.ray._trial_context import bundle, connect

_HOMES = {
    "_cluster": ("Cluster", "Worker", "attach", "up"),
    "_fit": ("fit",),
    "_trial_context": ("bundle", "connect"),
    "_share": ("Share",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["Cluster", "Share", "Worker", "attach", "bundle", "connect", "fit", "up"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
