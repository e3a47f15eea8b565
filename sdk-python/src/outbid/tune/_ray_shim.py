"""The functions of `ray` itself that Ray Tune scripts use, when Outbid replaces Ray."""

from __future__ import annotations

import importlib
import os
import socket
from types import SimpleNamespace
from typing import Any

from outbid.tune import _tasks
from outbid.tune._errors import unsupported
from outbid.tune._host import address
from outbid.tune._object_store import ObjectRef as ObjectRef
from outbid.tune._object_store import put as put
from outbid.tune._tasks import cancel as cancel
from outbid.tune._tasks import get as get
from outbid.tune._tasks import get_actor as get_actor
from outbid.tune._tasks import kill as kill
from outbid.tune._tasks import method as method
from outbid.tune._tasks import remote as remote
from outbid.tune._tasks import wait as wait

_outbid = True
exceptions = _tasks
__version__ = "2.60.0"

_on = [False]


def init(*args: Any, **kwargs: Any) -> SimpleNamespace:
    """Mark Ray as initialised. Outbid's server is started when it is needed."""
    _on[0] = True
    about = {"node_ip_address": "127.0.0.1", "webui_url": None}
    return SimpleNamespace(address_info=about, dashboard_url="", **about)


def shutdown(*args: Any, **kwargs: Any) -> None:
    """Mark Ray as shut down."""
    _on[0] = False


def is_initialized() -> bool:
    """Return whether `init` was called."""
    return _on[0]


def cluster_resources() -> dict[str, float]:
    """Return the number of this machine's cores."""
    return {"CPU": float(os.cpu_count() or 1)}


available_resources = cluster_resources


def nodes() -> list[dict[str, Any]]:
    """Return this machine only; `outbid nodes` shows the cluster."""
    about = {"NodeManagerHostname": socket.gethostname(), "NodeManagerAddress": "127.0.0.1"}
    return [{"NodeID": "here", "Alive": True, **about, "Resources": cluster_resources()}]


def get_gpu_ids() -> list[int]:
    """Return the devices that the trial may use."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return [int(n) for n in shown.split(",") if n.strip().isdigit()]


def get_node_ip_address() -> str:
    """Return this machine's address."""
    return address()


def get_runtime_context() -> SimpleNamespace:
    """Return the information about the process that is available."""
    return SimpleNamespace(
        get_job_id=lambda: f"{os.getpid():08x}",
        get_node_id=socket.gethostname,
        get_assigned_resources=cluster_resources,
        get_accelerator_ids=lambda: {"GPU": [str(n) for n in get_gpu_ids()]},
        was_current_actor_reconstructed=False,
    )


def __getattr__(name: str) -> Any:
    if name in ("tune", "train", "air"):
        return importlib.import_module(f"outbid.{name}")
    if name == "util":
        return importlib.import_module(__name__)
    if name == "cloudpickle":
        return importlib.import_module(name)
    if name.startswith("_"):
        raise AttributeError(name)
    unsupported(f"ray.{name}", "run the script with Ray and start Outbid on the Ray cluster with outbid.ray.up()")
