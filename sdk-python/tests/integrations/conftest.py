"""Fixtures of the tests with other packages: a real server, like in the end-to-end tests."""

from __future__ import annotations

from e2e.conftest import data, own_servers, real, slots

__all__ = ["data", "own_servers", "real", "slots"]
