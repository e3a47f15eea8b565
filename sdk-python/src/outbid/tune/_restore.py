"""Restored: continues an earlier experiment."""

from __future__ import annotations

import contextlib
import copy
import itertools
import pickle
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from outbid._client.client import default_client
from outbid._client.handle import SweepHandle
from outbid._core.errors import InvalidError, NotFoundError
from outbid._core.trace_context import span
from outbid._results.model import ENDED_SWEEP, TrialResult
from outbid._search.resources import Limits
from outbid.tune._config import ResumeConfig, RunConfig, TuneConfig
from outbid.tune._controller import Experiment
from outbid.tune._driver import follow, resubmit
from outbid.tune._encoding import decode, keep_large
from outbid.tune._record import Begun, Run, collect
from outbid.tune._registry import find_trainable
from outbid.tune._result_files import saved_results
from outbid.tune._running_time import budget, longer, spend
from outbid.tune._searcher_state import learned
from outbid.tune._trial import Trial
from outbid.tune.schedulers import FIFOScheduler
from outbid.tune.search import BasicVariantGenerator
from outbid.tune.stopper import asked_in_trial

_OPEN = ("queued", "running", "paused", "stopped")
"""States of trials that have not ended, which includes those of a sweep that a person stopped."""


_PATIENCE = 2.0  # seconds after a sweep's end in which the first learned state may still be written
_ENDING = 10.0  # and in which a process that has written some before may still write the rest


class Restored:
    """An earlier experiment.

    Its sweep is resumed if the trainable has not changed. Otherwise, and for failed trials, a new sweep runs the
    remaining trials, with the experiment's search algorithm, scheduler, limits and remaining time.
    """

    def __init__(self, made: Run, trainable: Any, how: ResumeConfig, space: Any = None) -> None:
        self._made = made
        self._unfinished = how.unfinished is ResumeConfig.ResumeType.RESUME
        self._errored = how.errored is ResumeConfig.ResumeType.RESUME
        self._restart = how.errored is ResumeConfig.ResumeType.RESTART
        plan = made.plan
        self.tune = made.tune if made.tune is not None else TuneConfig(metric=plan.metric, mode=plan.mode)
        self.config = made.config if made.config is not None else RunConfig()
        self._trainable, self._space = trainable, space
        self._ends: set[str] = set()  # why sweeps of the experiment failed

    def results(self) -> Run:
        """Return the current results, including trials that were trained again."""
        made = self._made
        made.infos = {t.number: t for t in default_client().attach(made.sweep).trials()}
        trials = {number: collect(made.plan, info) for number, info in made.infos.items()}
        for sweep, numbers in made.later:
            plan = replace(made.plan, numbers=numbers, first=_after(made.infos, numbers))
            for info in default_client().attach(sweep).trials():
                number = plan.number(info.number)
                trials[number] = collect(plan, info)
                made.infos[number] = info
        made.trials = [trials[number] for number in sorted(trials)]
        return made

    @span("outbid.run")
    def run(self) -> Run:
        """Run until the end."""
        self._changed = self._take()
        handles = [self._attach(sweep) for sweep in (self._made.sweep, *(sweep for sweep, _ in self._made.later))]
        live = next((h for h in handles if h.info().state not in ENDED_SWEEP or h.info().state == "stopped"), None)
        self._made.time.resume(ran_on=any(h.info().state == "running" for h in handles))
        plain = not (self._changed or self._errored or self._restart or self._made.later)
        if plain and live is not None and self._unfinished:
            return self._resume(live)
        if self._unfinished or self._errored or self._restart:
            for handle in handles:
                _end(handle)
        self._ends = {info.reason for handle in handles if (info := handle.info()).state == "failed"}
        made = self.results()
        return self._go_on(made)

    def _take(self) -> bool:
        """Use the trainable and space given to the restore; return whether they have changed."""
        made, plan = self._made, self._made.plan
        if self._trainable is not None:
            plan.trainable = find_trainable(self._trainable)
        if self._space is not None:
            plan.earlier, plan.space = (plan.earlier, plan.space), keep_large(dict(self._space))
        given = self._trainable is not None or self._space is not None
        return given and made.digests() != made.saved_digests

    def _attach(self, sweep: str) -> SweepHandle:
        try:
            return default_client().attach(sweep)
        except NotFoundError:
            raise NotFoundError(
                f"the sweep {sweep} of this experiment is not on this server: connect to its server first, "
                f"with ob.connect(...); it was at {self._made.url}"
            ) from None

    def _left(self) -> float | None:
        """Return the seconds that the experiment may still run; None without a budget."""
        made = self._made
        span = budget(self.tune, made.plan.stop)
        spend(made.plan.stop, made.time.seconds)
        return None if span is None else span - made.time.seconds

    def _resume(self, handle: SweepHandle) -> Run:
        """Resume the experiment's own sweep."""
        made, info = self._made, handle.info()
        made.infos = {t.number: t for t in handle.trials()}
        left = self._left()
        if left is not None and info.state != "running":
            if left <= 0:
                return self.results()
            with contextlib.suppress(InvalidError):  # it was interrupted for no measurable time
                handle.extend(limits=Limits(wall_time=longer(info.submitted, left)))
        if handle.info().state in ("paused", "stopped"):
            handle.resume()
        return follow(made, handle, self.tune, self.config)

    def _go_on(self, made: Run) -> Run:
        """Train the rest in a new sweep: trials that have not ended, failed ones, and those that have not started."""
        begun = self._begun(made)
        open_ones = [n for n, t in made.infos.items() if self._unfinished and self._is_open(t)]
        failed = [n for n, t in made.infos.items() if (self._errored or self._restart) and t.state == "failed"]
        first = max(made.infos, default=-1) + 1
        points = begun.points[first:] if self._unfinished else []
        samples = 0
        if self._unfinished and begun.searcher is not None:
            samples = max(begun.samples - first, 0) if begun.samples else -1
        searcher, scheduler, trials = self._brains(made, begun)
        left = self._left()
        if not (open_ones or failed or points or samples) or (left is not None and left <= 0):
            return made
        again = sorted(open_ones + failed)
        numbers = again + list(range(first, first + len(points)))
        plan = replace(made.plan, numbers=numbers, first=first + len(points))
        plan.offsets = self._offsets(made, again)
        known = [decode(made.infos[n].config, plan.space, whole=False) for n in again]
        total = 0 if samples < 0 else len(numbers) + samples
        experiment = Experiment(plan, scheduler, searcher, known + points, total, trials)
        second, handle = resubmit(made, experiment, self.config, limit=begun.limit, left=left)
        made.later.append((handle.id, numbers))
        made.begun = begun.to_bytes()
        made.save()
        second = follow(second, handle, self.tune, self.config)
        ended = {t.number: t for t in made.trials} | {t.number: t for t in second.trials}
        second.trials = [ended[n] for n in sorted(ended)]
        return second

    def _is_open(self, info: TrialResult) -> bool:
        """Return whether a trial has not ended, or ended only because its sweep failed."""
        return info.state in _OPEN or (info.state == "pruned" and info.reason in self._ends)

    def _offsets(self, made: Run, numbers: list[int]) -> dict[int, int]:
        """Return the iterations from which trials with a checkpoint continue; trials that start again are left out."""
        found = {}
        for n in numbers:
            if self._restart and made.infos[n].state == "failed":
                continue
            folder = Path(next(t for t in made.trials if t.number == n).local_path)
            if (result := next((r for r, _ in saved_results(folder)), None)) is not None:
                found[n] = int(result["training_iteration"])
        return found

    def _begun(self, made: Run) -> Begun:
        """Return the initial state of the experiment.

        Points that were not tried yet are drawn from the current space.
        """
        begun: Begun = pickle.loads(made.begun)
        if begun.searcher is None and made.plan.earlier is not None:
            first, count = max(made.infos, default=-1) + 1, len(begun.points)
            drawn = copy.deepcopy(begun.generator or BasicVariantGenerator()).draw(made.plan.space, -1)
            begun.points[first:] = [config for _, config in itertools.islice(drawn, first, count)]
        return begun

    def _brains(self, made: Run, begun: Begun) -> tuple[Any, Any, dict[str, Trial]]:
        """Return search algorithm, scheduler and the trials that it knows, with the newest learned state."""
        plain = begun.searcher is None and type(begun.scheduler) is FIFOScheduler
        found = None if plain and asked_in_trial(made.plan.stop) else _whole(made)
        if found is None:
            return begun.searcher, begun.scheduler, {}
        searcher, scheduler, trials, made.plan.stop = found
        if searcher is None:
            return searcher, scheduler, trials
        by_id = {trial.trial_id: trial for trial in made.trials}
        for name, known in trials.items():
            trial = by_id.get(name)
            if known.is_finished() or (trial is not None and not trial.is_finished()):
                continue
            # It has ended since, or the server does not know it.
            last = trial.last_result if trial is not None else None
            failed = trial is None or trial.status == Trial.ERROR
            searcher.on_trial_complete(name, result=last or None, error=failed)
        return searcher, scheduler, trials


def _whole(made: Run) -> Any:
    """Wait until the learned state covers all trials; another process writes it soon after a trial starts."""
    names, began = {trial.trial_id for trial in made.trials}, time.monotonic()
    while True:
        found = learned(made.plan.folder)
        patience = _PATIENCE if found is None else _ENDING
        if (found is not None and names <= found[2].keys()) or time.monotonic() > began + patience:
            return found
        time.sleep(0.05)


def _after(infos: dict[int, TrialResult], numbers: list[int]) -> int:
    return max([*infos, *numbers], default=-1) + 1


def _end(handle: SweepHandle) -> None:
    """Stop a sweep that has not ended, and wait until its trials have saved."""
    if handle.info().state not in ENDED_SWEEP:
        handle.stop()
        for _ in handle.watch():
            pass
