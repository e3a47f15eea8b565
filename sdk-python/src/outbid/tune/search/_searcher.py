"""The base of search algorithms, and those that stand around another one."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

from outbid.tune import _order


class SearchAlgorithm:
    """Base of all search algorithms."""

    max_concurrent: int = 0


class Searcher(SearchAlgorithm):
    """Base of search algorithms of one's own: override `suggest` and `on_trial_complete`.

    It runs beside the server, which starts it, as its state is pickled.
    """

    FINISHED = "FINISHED"

    def __init__(self, metric: Any = None, mode: Any = None, **_: Any) -> None:
        self._metric, self._mode = metric, mode

    @property
    def metric(self) -> Any:
        """What it goes by."""
        return self._metric

    @property
    def mode(self) -> Any:
        """Whether more of it is better."""
        return self._mode

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        """Take metric, mode and space of the experiment; False if it has its own."""
        return False

    def suggest(self, trial_id: str) -> Any:
        """Return a configuration, None if there is none now, or FINISHED."""
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Hear of a result."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Hear of a trial's end, with its last result."""

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Take the most trials at once; False if somebody else must see to it."""
        return False

    def get_state(self) -> dict[str, Any]:
        """Return all that it knows."""
        return self.__dict__.copy()

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up a state."""
        self.__dict__.update(state)

    def save(self, checkpoint_path: str) -> None:
        """Write the state to a file."""
        import cloudpickle

        Path(checkpoint_path).write_bytes(cloudpickle.dumps(self.get_state()))

    def restore(self, checkpoint_path: str) -> None:
        """Take up the state in a file."""
        self.set_state(pickle.loads(Path(checkpoint_path).read_bytes()))


class _Around(Searcher):
    """A search algorithm that stands around another one, and hands on what it does not change."""

    def __init__(self, searcher: Any) -> None:
        if not isinstance(searcher, Searcher) and not hasattr(searcher, "suggest"):
            raise TypeError(f"{type(self).__name__}: expected a Searcher, got {searcher!r:.80}")
        self.searcher = searcher
        super().__init__(searcher.metric, searcher.mode)

    def set_search_properties(self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any) -> bool:
        """Hand them on."""
        done = bool(self.searcher.set_search_properties(metric, mode, config, **spec))
        self._metric, self._mode = self.searcher.metric, self.searcher.mode
        return done

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Hand it on."""
        self.searcher.on_trial_result(trial_id, result)


class ConcurrencyLimiter(_Around):
    """Bounds how many trials run at once; with `batch` there are new ones only when all of a batch have ended."""

    def __init__(self, searcher: Any, max_concurrent: int, batch: bool = False) -> None:
        if max_concurrent <= 0:
            raise ValueError(f"ConcurrencyLimiter: max_concurrent must be above 0, got {max_concurrent!r}")
        super().__init__(searcher)
        self.max_concurrent, self.batch = max_concurrent, batch
        self.live: set[str] = set()
        self._done: dict[str, tuple[Any, bool]] = {}

    def suggest(self, trial_id: str) -> Any:
        """Return a configuration if not too many are under way."""
        if len(self.live) >= self.max_concurrent:
            return None
        config = self.searcher.suggest(trial_id)
        if config is not None and config != Searcher.FINISHED:
            self.live.add(trial_id)
        return config

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Hand it on, in batches if so asked."""
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
    """Tries each configuration several times; the algorithm within hears of the mean."""

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
        """Wait for the ends."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the mean once all of a configuration's trials have ended."""
        self._scores[trial_id] = _order.number((result or {}).get(self.searcher.metric))
        for members, _ in self._groups:
            if trial_id not in members or len(members) < self.repeat or any(m not in self._scores for m in members):
                continue
            good = [s for m in members if (s := self._scores[m]) is not None and _order.is_number(s)]
            mean = sum(good) / len(good) if good else math.nan
            self.searcher.on_trial_complete(members[0], result={self.searcher.metric: mean}, error=not good)


TRIAL_INDEX = "__trial_index__"
