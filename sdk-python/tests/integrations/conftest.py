"""Fixtures of the tests against the packages that the SDK works with: a real server, as in the end-to-end tests."""

from __future__ import annotations

from e2e.conftest import data, own_servers, real, slots

__all__ = ["data", "own_servers", "real", "slots"]
