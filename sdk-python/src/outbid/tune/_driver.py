"""Runs an experiment: submits it as a sweep, follows the sweep, and calls the user's callbacks."""

from __future__ import annotations

import copy
import inspect
import itertools
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outbid._client.client import Client, default_client
from outbid._client.handle import SweepHandle, _Cancel
from outbid._client.interrupt import interrupted
from outbid._core.limits import sent_name
from outbid._core.trace_context import span
from outbid._core.user_warning import warn_user
from outbid._display.display import Display, NoDisplay, make_display
from outbid._results.model import Update
from outbid._search.sweep import Sweep
from outbid._search.tuners import Plugin
from outbid.tune import _order
from outbid.tune._config import Placement, RunConfig, TuneConfig, placement_of, storage_of
from outbid.tune._controller import Experiment, pack
from outbid.tune._dicts import flatten_dict
from outbid.tune._encoding import keep_large
from outbid.tune._errors import TuneError, unsupported
from outbid.tune._missing_checkpoints import MissingCheckpoints
from outbid.tune._missing_metric import MissingMetric
from outbid.tune._object_store import resolve
from outbid.tune._plan import DEFAULT_METRIC, Plan, name_of
from outbid.tune._record import Begun, Run, collect
from outbid.tune._registry import find_trainable
from outbid.tune._resources import growth_of, needed
from outbid.tune._running_time import RunningTime, budget
from outbid.tune._searcher_state import learn
from outbid.tune._trainable import depends, placement_for, unwrapped
from outbid.tune._trial import Trial
from outbid.tune._trial_process import Work
from outbid.tune._variants import find
from outbid.tune._watch import Watch
from outbid.tune.schedulers import FIFOScheduler, create_scheduler
from outbid.tune.search import BasicVariantGenerator, Searcher, create_searcher
from outbid.tune.search._searcher import _Around

_ENDLESS = 10_000  # trials that are drawn for num_samples=-1
_MOST_RESTARTS = 1000  # what a server accepts; also for max_failures=-1
_MANY = 100_000  # maximum variants of one experiment


def begin(
    trainable: Any,
    space: dict[str, Any] | None,
    tune: TuneConfig,
    run: RunConfig,
    *,
    placement: Placement | None = None,
) -> tuple[Run, SweepHandle]:
    """Submit an experiment."""
    name = name_of(trainable)
    trainable = find_trainable(trainable)
    _check_checkpoints(trainable, run)
    if space is not None and not isinstance(space, Mapping):
        raise ValueError(f"param_space must be a dict, got {space!r:.80}")
    space = keep_large(dict(space or {}))
    plan = Plan(
        trainable=trainable,
        name=name,
        folder="",
        prefix="",
        space=space,
        metric="",
        mode="max",
        placement=placement or placement_of(None),
        checkpoints=run.checkpoint_config,  # type: ignore[arg-type]
        stop=_stopper(run.stop),
        trial_name=tune.trial_name_creator,
        trial_dirname=tune.trial_dirname_creator,
        chdir=os.environ.get("RAY_CHDIR_TO_TRIAL_DIR", "1") != "0",
        log_to_file=run.log_to_file,
        as_ray=getattr(sys.modules.get("ray"), "_outbid", False),
    )
    plan.folder = str(storage_of(run.storage_path) / (run.name or f"{name}_{plan.began:%Y-%m-%d_%H-%M-%S}"))
    generator = copy.deepcopy(tune.search_alg) if isinstance(tune.search_alg, BasicVariantGenerator) else None
    experiment, limit = _experiment(plan, tune)
    plan.samples = experiment.samples
    if placement is None:
        plan.placement = _needs(trainable, experiment, space)
    client = default_client()
    plan.growth = growth_of(experiment.scheduler, plan.placement, client)
    sweep = _sweep(experiment, budget(tune, plan.stop), run, limit, client)
    e = experiment
    begun = Begun(e.points, e.samples, e.searcher, e.scheduler, generator, limit).to_bytes()
    handle = sweep.submit(client)
    made = Run(plan, handle.id, client.url, tune=tune, config=run, begun=begun)
    made.time = RunningTime(plan.folder, new=True)
    made.save()
    return made, handle


@span("outbid.run")
def run_new(
    trainable: Any,
    space: dict[str, Any] | None,
    tune: TuneConfig,
    run: RunConfig,
    *,
    placement: Placement | None = None,
) -> Run:
    """Submit an experiment and wait for its end."""
    return follow(*begin(trainable, space, tune, run, placement=placement), tune, run)


def _check_checkpoints(trainable: Any, run: RunConfig) -> None:
    """Raise ValueError for checkpoint settings without effect: a training function reports its own checkpoints."""
    if inspect.isclass(unwrapped(trainable)):
        return
    for name in ("checkpoint_frequency", "checkpoint_at_end"):
        if getattr(run.checkpoint_config, name, None):
            raise ValueError(
                f"CheckpointConfig: {name} is for a tune.Trainable; a training function saves by "
                "tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(path))"
            )


def _needs(trainable: Any, experiment: Experiment, space: dict[str, Any]) -> Placement:
    """Return the resources of each trial: the maximum over trials if they depend on the configuration."""
    if not depends(trainable):
        return placement_for(trainable, space)
    drawn = BasicVariantGenerator(random_state=0).draw(space, 1)
    points = experiment.points or [config for _, config in itertools.islice(drawn, 1)]
    found = [placement_for(trainable, resolve(point)) for point in points]
    most = max(found, key=lambda one: tuple(one.required_resources.get(name, 0.0) for name in ("GPU", "CPU")))
    if any(one.required_resources != most.required_resources for one in found):
        warn_user(
            f"trials need different resources; each gets the largest: {most.required_resources}",
        )
    return most


def resubmit(
    made: Run, experiment: Experiment, config: RunConfig, *, limit: int, left: float | None
) -> tuple[Run, SweepHandle]:
    """Submit the remaining part of an experiment as a new sweep, limited to `left` seconds unless that is None.

    Trials keep their numbers and directories.
    """
    client = default_client()
    handle = _sweep(experiment, left, config, limit, client).submit(client)
    again = Run(experiment.plan, handle.id, client.url, tune=made.tune, config=config, begun=made.begun)
    again.time = made.time
    return again, handle


def follow(made: Run, handle: SweepHandle, tune: TuneConfig, run: RunConfig) -> Run:
    """Wait for the end of an experiment and call its callbacks."""
    watch, criteria, unsaved = Watch(made, tune, run), MissingMetric(made.plan.stop), MissingCheckpoints(tune.scheduler)
    display: Display = NoDisplay()
    fail_fast: Any = run.failure_config and run.failure_config.fail_fast
    before = {n for n, t in made.infos.items() if t.state == "failed"}  # failed before this run
    made.time.tick(running=True)
    try:
        try:
            display = make_display(
                run.verbose != 0 and not watch.shows, handle._explain, handle._client.page_of(handle.id)
            )
            watch.begin()
            for update in handle._watch(watch.wants_reports, None, _Cancel()):
                display.update(update)
                made.time.tick(running=update.sweep.state == "running")
                _take(made, update)
                criteria.look(update.trials)
                unsaved.look(update.trials)
                watch.update(update)
                failed = fail_fast and any(t.state == "failed" and t.number not in before for t in update.trials)
                if (failed or watch.enough) and update.sweep.state not in ("stopping", "stopped", "done", "failed"):
                    handle.stop()
        except KeyboardInterrupt:
            told = interrupted(handle, handle._client, display, restore=_restore(made))
            made.time.tick(running=not handle._client.passing)
            raise told from None
        made.time.tick(running=False)
        result = handle.result()
        display.end(result.sweep, result.trials)
    finally:
        display.close()
    learn(made.plan.folder, tune.search_alg, tune.scheduler)
    made.infos = {t.number: t for t in result.trials}
    if result.sweep.state == "failed":
        made.failed = result.sweep.reason
    made.trials = [collect(made.plan, info) for info in result.trials]
    watch.end(made.trials)
    criteria.end(made.trials)
    unsaved.end(made.trials, result.trials)
    errors = sum(t.status == Trial.ERROR for t in made.trials)
    if made.failed and not errors:
        raise TuneError(f"the experiment failed: {made.failed}")
    if made.failed and errors < (made.plan.samples or len(made.trials)):
        warn_user(f"the experiment ended early, after {errors} failed trials: {made.failed}")
    if fail_fast == "raise":
        for trial, info in zip(made.trials, result.trials, strict=True):
            if trial.error is not None and info.number not in before:
                raise trial.error
    return made


def _restore(made: Run) -> str:
    """Return the Python code that continues an experiment."""
    return f"tune.Tuner.restore({made.plan.folder!r}, trainable={made.plan.name}).fit()"


def _take(made: Run, update: Update) -> None:
    made.infos.update({t.number: t for t in update.trials})


def _stopper(stop: Any) -> Any:
    from outbid.tune.stopper import CombinedStopper, FunctionStopper, Stopper

    if stop is None or isinstance(stop, Stopper):
        return stop
    if isinstance(stop, Mapping):
        criteria = flatten_dict(stop)
        for name, enough in criteria.items():
            if isinstance(enough, (str, list, tuple)) or _order.number(enough) is None:
                raise ValueError(f"stop: {name!r} must be the number that ends a trial, got {enough!r:.80}")
        return criteria
    if isinstance(stop, (list, tuple)) and all(isinstance(one, Stopper) for one in stop):
        return CombinedStopper(*stop)
    if callable(stop):
        return FunctionStopper(stop)
    raise ValueError(f"stop must be a dict, a function of (trial_id, result), or a Stopper, got {stop!r:.80}")


def _experiment(plan: Plan, tune: TuneConfig) -> tuple[Experiment, int]:
    """Return an experiment with the metric set in its plan, and the maximum of concurrent trials (0: unlimited)."""
    search: Any = tune.search_alg
    if isinstance(search, str):
        search = create_searcher(search, metric=tune.metric, mode=tune.mode)
    scheduler: Any = tune.scheduler or FIFOScheduler()
    if isinstance(scheduler, str):
        scheduler = create_scheduler(scheduler)
    if search is None:
        search = BasicVariantGenerator()
    metric, mode, plan.several = _goal(tune, search, scheduler)
    plan.metric, plan.mode = metric or DEFAULT_METRIC, mode or "max"
    if not scheduler.set_search_properties(metric, mode):
        raise ValueError("metric and mode are given twice, to the scheduler and to TuneConfig: leave out one of them")
    if getattr(scheduler, "compares", False) and not (metric and mode):
        raise ValueError(
            f"{type(scheduler).__name__} compares trials: give metric and mode, to it or to TuneConfig; "
            f"got metric={metric!r}, mode={mode!r}"
        )
    limit = int(tune.max_concurrent_trials or 0) or int(getattr(search, "max_concurrent", 0) or 0)
    if isinstance(search, BasicVariantGenerator):
        plan.prefix = search.prefix
        if search.total(plan.space, tune.num_samples) > _MANY:
            unsupported(f"more than {_MANY} variants", "draw them at random, or with OptunaSearch")
        drawn = search.draw(plan.space, tune.num_samples)
        points = [config for _, config in itertools.islice(drawn, _ENDLESS if tune.num_samples == -1 else None)]
        return Experiment(plan, scheduler, None, points, len(points)), limit
    if not isinstance(search, Searcher) and not hasattr(search, "suggest"):
        unsupported(f"search algorithm {type(search).__name__}", "use OptunaSearch, or a subclass of Searcher")
    plan.prefix, plan.searched = BasicVariantGenerator().prefix, True
    if not search.set_search_properties(tune.metric, tune.mode, plan.space) and (left := find(plan.space)):
        raise ValueError(
            f"{type(search).__name__} does not use param_space, which has parameters "
            f"({', '.join('/'.join(map(str, path)) for path, _ in left)}): give it the space when you make it, and "
            "only constants as param_space"
        )
    return Experiment(plan, scheduler, search, [], 0 if tune.num_samples == -1 else tune.num_samples), limit


def _goal(tune: TuneConfig, search: Any, scheduler: Any) -> tuple[str | None, str | None, bool]:
    """Return metric and mode from the first object that defines them, and whether there are several objectives."""
    metric, mode = tune.metric, tune.mode
    inner = search
    while isinstance(inner, _Around):
        inner = inner.searcher
    for other in (scheduler, getattr(scheduler, "_base", None), inner):
        metric = metric or getattr(other, "_metric", None)
        mode = mode or getattr(other, "_mode", None)
    several = isinstance(metric, (list, tuple)) and len(metric) > 1
    if isinstance(metric, (list, tuple)):
        metric, mode = metric[0], (mode[0] if isinstance(mode, (list, tuple)) else mode)
    # A comparing scheduler or searcher with only a mode uses the functions' return values. Otherwise a mode has no
    # effect.
    if not metric and mode and (getattr(scheduler, "compares", False) or not isinstance(search, BasicVariantGenerator)):
        metric = "_metric"
    return metric, mode, several


def _sweep(experiment: Experiment, span: float | None, run: RunConfig, limit: int, client: Client) -> Sweep:
    plan = experiment.plan
    python = sys.executable if client.local else "python3"
    name = re.sub(r"[^a-z0-9]+", "-", Path(plan.folder).name.lower()).strip("-0123456789")[:40].strip("-")
    return Sweep(
        Work(plan),
        {},
        metric=sent_name(plan.metric),
        mode=plan.mode,  # type: ignore[arg-type]
        tuner=Plugin([python, "-m", "outbid.tune._controller"], settings={"experiment": pack(experiment)}),
        resources=needed(plan, client),
        trials=experiment.samples or None,
        concurrency=limit or None,
        wall_time=span,
        max_restarts=_restarts(run),
        name=name or "experiment",
    )


def _restarts(run: RunConfig) -> int:
    """Return the restarts of a trial that fails; max_failures=-1 means as many as a server accepts."""
    failures = run.failure_config.max_failures if run.failure_config else 0
    return _MOST_RESTARTS if failures < 0 else min(failures, _MOST_RESTARTS)
