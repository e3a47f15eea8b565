"""Replaces the modules of Ray Train's trainers. Every import from it raises an error with an alternative."""

from __future__ import annotations

from typing import Any

from outbid.tune._errors import unsupported


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    unsupported(f"Ray Train's {name}", "tune a function that trains on its trial's devices; outbid.Resources has gangs")
