"""The base classes of search algorithms, and wrappers around search algorithms."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

from outbid.tune import _order


class SearchAlgorithm:
    """Base class of all search algorithms."""

    max_concurrent: int = 0


class Searcher(SearchAlgorithm):
    """Base class of user-defined search algorithms: override `suggest` and `on_trial_complete`.

    It runs in a process of the server, so it must be picklable.
    """

    FINISHED = "FINISHED"

    def __init__(self, metric: Any = None, mode: Any = None, **_: Any) -> None:
        self._metric, self._mode = metric, mode

    @property
    def metric(self) -> Any:
        """The metric."""
        return self._metric

    @property
    def mode(self) -> Any:
        """The mode, min or max."""
        return self._mode

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        """Set metric, mode and space from the experiment. Returns False if the algorithm has its own."""
        return False

    def suggest(self, trial_id: str) -> Any:
        """Return a configuration, FINISHED, or None if the algorithm must wait."""
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Called for a result."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Called when a trial has ended, with its last result."""

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Set the maximum number of concurrent trials. Returns False if the caller must enforce it."""
        return False

    def get_state(self) -> dict[str, Any]:
        """Return the state."""
        return self.__dict__.copy()

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.__dict__.update(state)

    def save(self, checkpoint_path: str) -> None:
        """Write the state to a file."""
        import cloudpickle

        Path(checkpoint_path).write_bytes(cloudpickle.dumps(self.get_state()))

    def restore(self, checkpoint_path: str) -> None:
        """Restore the state from a file."""
        self.set_state(pickle.loads(Path(checkpoint_path).read_bytes()))


class _Around(Searcher):
    """Wraps another search algorithm and forwards calls to it."""

    def __init__(self, searcher: Any) -> None:
        if not isinstance(searcher, Searcher) and not hasattr(searcher, "suggest"):
            raise TypeError(f"{type(self).__name__}: expected a Searcher, got {searcher!r:.80}")
        self.searcher = searcher
        super().__init__(searcher.metric, searcher.mode)

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        """Forward to the inner algorithm."""
        done = bool(self.searcher.set_search_properties(metric, mode, config, **spec))
        self._metric, self._mode = self.searcher.metric, self.searcher.mode
        return done

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Forward to the inner algorithm."""
        self.searcher.on_trial_result(trial_id, result)


class ConcurrencyLimiter(_Around):
    """Limits the number of concurrent trials. With `batch`, new ones start only when all of a batch have ended."""

    def __init__(self, searcher: Any, max_concurrent: int, batch: bool = False) -> None:
        if max_concurrent <= 0:
            raise ValueError(f"ConcurrencyLimiter: max_concurrent must be above 0, got {max_concurrent!r}")
        super().__init__(searcher)
        self.max_concurrent, self.batch = max_concurrent, batch
        self.live: set[str] = set()
        self._done: dict[str, tuple[Any, bool]] = {}

    def suggest(self, trial_id: str) -> Any:
        """Return a configuration unless the limit is reached."""
        if len(self.live) >= self.max_concurrent:
            return None
        config = self.searcher.suggest(trial_id)
        if config is not None and config != Searcher.FINISHED:
            self.live.add(trial_id)
        return config

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Forward to the inner algorithm, in batches if enabled."""
        if trial_id not in self.live:
            return
        if not self.batch:
            self.searcher.on_trial_complete(trial_id, result=result, error=error)
            self.live.discard(trial_id)
            return
        self._done[trial_id] = (result, error)
        if len(self._done) >= self.max_concurrent or len(self._done) >= len(self.live):
            for name, (last, wrong) in self._done.items():
                self.searcher.on_trial_complete(name, result=last, error=wrong)
                self.live.discard(name)
            self._done.clear()


class Repeater(_Around):
    """Tries each configuration several times; the inner algorithm gets the mean."""

    def __init__(self, searcher: Any, repeat: int = 1, set_index: bool = True) -> None:
        super().__init__(searcher)
        self.repeat, self._set_index = repeat, set_index
        self._groups: list[tuple[list[str], dict[str, Any]]] = []
        self._scores: dict[str, float | None] = {}

    def suggest(self, trial_id: str) -> Any:
        """Return the last configuration again, or a new one."""
        if not self._groups or len(self._groups[-1][0]) >= self.repeat:
            config = self.searcher.suggest(trial_id)
            if config is None or config == Searcher.FINISHED:
                return config
            self._groups.append(([], config))
        members, config = self._groups[-1]
        made = copy.deepcopy(config)
        if self._set_index:
            made["__trial_index__"] = len(members)
        members.append(trial_id)
        return made

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Do nothing: only final results count."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Pass the mean to the inner algorithm when all trials of a configuration have ended."""
        self._scores[trial_id] = _order.number((result or {}).get(self.searcher.metric))
        for members, _ in self._groups:
            if trial_id not in members or len(members) < self.repeat or any(m not in self._scores for m in members):
                continue
            good = [s for m in members if (s := self._scores[m]) is not None and _order.is_number(s)]
            mean = sum(good) / len(good) if good else math.nan
            self.searcher.on_trial_complete(members[0], result={self.searcher.metric: mean}, error=not good)


TRIAL_INDEX = "__trial_index__"
