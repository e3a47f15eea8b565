"""Warnings about what a user's code does, which name the line of that code."""

from __future__ import annotations

import sys
import warnings


def warn_user(text: str) -> None:
    """Give a UserWarning for the innermost line of code outside this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_own(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, UserWarning, stacklevel=level)


def _is_own(module: str) -> bool:
    return module == "outbid" or module.startswith("outbid.")
