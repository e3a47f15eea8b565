"""The controller of an experiment, run by the server: draws configurations and asks the scheduler about results."""

from __future__ import annotations

import base64
import copy
import math
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from outbid._core import function_pickle
from outbid.plugin import Action, Clone, Create, End, Exit, Outlook, Pause, Report, Train, serve
from outbid.plugin._pickled_tuner import Pickled
from outbid.tune._encoding import encode
from outbid.tune._object_store import by_name
from outbid.tune._plan import NOTHING, Plan
from outbid.tune._result_files import whole_result
from outbid.tune._searcher_state import Learned
from outbid.tune._trial import Trial
from outbid.tune._variants import assign, find
from outbid.tune.schedulers._base import Exploit, TrialScheduler
from outbid.tune.search._searcher import Searcher
from outbid.tune.stopper import Stopper, asked_in_trial


class Experiment:
    """An experiment that is sent to the controller: a search algorithm or drawn configurations, and a scheduler.

    `points` are the first configurations in order; `searcher` proposes the others, up to `samples` in total (0: no
    limit). `known` are trials that the scheduler knows from an earlier run, by id.
    """

    def __init__(
        self,
        plan: Plan,
        scheduler: Any,
        searcher: Any,
        points: list[Any],
        samples: int,
        known: dict[str, Trial] | None = None,
    ) -> None:
        self.plan, self.scheduler, self.searcher = plan, scheduler, searcher
        self.points, self.samples, self.known = points, samples, known or {}
        self.randomness = (random.getstate(), np.random.get_state())

    def __call__(self) -> Experiment:
        """Return itself; it is sent like a function."""
        return self


def pack(experiment: Experiment) -> str:
    """Return an experiment as text, without the parts that only trials need: the function and large objects."""
    light = copy.copy(experiment)
    light.plan = replace(experiment.plan, trainable=None)
    with by_name():
        return base64.b64encode(function_pickle.dump(light)).decode()


class Controller:
    """The interface of the experiment for schedulers."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def get_trials(self) -> list[Trial]:
        """Return every trial."""
        return self._program.trials

    def get_live_trials(self) -> list[Trial]:
        """Return the trials that have not ended."""
        return [t for t in self._program.live.values() if not t.is_finished()]

    def no_more_trials(self) -> bool:
        """Whether all trials have been created."""
        return self._program.drawn_out

    def stop_trial(self, trial: Trial) -> None:
        """End a trial, also one that was not asked about."""
        self._program.later.append(End(trial.number, completed=False, reason="stopped by the scheduler"))
        self._program.over(trial, Trial.TERMINATED)

    def exploit_trial(self, trial: Trial, decision: Exploit) -> None:
        """Continue a waiting trial from another trial's checkpoint."""
        self._program.later.extend(self._program.clone(trial, decision))


class Program(Pickled):
    """Ray Tune's loop as an Outbid tuner."""

    name = "ray-tune"

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()
        """Held while an event is handled."""

    def start(self) -> None:
        """Load the experiment."""
        packed = self.spec.settings.text("experiment", "")
        if self.state is None:
            experiment: Experiment = function_pickle.load(base64.b64decode(packed))()
            self.state = {"experiment": experiment, "trials": [], "steps": {}, "offsets": {}, "drawn_out": False}
            random.setstate(experiment.randomness[0])
            np.random.set_state(experiment.randomness[1])
        self.experiment: Experiment = self.state["experiment"]
        self.trials: list[Trial] = self.state["trials"]
        # Asked about after every event, when no loop over all trials is affordable.
        self.live = {t.number: t for t in self.trials if not t.is_finished()}
        self.paused = {number: t for number, t in self.live.items() if t.status == Trial.PAUSED}
        self.scheduler: TrialScheduler = self.experiment.scheduler
        self.later: list[Action] = []
        self.controller = Controller(self)
        self.nothing = False
        self.learned = Learned(self.lock)
        stop = self.experiment.plan.stop
        self.stopper: Stopper | None = None if asked_in_trial(stop) else stop

    @property
    def drawn_out(self) -> bool:
        """Whether all trials have been created."""
        return bool(self.state["drawn_out"])

    def ask(self, n: int) -> Iterable[Create | Train]:
        """Resume paused trials, and draw new ones."""
        out: list[Create | Train] = []
        with self.lock:
            while len(out) < n:
                created = None if self.drawn_out else self._create()
                action = created or self._resume()
                if action is None:
                    break
                out.append(action)
        self.nothing = not out
        return out

    def reported(self, report: Report) -> Iterable[Action]:
        """Decide on a result of a trial that is still running."""
        with self.lock:
            return self._decide(report, waits=False)

    def reached(self, report: Report) -> Iterable[Action]:
        """Decide on a result of a trial that waits."""
        with self.lock:
            return self._decide(report, waits=True)

    def exited(self, exit: Exit) -> Iterable[Action]:
        """Handle a trial's end."""
        trial = self.trials[exit.trial]
        if trial.is_finished():
            return ()
        with self.lock:
            if exit.failed:
                self.over(trial, Trial.ERROR)
                self.scheduler.on_trial_error(self.controller, trial)
            else:
                self.over(trial, Trial.TERMINATED)
                self.scheduler.on_trial_complete(self.controller, trial, trial.last_result)
            return self._all([])

    def exhausted(self) -> bool:
        """Whether all trials have started and no paused one is left."""
        return self.drawn_out and not any(t.status == Trial.PAUSED for t in self.paused.values())

    def waiting(self) -> bool:
        """Whether nothing can run until a trial reports."""
        return self.nothing

    def outlook(self) -> Outlook:
        """Return how many trials there will be."""
        e = self.experiment
        return Outlook(trials=e.samples)

    def over(self, trial: Trial, status: str) -> None:
        """Record a trial's end, and inform the search algorithm."""
        trial.status = status
        self.live.pop(trial.number, None)
        self.paused.pop(trial.number, None)
        searcher = self.experiment.searcher
        if searcher is not None:
            searcher.on_trial_complete(trial.trial_id, result=trial.last_result or None, error=status == Trial.ERROR)
        self.nothing = False
        self.learned.keep(self, last=self.drawn_out and not self.live)

    def clone(self, trial: Trial, decision: Exploit) -> Iterator[Action]:
        """Continue a trial from another trial's checkpoint, or from its own with another configuration."""
        trial.config = copy.deepcopy(decision.config)
        self._runs(trial)
        other, own = decision.source.number, self.state["steps"][trial.number] - self._offset(trial)
        self.state["offsets"][trial.number] = self._offset(decision.source)
        target = self._target(trial, self.state["steps"][other])
        until = max(target - self._offset(trial), own + 1)
        reason = "continues with another configuration" if other == trial.number else f"continues from trial {other}"
        yield Clone(trial.number, decision.source.number, encode(trial.config), until, reason=reason)

    def _create(self) -> Create | None:
        e, number = self.experiment, self.created_all()
        trial_id = f"{e.plan.prefix}_{e.plan.number(number):05d}"
        config: Any
        if number < len(e.points):
            config = copy.deepcopy(e.points[number])
        elif e.searcher is None or (e.samples and number >= e.samples):
            config = Searcher.FINISHED
        else:
            config = e.searcher.suggest(trial_id)
        if isinstance(config, str) and config == Searcher.FINISHED:
            self.state["drawn_out"] = True
            return None
        if config is None:
            return None
        if number >= len(e.points):
            config = merge(e.plan.space, config)
        trial = self._add(number, trial_id, config)
        self.state["drawn_out"] = bool(e.samples) and number + 1 >= e.samples
        target = self._target(trial, self._offset(trial))
        self.learned.keep(self, last=False)
        return Create(encode(trial.config), max(target - self._offset(trial), 1) if target else 0)

    def _add(self, number: int, trial_id: str, config: dict[str, Any]) -> Trial:
        """Add a trial, new or known from an earlier run."""
        named = self.experiment.plan.trial(number, config)
        trial = self.experiment.known.get(trial_id)
        ended = trial is None or trial.is_finished()
        trial = trial or Trial(number, trial_id, self.experiment.plan.name, config)
        trial.__dict__.update({k: v for k, v in named.__dict__.items() if k not in ("number", "trial_id")})
        trial.number, trial.config = number, config
        offset = (self.experiment.plan.offsets or {}).get(self.experiment.plan.number(number), 0)
        self.state["offsets"][number] = self.state["steps"][number] = offset
        self.trials.append(trial)
        self.live[number] = trial
        if ended:
            self.scheduler.on_trial_add(self.controller, trial)
        trial.status = Trial.RUNNING
        return trial

    def _offset(self, trial: Trial) -> int:
        """Return the iterations that a trial had done before this run's sweep."""
        return int(self.state["offsets"].get(trial.number, 0))

    def created_all(self) -> int:
        """Return the number of trials so far."""
        return len(self.trials)

    def _resume(self) -> Train | None:
        trial = self.scheduler.choose_trial_to_run(self.controller)
        if trial is None or trial.status != Trial.PAUSED:
            return None
        self._runs(trial)
        return Train(trial.number, self._next(trial))

    def _runs(self, trial: Trial) -> None:
        trial.status = Trial.RUNNING
        self.paused.pop(trial.number, None)

    def _next(self, trial: Trial) -> int:
        """Return a trial's next target, by default a distant one because targets can only grow."""
        step = self.state["steps"][trial.number]
        return (self._target(trial, step) or step + (1 << 40)) - self._offset(trial)

    def _target(self, trial: Trial, step: int) -> int:
        """Return the iteration where a trial waits next: the next iteration if there is a stopper."""
        return step + 1 if self.stopper is not None else self.scheduler.target(trial, step)

    def _decide(self, report: Report, *, waits: bool) -> Iterable[Action]:
        trial = self.trials[report.trial]
        if trial.is_finished():
            return ()
        step = report.step + self._offset(trial)
        self.state["steps"][trial.number] = max(step, self.state["steps"][trial.number])
        if NOTHING in report.metrics:
            return [Train(trial.number, self._next(trial))] if waits else ()
        result = self._result(trial, report)
        trial.last_result = result
        if (ends := self._stops(trial, result)) is not None:
            return ends
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
            trial.status, self.paused[trial.number] = Trial.PAUSED, trial
            out.append(Pause(trial.number, reason="waits for the others"))
            self.nothing = False
        elif waits:
            out.append(Train(trial.number, self._next(trial)))
        return self._all(out)

    def _stops(self, trial: Trial, result: dict[str, Any]) -> list[Action] | None:
        """Ask the stopper about a result. Returns the actions that end trials, or None if the trial continues."""
        if self.stopper is None:
            return None
        name = type(self.stopper).__name__
        whole = whole_result(trial, self.experiment.plan.place(trial), result)
        ends = bool(self.stopper(trial.trial_id, whole))
        everything = bool(self.stopper.stop_all())
        if not ends and not everything:
            return None
        out: list[Action] = []
        for one in [t for t in self.trials if not t.is_finished()] if everything else [trial]:
            out.append(End(one.number, completed=True, reason=f"stopped by {name}"))
            self.over(one, Trial.TERMINATED)
            self.scheduler.on_trial_complete(self.controller, one, one.last_result)
        if everything:
            self.state["drawn_out"] = True
            self.later = []
        return self._all(out)

    def _all(self, out: list[Action]) -> list[Action]:
        """Return the actions, with those that the scheduler requested for other trials."""
        later, self.later = self.later, []
        return [*out, *later]

    def _result(self, trial: Trial, report: Report) -> dict[str, Any]:
        result: dict[str, Any] = {
            "training_iteration": report.step + self._offset(trial),
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
    """Return a space's constants with the drawn values, whose names may be paths with slashes.

    Raises ValueError for a parameter of the space without a value.
    """
    out: dict[str, Any] = copy.deepcopy(dict(space))
    paths = {"/".join(map(str, path)): path for path, _ in find(space)}
    for name, value in drawn.items():
        if name in paths:
            assign(out, paths[name], value)
        else:
            _put(out, str(name).split("/") if isinstance(name, str) and name not in space else [name], value)
    if left := find(out):
        where = ", ".join("/".join(map(str, path)) for path, _ in left)
        raise ValueError(
            f"the search algorithm gave no value for {where} of param_space: it returned {dict(drawn)!r:.200}. "
            "Give it values for every parameter, or leave these out of param_space"
        )
    return out


def _put(out: dict[str, Any], keys: list[Any], value: Any) -> None:
    """Set the value at a path of names and create missing dicts; dicts are merged."""
    inside: Any = out
    for at, key in enumerate(keys[:-1]):
        key = int(key) if isinstance(inside, (list, tuple)) else key
        if isinstance(inside, dict) and not isinstance(inside.get(key), (dict, list, tuple)):
            inside[key] = {}
        inside, keys[at] = inside[key], key
    if isinstance(inside, (list, tuple)):
        assign(out, (*keys[:-1], int(keys[-1])), value)
    elif isinstance(value, dict) and isinstance(inside.get(keys[-1]), dict):
        inside[keys[-1]] = _merged(inside[keys[-1]], value)
    else:
        inside[keys[-1]] = value


def _merged(constants: dict[Any, Any], drawn: dict[Any, Any]) -> dict[Any, Any]:
    for name, value in drawn.items():
        _put(constants, [name], value)
    return constants


def main() -> None:
    """Serve until the server ends the process."""
    program = Program()
    serve(program)
    if program.state is not None:
        program.learned.flush(program)


if __name__ == "__main__":
    main()
