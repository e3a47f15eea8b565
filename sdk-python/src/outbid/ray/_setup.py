"""The arguments of `up`, and the environment of programs on Ray's nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

NAMESPACE = "outbid"
"""The Ray namespace of clusters' names."""

BUNDLE = "RAY_OUTBID_BUNDLE"
"""The environment variable with the bundle of a trial's worker: a placement group's id and an index."""

RESOURCES = "RAY_OUTBID_RESOURCES"
"""The environment variable with that bundle's resources, in JSON."""

_KEPT = ("RAY_ADDRESS", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_USAGE_STATS_ENABLED")


@dataclass(frozen=True)
class Setup:
    """The arguments of `up`, which are sent to the supervisor."""

    name: str
    resources: Mapping[str, float]
    workers: int | None  # None for as many as fit
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
    """Return the devices that a worker offers of a bundle: its GPUs, or its cores if it has none."""
    if gpus := resources.get("GPU", 0):
        if gpus != int(gpus):
            raise ValueError(f"up: resources must have a whole number of GPUs, got {gpus:g}")
        return "gpu"
    if (cpus := int(resources.get("CPU", 0))) < 1:
        raise ValueError(f"up: resources must have a GPU or a CPU, got {dict(resources)!r}")
    return f"cpu:{cpus}"


def environment(address: str) -> dict[str, str]:
    """Return the environment of programs on Ray's nodes, without the variables of Ray's own processes."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_") or name in _KEPT}
    env["RAY_ADDRESS"] = address
    installed = tuple({os.path.realpath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix)})
    paths = [path for path in sys.path if path and not os.path.realpath(path).startswith(installed)]
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))  # files of a runtime environment, a checkout
    return env
