"""What `up` was asked for, and the environment that programs get on Ray's nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

NAMESPACE = "outbid"
"""The namespace of Ray in which clusters are named."""

BUNDLE = "RAY_OUTBID_BUNDLE"
"""The variable in which trials find the bundle that their worker stands in: a placement group's id and an index."""

RESOURCES = "RAY_OUTBID_RESOURCES"
"""The variable in which trials find what that bundle holds, in JSON."""

_KEPT = ("RAY_ADDRESS", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_USAGE_STATS_ENABLED")


@dataclass(frozen=True)
class Setup:
    """What `up` was asked for. It travels to the supervisor."""

    name: str
    resources: Mapping[str, float]
    workers: int | None  # None: as many as fit
    most: int | None
    devices: str
    data: str
    secure: bool | None
    server: str
    token: str
    ca: str  # the text of a PEM file
    server_options: tuple[str, ...]
    worker_options: tuple[str, ...]
    pass_env: tuple[str, ...]


@dataclass(frozen=True)
class Access:
    """How to reach the server."""

    url: str
    token: str = ""
    ca: str = ""  # the text of a PEM file


def devices_of(resources: Mapping[str, float]) -> str:
    """Return what a worker offers of a bundle: its GPUs, or its cores if it has none."""
    if gpus := resources.get("GPU", 0):
        if gpus != int(gpus):
            raise ValueError(f"up: resources name {gpus:g} GPUs: Outbid gives out whole ones")
        return "gpu"
    if (cpus := int(resources.get("CPU", 0))) < 1:
        raise ValueError(f"up: resources must hold a GPU or a CPU, got {dict(resources)!r}")
    return f"cpu:{cpus}"


def environment(address: str) -> dict[str, str]:
    """Return the environment of programs that run beside Ray: what its own processes say to each other stays out."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_") or name in _KEPT}
    env["RAY_ADDRESS"] = address
    installed = tuple({os.path.realpath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix)})
    paths = [path for path in sys.path if path and not os.path.realpath(path).startswith(installed)]
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))  # a runtime environment's files, a checkout
    return env
