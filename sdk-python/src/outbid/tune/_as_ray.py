"""What a Ray Tune script asks of `ray` itself, where Outbid stands in for it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from outbid.tune._errors import unsupported
from outbid.tune._named import ObjectRef
from outbid.tune._named import put as put

_outbid = True
__version__ = "2.60.0"

_on = [False]


def init(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """Note that the script has begun: Outbid's server is started when it is needed."""
    _on[0] = True
    return {"node_ip_address": "127.0.0.1"}


def shutdown(*args: Any, **kwargs: Any) -> None:
    """Note that the script has ended."""
    _on[0] = False


def is_initialized() -> bool:
    """Return whether `init` was called."""
    return _on[0]


def get(refs: Any, timeout: float | None = None) -> Any:
    """Return what was put."""
    return [get(ref) for ref in refs] if isinstance(refs, list) else refs.value if isinstance(refs, ObjectRef) else refs


def cluster_resources() -> dict[str, float]:
    """Return the cores of this machine."""
    return {"CPU": float(os.cpu_count() or 1)}


available_resources = cluster_resources


def get_gpu_ids() -> list[int]:
    """Return the devices that the trial may use."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return [int(n) for n in shown.split(",") if n.strip().isdigit()]


def remote(*args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Tasks and actors are Ray's own."""
    unsupported("ray.remote", "run the script with Ray, and Outbid beside it with outbid.ray.up()")


def wait(*args: Any, **kwargs: Any) -> Any:
    """Tasks and actors are Ray's own."""
    unsupported("ray.wait", "run the script with Ray, and Outbid beside it with outbid.ray.up()")


def __getattr__(name: str) -> Any:
    if name in ("tune", "train", "air"):
        return importlib.import_module(f"outbid.{name}")
    if name.startswith("_"):
        raise AttributeError(name)
    unsupported(f"ray.{name}", "run the script with Ray, and Outbid beside it with outbid.ray.up()")
