"""Population based training."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from outbid.tune import _order
from outbid.tune._errors import BadArgumentError
from outbid.tune._sample import Domain, Function
from outbid.tune._trial import Trial, to_json
from outbid.tune.schedulers._base import Exploit, FIFOScheduler, next_multiple


def explore(
    config: Mapping[str, Any],
    mutations: Mapping[str, Any],
    resample: float,
    factors: Sequence[float],
    custom: Callable[[dict[str, Any]], dict[str, Any] | None] | None,
) -> dict[str, Any]:
    """Return a configuration with its parameters drawn again or perturbed."""
    made = copy.deepcopy(dict(config))
    for name, values in mutations.items():
        if isinstance(values, dict):
            made[name] = explore(config.get(name, {}), values, resample, factors, None)
        elif isinstance(values, (list, tuple)):
            if name not in config or random.random() < resample or config[name] not in values:
                made[name] = random.choice(values)
            else:
                at = list(values).index(config[name]) + random.choice([-1, 1])
                made[name] = values[min(max(at, 0), len(values) - 1)]
        elif name not in config or random.random() < resample:
            made[name] = draw(values)
        else:
            moved = config[name] * random.choice(list(factors))
            made[name] = int(moved) if isinstance(config[name], int) else moved
    if custom is not None:
        found = custom(made)
        if found is None:
            raise ValueError("custom_explore_fn must return the configuration")
        made = found
    return made


def draw(values: Any) -> Any:
    """Draw one value of a mutation."""
    if isinstance(values, Domain):
        return values.sample()
    return random.choice(list(values)) if isinstance(values, (list, tuple)) else values()


def fill(config: dict[str, Any], mutations: Mapping[str, Any]) -> None:
    """Draw the parameters that a new trial's configuration lacks."""
    for name, values in mutations.items():
        if isinstance(values, dict):
            fill(config.setdefault(name, {}), values)
        elif name not in config:
            config[name] = draw(values)


class _Member:
    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.tag = trial.experiment_tag
        self.score: float | None = None
        self.trained = 0.0  # by the time attribute, at its last result
        self.perturbed = 0.0
        self.ready = False  # waits for the others, in synchronous mode


class PopulationBasedTraining(FIFOScheduler):
    """Lets the worst trials continue from the checkpoints of the best, with perturbed configurations."""

    compares = True

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: dict[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: tuple[float, float] = (1.2, 0.8),
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
    ) -> None:
        mutations = hyperparam_mutations or {}
        for name, values in mutations.items():
            if isinstance(values, Function):
                raise ValueError(f"PBT: {name}: tune.sample_from cannot be a mutation; give a function")
            if not isinstance(values, (dict, list, tuple, Domain)) and not callable(values):
                raise TypeError(
                    f"PBT: {name}: a mutation must be a list, a dict, a domain or a function, got {values!r:.80}"
                )
        if not mutations and not custom_explore_fn:
            raise BadArgumentError("PBT: give hyperparam_mutations or custom_explore_fn")
        if not 0 <= quantile_fraction <= 0.5:
            raise ValueError(f"PBT: quantile_fraction must be from 0 to 0.5, got {quantile_fraction!r}")
        if perturbation_interval <= 0:
            raise ValueError(f"PBT: perturbation_interval must be above 0, got {perturbation_interval!r}")
        self._time, self._metric, self._mode = time_attr, metric, mode
        self._interval, self._burn_in = perturbation_interval, burn_in_period
        self._mutations, self._quantile = mutations, quantile_fraction
        self._resample, self._factors, self._custom = (
            resample_probability,
            tuple(perturbation_factors),
            custom_explore_fn,
        )
        self._log, self._require, self._synch = log_config, require_attrs, synch
        self._members: dict[str, _Member] = {}
        self._next_sync = max(perturbation_interval, burn_in_period)
        self._num_perturbations = 0

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial, and draw parameters that its configuration lacks."""
        self._members[trial.trial_id] = _Member(trial)
        fill(trial.config, self._mutations)

    def target(self, trial: Trial, step: int) -> int:
        """Return the next multiple of the interval."""
        whole = float(self._interval).is_integer()
        return next_multiple(step, int(self._interval)) if self._time == "training_iteration" and whole else step + 1

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> Any:
        """Continue a trial from its own checkpoint or from that of a better trial."""
        time, score = result.get(self._time), self._score(result)
        if time is None or score is None:
            if self._require:
                missing = self._time if time is None else self._metric
                raise ValueError(f"PBT: {missing!r} was not reported; require_attrs=False accepts such results")
            return self.CONTINUE
        member = self._members[trial.trial_id]
        if self._synch:
            return self._synchronous(tune_controller, member, float(time), score)
        if time < self._burn_in or time - member.perturbed < self._interval:
            return self.CONTINUE
        member.score, member.trained, member.perturbed = score, float(time), float(time)
        lower, upper = self._quantiles()
        exploit = self._exploit(member, upper) if member in lower else None
        if exploit is not None:
            return exploit
        others = (t for t in tune_controller.get_trials() if t is not trial)
        waits = any(t.status in (Trial.PENDING, Trial.PAUSED) for t in others) or not tune_controller.no_more_trials()
        return self.PAUSE if waits else self.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Continue the others if they wait for a trial that has ended."""
        if self._synch:
            self._members[trial.trial_id].ready = False
            self._release(tune_controller, None)

    on_trial_remove = on_trial_complete  # type: ignore[assignment]

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Continue the others if they wait for a trial that has failed."""
        self.on_trial_complete(tune_controller, trial, {})

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return the paused trial that is furthest behind."""
        paused = [
            t for t in tune_controller.get_trials() if t.status == Trial.PAUSED and not self._members[t.trial_id].ready
        ]
        return min(paused, key=lambda t: self._members[t.trial_id].trained, default=None)

    def debug_string(self) -> str:
        """Return a description in one line."""
        return f"PopulationBasedTraining: {self._num_perturbations} perturbs"

    def _synchronous(self, controller: Any, member: _Member, time: float, score: float) -> Any:
        if time < self._next_sync:
            return self.CONTINUE
        member.score, member.trained, member.ready = score, time, True
        return self._release(controller, member) or self.PAUSE

    def _release(self, controller: Any, asked: _Member | None) -> Any:
        """Continue all trials when all are at the same point. Returns the decision on `asked`."""
        live = [m for m in self._members.values() if not m.trial.is_finished()]
        if not live or not controller.no_more_trials() or not all(m.ready for m in live):
            return None
        lower, upper = self._quantiles()
        answer: Any = None
        for member in live:
            member.ready, member.perturbed = False, member.trained
            exploit = self._exploit(member, upper) if member in lower else None
            if member is asked:
                answer = exploit or self.CONTINUE
            elif exploit is not None:
                controller.exploit_trial(member.trial, exploit)
        self._next_sync = max(self._next_sync + self._interval, max(m.trained for m in live))
        return answer

    def _quantiles(self) -> tuple[list[_Member], list[_Member]]:
        """Return the worst and the best trials that have a score."""
        ranked = [m for m in self._members.values() if m.score is not None and not m.trial.is_finished()]
        ranked.sort(key=lambda m: _order.rank(m.score))
        if len(ranked) <= 1:
            return [], []
        count = min(math.ceil(len(ranked) * self._quantile), len(ranked) // 2)
        return (ranked[:count], [m for m in ranked[-count:] if _order.is_number(m.score)]) if count else ([], [])

    def _exploit(self, member: _Member, upper: list[_Member]) -> Exploit | None:
        if not upper:
            return None
        source = random.choice(upper)
        config = self._new_config(member, source)
        if self._log:
            self._write(member, source, config)
        member.trained, member.perturbed = source.trained, source.perturbed
        self._num_perturbations += 1
        return Exploit(source.trial, config)

    def _new_config(self, member: _Member, source: _Member) -> dict[str, Any]:
        return explore(source.trial.config, self._mutations, self._resample, self._factors, self._custom)

    def _write(self, member: _Member, source: _Member, config: dict[str, Any]) -> None:
        """Append a change to a file in the experiment's directory, for `PopulationBasedTrainingReplay`."""
        trial, other = member.trial, source.trial
        line = to_json(
            [
                member.tag,
                source.tag,
                trial.last_result.get("training_iteration", 0),
                other.last_result.get("training_iteration", 0),
                other.config,
                config,
            ]
        )
        folder = Path(trial.local_experiment_path)
        own, its = (folder / f"pbt_policy_{t.trial_id}.txt" for t in (trial, other))
        try:
            with (folder / "pbt_global.txt").open("a") as file:
                file.write(line + "\n")
            before = its.read_text() if its.is_file() else ""
            own.write_text(before + line + "\n")
        except OSError:
            pass  # the directory does not exist here


class PopulationBasedTrainingReplay(FIFOScheduler):
    """Runs one trial with the configurations of a PBT trial, each from the same iteration on.

    `policy_file` is a file pbt_policy_*.txt in an experiment's directory of Ray or Outbid.
    """

    def __init__(self, policy_file: str) -> None:
        path = Path(policy_file).expanduser()
        if not path.is_file():
            raise ValueError(f"PopulationBasedTrainingReplay: there is no file {path}")
        self.config, self._changes = _policy(path)
        self._metric, self._mode = None, None
        self._trial: str | None = None
        self._number = 0

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Set the first configuration of the trial."""
        if self._trial is not None:
            raise ValueError("PopulationBasedTrainingReplay: num_samples must be 1, because a replay is one trial")
        self._trial = trial.trial_id
        trial.config = copy.deepcopy(self.config)

    def target(self, trial: Trial, step: int) -> int:
        """Return the iteration of the next change."""
        return next((at for at, _ in self._changes[self._number :] if at > step), 0)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> Any:
        """Change the configuration if a change is due."""
        changed: dict[str, Any] | None = None
        while self._number < len(self._changes) and result["training_iteration"] >= self._changes[self._number][0]:
            changed = self._changes[self._number][1]
            self._number += 1
        return self.CONTINUE if changed is None else Exploit(trial, changed)

    def debug_string(self) -> str:
        """Return a description in one line."""
        return f"PopulationBasedTrainingReplay: {self._number} of {len(self._changes)} changes"


def _policy(path: Path) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
    """Return the first configuration, and the later ones with their first iterations."""
    changes: list[tuple[int, dict[str, Any]]] = []
    first: dict[str, Any] = {}
    came_from = None
    for line in reversed(path.read_text().splitlines()):
        tag, source, _, step, before, after = json.loads(line)
        if came_from is not None and tag != came_from:
            break
        came_from, first = source, before
        changes.insert(0, (int(step), after))
    if not changes:
        raise ValueError(f"PopulationBasedTrainingReplay: {path} has no changes of a configuration")
    return first, changes
