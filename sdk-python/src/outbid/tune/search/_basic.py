"""Grid search and random search."""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Iterator
from typing import Any

from outbid.tune._sample import Rng
from outbid.tune._variants import Variant, count, preset, variants
from outbid.tune.search._searcher import SearchAlgorithm


class BasicVariantGenerator(SearchAlgorithm):
    """Every combination of the grids, `num_samples` times, with the other parameters drawn for each."""

    def __init__(
        self,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: Any = None,
    ) -> None:
        self._points = points_to_evaluate or []
        self.max_concurrent = max_concurrent
        self._constant = constant_grid_search
        self._rng = Rng(random_state)
        forced = os.environ.get("_TEST_TUNE_TRIAL_UUID")
        self.prefix = forced or uuid.uuid1().hex[:5]
        self.total_samples = 0

    def draw(self, space: dict[str, Any], num_samples: int) -> Iterator[Variant]:
        """Yield the variants; indefinitely if `num_samples` is -1."""
        left = num_samples
        for point in self._points:
            yield from preset(space, copy.deepcopy(point), self._rng, constant=self._constant)
            left -= 1
        while left > 0 or num_samples == -1:
            yield from variants(space, self._rng, constant=self._constant)
            left -= 1

    def total(self, space: dict[str, Any], num_samples: int) -> int:
        """Return the number of trials without points to evaluate; 0 if unlimited."""
        return 0 if num_samples == -1 else num_samples * count(space)
