"""Imports of packages that users install themselves."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from outbid._core.errors import MissingExtraError


def optional(needed_by: str, *modules: str) -> Any:
    """Return the first of the modules that is installed, or raise MissingExtraError, which names the first package."""
    for module in modules:
        with contextlib.suppress(ImportError):
            return importlib.import_module(module)
    package = modules[0].partition(".")[0]
    raise MissingExtraError(f"{needed_by} needs {package}: pip install {package}")
