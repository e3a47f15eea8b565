"""Names of Ray's `tune.search.variant_generator`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from outbid.tune._absent_names import absent
from outbid.tune._sample import Rng, grid_search
from outbid.tune._variants import tag, variants


def generate_variants(
    unresolved_spec: dict[str, Any], constant_grid_search: bool = False, random_state: Any = None
) -> Iterator[tuple[dict[Any, Any], dict[str, Any]]]:
    """Yield the drawn values, by path, with the whole configuration."""
    yield from variants(unresolved_spec, Rng(random_state), constant=constant_grid_search)


def format_vars(resolved_vars: dict[Any, Any]) -> str:
    """Return drawn values as text."""
    return tag(resolved_vars)


def __getattr__(name: str) -> Any:
    absent(__name__, name)


__all__ = ["format_vars", "generate_variants", "grid_search"]
