"""Runs Syne Tune's schedulers as a plugin of the server. The public module is `outbid.synetune`."""

from __future__ import annotations

import base64
import datetime
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from outbid._core import function_pickle
from outbid._core.errors import InvalidError, MissingExtraError
from outbid._search.space import Parameter, choice, integer, loguniform, normal, uniform
from outbid._search.sweep import Sweep
from outbid._search.tuners import Plugin
from outbid._training.trial import Trial
from outbid.plugin import Action, Create, End, Exit, Report, Train, serve
from outbid.plugin._pickled_tuner import Pickled

try:
    from syne_tune.backend.trial_status import Trial as TheirTrial
    from syne_tune.config_space import Categorical, Float, Integer
    from syne_tune.optimizer.scheduler import SchedulerDecision
except ImportError:
    raise MissingExtraError("outbid.synetune needs Syne Tune: pip install syne-tune") from None

__all__ = ["sweep"]

_EPOCH = datetime.datetime(2000, 1, 1)  # Syne Tune's schedulers do not use a trial's creation time


def sweep(train: Callable[[Trial], Any], scheduler: Any, **options: Any) -> Sweep:
    """Return a sweep of a training function whose trials a Syne Tune scheduler draws and stops.

    `options` are those of `ob.Sweep`, except `space`, `metric`, `mode` and `tuner`, which the scheduler defines: give
    `trials`, or another limit. Steps, as `trial.steps()` counts them, are the scheduler's `time_attr`. Trials wait for
    its decision at the rungs of its brackets if it has any, otherwise after every step. Schedulers that pause trials,
    or start them from checkpoints of others, such as PBT, fail the sweep: use `ob.PBT` or `ob.ASHA`.
    """
    names = scheduler.metric_names()
    metric = names if isinstance(names, str) else names[0]
    if not isinstance(names, str) and len(names) > 1:
        raise ValueError(f"sweep: {type(scheduler).__name__} has {len(names)} metrics, but only one is supported")
    packed = base64.b64encode(function_pickle.dump(_Packed(scheduler))).decode()
    return Sweep(
        train,
        {name: _parameter(domain, name) for name, domain in scheduler.config_space.items()},
        metric=metric,
        mode=scheduler.metric_mode(),
        tuner=Plugin(
            [sys.executable, "-m", "outbid.integrations.synetune"],
            max_steps=int(getattr(scheduler, "max_t", 0)),
            settings={"scheduler": packed},
        ),
        **options,
    )


class _Packed:
    """Sends a scheduler in the way that functions are sent."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler

    def __call__(self) -> Any:
        return self.scheduler


def _parameter(domain: Any, name: str) -> Any:
    """Convert a Syne Tune domain to a parameter; other values become constants."""
    sampler = type(domain.get_sampler()).__name__.lstrip("_") if hasattr(domain, "get_sampler") else ""
    log = sampler in ("LogUniform", "ReverseLogUniform")
    made: Parameter
    if isinstance(domain, Categorical):
        made = choice(domain.categories)
    elif isinstance(domain, Integer):
        made = integer(domain.lower, domain.upper, log=log)
    elif isinstance(domain, Float) and sampler == "Normal":
        made = normal(domain.sampler.mean, domain.sampler.sd)
    elif isinstance(domain, Float):
        made = (loguniform if log else uniform)(domain.lower, domain.upper)
    elif sampler:
        raise TypeError(
            f"sweep: {name}: Syne Tune's {type(domain).__name__} has no counterpart; use a choice or a range"
        )
    else:
        return domain
    return made


class Program(Pickled):
    """A Syne Tune scheduler as an Outbid tuner."""

    name = "syne-tune"

    def start(self) -> None:
        """Load the scheduler."""
        packed = self.spec.settings.text("scheduler", "")
        if self.state is None:
            random.seed(self.spec.seed)
            np.random.seed(self.spec.seed % (1 << 32))
            scheduler = function_pickle.load(base64.b64decode(packed))()
            self.state = {"scheduler": scheduler, "configs": [], "steps": {}, "over": set(), "drawn_out": False}
        self.scheduler = self.state["scheduler"]

    def ask(self, n: int) -> Iterable[Create | Train]:
        """Start the trials that the scheduler suggests."""
        for _ in range(n):
            suggestion = None if self.exhausted() else self.scheduler.suggest()
            if suggestion is None:
                self.state["drawn_out"] = True
                return
            if not suggestion.spawn_new_trial_id or suggestion.checkpoint_trial_id is not None:
                raise InvalidError(
                    f"tuner: {type(self.scheduler).__name__} starts trials from checkpoints, which is not supported; "
                    "use ob.PBT or ob.ASHA"
                )
            config = {name: suggestion.config[name] for name in self.scheduler.config_space}
            self.state["configs"].append(config)
            self.scheduler.on_trial_add(self._trial(len(self.state["configs"]) - 1))
            yield Create(config, until_step=self._next(0), reason=f"drawn by {type(self.scheduler).__name__}")

    def reported(self, report: Report) -> Iterable[Action]:
        """Ask the scheduler about a report."""
        if report.trial in self.state["over"] or report.step <= self.state["steps"].get(report.trial, 0):
            return ()  # repeated after a restart
        if report.metric != report.metric:
            return ()
        self.state["steps"][report.trial] = report.step
        decision = self.scheduler.on_trial_result(self._trial(report.trial), self._result(report))
        if decision == SchedulerDecision.CONTINUE:
            return ()
        if decision == SchedulerDecision.PAUSE:
            raise InvalidError(
                f"tuner: {type(self.scheduler).__name__} pauses trials, which is not supported; use ob.ASHA"
            )
        self.state["over"].add(report.trial)
        done = 0 < self.spec.max_steps <= report.step
        return (End(report.trial, completed=done, reason=f"{type(self.scheduler).__name__} says {decision.lower()}"),)

    def reached(self, report: Report) -> Iterable[Action]:
        """Continue a trial, unless the scheduler ends it here or it was trained to the end."""
        if ended := tuple(self.reported(report)):
            return ended
        if report.step >= self.spec.max_steps:
            return (End(report.trial, reason="trained to its end"),)
        return (Train(report.trial, self._next(report.step), reason=f"{type(self.scheduler).__name__} says continue"),)

    def exited(self, exit: Exit) -> Iterable[Action]:
        """Inform the scheduler of a trial's end."""
        trial = self._trial(exit.trial)
        self.state["over"].add(exit.trial)
        if exit.failed or exit.metric != exit.metric:
            self.scheduler.on_trial_error(trial)
        else:
            self.scheduler.on_trial_complete(trial, self._result(exit))
        return ()

    def exhausted(self) -> bool:
        """Return whether the scheduler has run out of suggestions."""
        return bool(self.state["drawn_out"]) or super().exhausted()

    def _next(self, step: int) -> int:
        """Return the step of the scheduler's next decision, or 0."""
        most = self.spec.max_steps
        rungs = [level for bracket in getattr(self.scheduler, "brackets", ()) for level, _ in bracket.rungs]
        return min([level for level in rungs if level > step] or [most]) if rungs or not most else step + 1

    def _trial(self, number: int) -> Any:
        return TheirTrial(trial_id=number, config=self.state["configs"][number], creation_time=_EPOCH)

    def _result(self, heard: Report | Exit) -> Mapping[str, Any]:
        counted = str(getattr(self.scheduler, "time_attr", "step"))
        return {**heard.metrics, self.spec.metric: heard.metric, counted: heard.step}


if __name__ == "__main__":
    serve(Program())
