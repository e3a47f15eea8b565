"""What the server runs for an experiment: draws its configurations, and asks its scheduler about every result."""

from __future__ import annotations

import base64
import copy
import math
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from outbid import _pickle
from outbid.plugin import Action, Clone, Create, End, Exit, Outlook, Pause, Report, Train, serve
from outbid.plugin._pickled import Pickled
from outbid.tune._encoding import encode
from outbid.tune._learned import Learned
from outbid.tune._named import by_name
from outbid.tune._plan import NOTHING, Plan
from outbid.tune._trial import Trial
from outbid.tune.schedulers._base import Exploit, TrialScheduler
from outbid.tune.search._searcher import Searcher


class Experiment:
    """An experiment on its way to the program: a search algorithm or drawn configurations, and a scheduler.

    `points` are configurations in their order; without them `searcher` is asked for `samples` (0: no end).
    """

    def __init__(self, plan: Plan, scheduler: Any, searcher: Any, points: list[Any] | None, samples: int) -> None:
        self.plan, self.scheduler, self.searcher = plan, scheduler, searcher
        self.points, self.samples = points, samples
        self.randomness = (random.getstate(), np.random.get_state())

    def __call__(self) -> Experiment:
        """Return itself: it travels as a function."""
        return self


def pack(experiment: Experiment) -> str:
    """Return an experiment as text, without what only trials need: the function, and large objects."""
    light = copy.copy(experiment)
    light.plan = replace(experiment.plan, trainable=None)
    with by_name():
        return base64.b64encode(_pickle.dump(light)).decode()


class Controller:
    """What schedulers see of the experiment."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def get_trials(self) -> list[Trial]:
        """Return every trial."""
        return self._program.trials

    def get_live_trials(self) -> list[Trial]:
        """Return those that have not ended."""
        return [t for t in self._program.trials if not t.is_finished()]

    def no_more_trials(self) -> bool:
        """Whether all trials that there will be are there."""
        return self._program.drawn_out

    def stop_trial(self, trial: Trial) -> None:
        """End a trial, whoever is asked about."""
        self._program.later.append(End(trial.number, completed=False, reason="stopped by the scheduler"))
        self._program.over(trial, Trial.TERMINATED)

    def exploit_trial(self, trial: Trial, decision: Exploit) -> None:
        """Let a trial that waits go on from another's checkpoint."""
        self._program.later.extend(self._program.clone(trial, decision))


class Program(Pickled):
    """Ray Tune's loop as a tuner of Outbid's."""

    name = "ray-tune"

    def start(self) -> None:
        """Take up the experiment."""
        packed = self.spec.settings.text("experiment", "")
        if self.state is None:
            experiment: Experiment = _pickle.load(base64.b64decode(packed))()
            self.state = {"experiment": experiment, "trials": [], "steps": {}, "drawn_out": False, "free": set()}
            random.setstate(experiment.randomness[0])
            np.random.set_state(experiment.randomness[1])
        self.experiment: Experiment = self.state["experiment"]
        self.trials: list[Trial] = self.state["trials"]
        self.scheduler: TrialScheduler = self.experiment.scheduler
        self.later: list[Action] = []
        self.controller = Controller(self)
        self.nothing = False
        self.learned = Learned()

    @property
    def drawn_out(self) -> bool:
        """Whether there will be no more trials than there are."""
        return bool(self.state["drawn_out"])

    def ask(self, n: int) -> Iterable[Create | Train]:
        """Let paused trials go on, and draw new ones."""
        out: list[Create | Train] = []
        while len(out) < n:
            created = None if self.drawn_out else self._create()
            action = created or self._resume()
            if action is None:
                break
            out.append(action)
        self.nothing = not out
        return out

    def reported(self, report: Report) -> Iterable[Action]:
        """Decide on a result of a trial that trains on meanwhile."""
        return self._decide(report, waits=False)

    def reached(self, report: Report) -> Iterable[Action]:
        """Decide on a result of a trial that waits."""
        return self._decide(report, waits=True)

    def exited(self, exit: Exit) -> Iterable[Action]:
        """Take in a trial's end."""
        trial = self.trials[exit.trial]
        if trial.is_finished():
            return ()
        if exit.failed:
            self.over(trial, Trial.ERROR)
            self.scheduler.on_trial_error(self.controller, trial)
        else:
            self.over(trial, Trial.TERMINATED)
            self.scheduler.on_trial_complete(self.controller, trial, trial.last_result)
        return self._all([])

    def exhausted(self) -> bool:
        """Whether nothing is left to begin, or to go on with."""
        return self.drawn_out and not any(t.status == Trial.PAUSED for t in self.trials)

    def waiting(self) -> bool:
        """Whether there is nothing to run until somebody is heard of."""
        return self.nothing

    def outlook(self) -> Outlook:
        """Say how many trials there will be."""
        e = self.experiment
        return Outlook(trials=len(e.points) if e.points is not None else e.samples)

    def over(self, trial: Trial, status: str) -> None:
        """Note a trial's end, and tell the search algorithm."""
        trial.status = status
        self.state["free"].discard(trial.number)
        searcher = self.experiment.searcher
        if searcher is not None:
            searcher.on_trial_complete(trial.trial_id, result=trial.last_result or None, error=status == Trial.ERROR)
        self.nothing = False
        self.learned.keep(self.experiment, last=self.drawn_out and all(t.is_finished() for t in self.trials))

    def clone(self, trial: Trial, decision: Exploit) -> Iterator[Action]:
        """Let a trial go on from another's checkpoint, or from its own with another configuration."""
        trial.config = copy.deepcopy(decision.config)
        trial.status = Trial.RUNNING
        step = self.state["steps"][trial.number]
        until = max(self.scheduler.target(trial, self.state["steps"][decision.source.number]), step + 1)
        other = decision.source.number
        reason = "goes on with another configuration" if other == trial.number else f"goes on from trial {other}"
        yield Clone(trial.number, decision.source.number, encode(trial.config), until, reason=reason)

    def _create(self) -> Create | None:
        e, number = self.experiment, self.created_all()
        trial_id = f"{e.plan.prefix}_{number:05d}"
        config: Any
        if e.points is not None:
            config = copy.deepcopy(e.points[number]) if number < len(e.points) else Searcher.FINISHED
        elif e.samples and number >= e.samples:
            config = Searcher.FINISHED
        else:
            config = e.searcher.suggest(trial_id)
        if isinstance(config, str) and config == Searcher.FINISHED:
            self.state["drawn_out"] = True
            return None
        if config is None:
            return None
        if e.points is None:
            config = merge(e.plan.space, config)
        trial = Trial(number, trial_id, e.plan.name, config)
        named = e.plan.trial(number, config)
        trial.__dict__.update({k: v for k, v in named.__dict__.items() if k not in ("config", "number", "trial_id")})
        self.trials.append(trial)
        self.scheduler.on_trial_add(self.controller, trial)
        trial.status = Trial.RUNNING
        self.state["steps"][number] = 0
        last = len(e.points) if e.points is not None else e.samples
        self.state["drawn_out"] = bool(last) and number + 1 >= last
        return Create(encode(trial.config), self.scheduler.target(trial, 0))

    def created_all(self) -> int:
        """Count the trials so far."""
        return len(self.trials)

    def _resume(self) -> Train | None:
        trial = self.scheduler.choose_trial_to_run(self.controller)
        if trial is None or trial.status != Trial.PAUSED:
            return None
        trial.status = Trial.RUNNING
        return Train(trial.number, self._next(trial))

    def _next(self, trial: Trial) -> int:
        """Return a trial's next target; one that has none from here on has a far one, as targets only grow."""
        step = self.state["steps"][trial.number]
        return self.scheduler.target(trial, step) or step + (1 << 40)

    def _decide(self, report: Report, *, waits: bool) -> Iterable[Action]:
        trial = self.trials[report.trial]
        if trial.is_finished():
            return ()
        self.state["steps"][trial.number] = max(report.step, self.state["steps"][trial.number])
        if NOTHING in report.metrics:
            return [Train(trial.number, self._next(trial))] if waits else ()
        result = self._result(trial, report)
        trial.last_result = result
        if self.experiment.searcher is not None:
            self.experiment.searcher.on_trial_result(trial.trial_id, result)
        decision = self.scheduler.on_trial_result(self.controller, trial, result)
        out: list[Action] = []
        if isinstance(decision, Exploit):
            if waits:
                out.extend(self.clone(trial, decision))
        elif decision == TrialScheduler.STOP:
            self.over(trial, Trial.TERMINATED)
            self.scheduler.on_trial_remove(self.controller, trial)
            out.append(End(trial.number, completed=False, reason=f"stopped by {type(self.scheduler).__name__}"))
        elif waits and decision == TrialScheduler.PAUSE:
            trial.status = Trial.PAUSED
            out.append(Pause(trial.number, reason="waits for the others"))
            self.nothing = False
        elif waits:
            out.append(Train(trial.number, self._next(trial)))
        return self._all(out)

    def _all(self, out: list[Action]) -> list[Action]:
        """Return the answers, with those that the scheduler gave on others."""
        later, self.later = self.later, []
        return [*out, *later]

    def _result(self, trial: Trial, report: Report) -> dict[str, Any]:
        result: dict[str, Any] = {
            "training_iteration": report.step,
            "timestamp": int(time.time()),
            **{k: v for k, v in report.metrics.items() if not math.isnan(v) or k == self.spec.metric},
            "trial_id": trial.trial_id,
            "config": trial.config,
            "done": False,
        }
        if not math.isnan(report.metric):
            result.setdefault(self.spec.metric, report.metric)
        result["training_iteration"] = int(result["training_iteration"])
        return result


def merge(space: Mapping[str, Any], drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Return a space's constants with what was drawn, whose names may be paths with slashes."""
    out: dict[str, Any] = copy.deepcopy(dict(space))
    for name, value in drawn.items():
        inside: Any = out
        keys: list[Any] = str(name).split("/") if isinstance(name, str) and name not in space else [name]
        for key in keys[:-1]:
            if isinstance(inside, list):
                key = int(key)
            elif not isinstance(inside.get(key), (dict, list)):
                inside[key] = {}
            inside = inside[key]
        if isinstance(inside, list):
            inside[int(keys[-1])] = value
        elif isinstance(value, dict) and isinstance(inside.get(keys[-1]), dict):
            inside[keys[-1]] = merge(inside[keys[-1]], value)
        else:
            inside[keys[-1]] = value
    return out


def main() -> None:
    """Serve until the server has no more use for it."""
    serve(Program())


if __name__ == "__main__":
    main()
