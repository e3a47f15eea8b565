"""Tuners: the algorithms that propose configurations and decide how long each is trained.

Every tuner takes `seed`: the same seed gives the same configurations. If it is left out, the server draws one and
records it in the sweep's spec. Steps are counted as the training code counts them in `trial.steps()`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from outbid._core import validation
from outbid._core.name_hints import hinted_class
from outbid._results.model import flatten
from outbid._search.space import to_value
from outbid.v1 import sweep_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class Tuner:
    """Base class of all tuners."""

    seed: int | None = None

    def to_proto(self) -> pb.Tuner:
        """Return the tuner as the API's message."""
        seed = None if self.seed is None else validation.whole(f"{type(self).__name__}: seed", self.seed)
        if seed is not None and not 0 <= seed < 1 << 64:
            raise ValueError(f"{type(self).__name__}: seed must be a whole number from 0 to 2**64-1, got {seed!r}")
        message = pb.Tuner(seed=seed)
        self._fill(message)
        return message

    def _fill(self, message: pb.Tuner) -> None:
        raise NotImplementedError

    def _steps(self, name: str, value: int, *, least: int = 1) -> int:
        return _count(self, name, value, least)


@hinted_class
@dataclass(frozen=True)
class Model(Tuner):
    """Base class of the tuners that use Optuna's samplers, which learn from results what to try next.

    Each is a tuner that trains every trial for `max_steps` steps (0: until the training code ends). It can also be the
    `sampler` of a tuner that stops trials, as in `ob.ASHA(max_steps=81, sampler=ob.TPE())`. The first `startup` trials
    are drawn at random. Conditions and constraints are met.

    `prior` are trials that are already known: an Optuna study, the result of a sweep, or dicts `{"params": {...},
    "value": ...}` with parameters by dotted path. Trials and parameters that do not fit the space are left out.

    The server runs Optuna: with this Python if it is on this machine, otherwise with the `python3` that it finds.
    """

    max_steps: int = 0
    startup: int = 10
    prior: Any = field(default=(), repr=False)

    _name: ClassVar[str] = ""

    def _fill(self, message: pb.Tuner) -> None:
        rule = pb.Tuner()
        rule.random.max_steps = self._steps("max_steps", self.max_steps, least=0)
        rule.random.SetInParent()
        self._draw(message, rule)

    def _draw(self, message: pb.Tuner, rule: pb.Tuner) -> None:
        """Make `message` the plugin that samples configurations for the tuner `rule`."""
        out = message.plugin
        out.max_steps = getattr(rule, rule.WhichOneof("kind") or "").max_steps
        settings: dict[str, Any] = {"sampler": self._name, "startup": _count(self, "startup", self.startup, 1)}
        prior = known_trials(self.prior)
        if prior:
            settings["prior"] = prior
        out.settings.CopyFrom(to_value(settings, f"{type(self).__name__}: prior").struct_value)
        out.rule.CopyFrom(rule)


@hinted_class
@dataclass(frozen=True)
class TPE(Model):
    """Tree-structured Parzen estimator (Bergstra et al. 2011), Optuna's default sampler; see `Model`.

    Parameters are modelled jointly, and conditional parameters separately. Good for any space from about 30 trials.
    """

    _name: ClassVar[str] = "tpe"


@hinted_class
@dataclass(frozen=True)
class GP(Model):
    """Gaussian process with expected improvement; see `Model`. For few, expensive trials. Also needs torch."""

    _name: ClassVar[str] = "gp"


@hinted_class
@dataclass(frozen=True)
class CMAES(Model):
    """CMA-ES (Hansen 2016); see `Model`.

    For many trials over numbers; choices are drawn at random. Also needs cmaes.
    """

    _name: ClassVar[str] = "cmaes"


@hinted_class
@dataclass(frozen=True)
class NSGA2(Model):
    """NSGA-II (Deb et al. 2002), a genetic algorithm with a population of `startup`; see `Model`."""

    startup: int = 20

    _name: ClassVar[str] = "nsga2"


Sampler: TypeAlias = Literal["random", "sobol", "tpe", "gp", "cmaes", "nsga2"] | Model
"""How configurations are drawn: independently, by a low-discrepancy sequence, or by one of Optuna's samplers."""


@hinted_class
@dataclass(frozen=True)
class _Sampled(Tuner):
    """Base class of the tuners that take a sampler."""

    def to_proto(self) -> pb.Tuner:
        """Return the tuner as the API's message. An Optuna sampler becomes a plugin with this tuner as its rule."""
        message = super().to_proto()
        sampler = getattr(self, "sampler", "random")
        if isinstance(sampler, str):
            found = [kind for kind in (TPE, GP, CMAES, NSGA2) if kind._name == sampler]
            sampler = found[0]() if found else None
        if not isinstance(sampler, Model):
            return message
        name = f"{type(self).__name__}: sampler"
        if sampler.max_steps or sampler.seed is not None:
            raise ValueError(f"{name}: {type(sampler).__name__} uses the tuner's max_steps and seed; leave them out")
        rule, out = pb.Tuner(), pb.Tuner(seed=self.seed)
        rule.CopyFrom(message)
        rule.ClearField("seed")
        sampler._draw(out, rule)
        return out


@hinted_class
@dataclass(frozen=True)
class Random(Tuner):
    """Independent random configurations, each trained for `max_steps` steps (0: until the training code ends)."""

    max_steps: int = 0

    def _fill(self, message: pb.Tuner) -> None:
        message.random.max_steps = self._steps("max_steps", self.max_steps, least=0)
        message.random.SetInParent()


@hinted_class
@dataclass(frozen=True)
class Grid(Tuner):
    """Every combination of values. A float range or a wide int range contributes `points` values."""

    max_steps: int = 0
    points: int = 5

    def _fill(self, message: pb.Tuner) -> None:
        message.grid.max_steps = self._steps("max_steps", self.max_steps, least=0)
        message.grid.points = _count(self, "points", self.points, 1)


@hinted_class
@dataclass(frozen=True)
class Sobol(Tuner):
    """A scrambled low-discrepancy sequence, which fills the space more evenly than `Random`."""

    max_steps: int = 0

    def _fill(self, message: pb.Tuner) -> None:
        message.sobol.max_steps = self._steps("max_steps", self.max_steps, least=0)
        message.sobol.SetInParent()


@hinted_class
@dataclass(frozen=True)
class Bayes(Tuner):
    """Bayesian optimisation (Jones et al. 1998) with a Gaussian process, computed by the server without Optuna.

    Each configuration is the one with the highest expected improvement. The first is the middle of the space, the next
    few fill it evenly, and every sixth explores. A running trial counts with the value that the model predicts for it,
    a failed one with the worst value. Conditions and constraints are met. Each trial is trained for `max_steps` steps
    (0: until the training code ends).
    """

    max_steps: int = 0

    def _fill(self, message: pb.Tuner) -> None:
        message.bayes.max_steps = self._steps("max_steps", self.max_steps, least=0)
        message.bayes.SetInParent()


@hinted_class
@dataclass(frozen=True)
class SuccessiveHalving(_Sampled):
    """Successive halving (Jamieson and Talwalkar 2016).

    `trials` trials are trained for `min_steps`. The best 1/`eta` of each rung continue for `eta` times as many steps,
    up to `max_steps`. `trials=0` chooses the number that leaves one trial in the last rung. With `grow` a promoted
    trial may use `eta` times as many devices as in the rung before.
    """

    max_steps: int
    trials: int = 0
    eta: int = 3
    min_steps: int = 1
    sampler: Sampler = "random"
    grow: bool = False

    def _fill(self, message: pb.Tuner) -> None:
        out = message.successive_halving
        out.grow = self.grow
        out.max_steps = self._steps("max_steps", self.max_steps)
        out.trials = _count(self, "trials", self.trials, 0)
        out.eta = _count(self, "eta", self.eta, 2)
        out.min_steps = _rung(self, self.min_steps, self.max_steps)
        out.sampler = _sampler(self, self.sampler)


@hinted_class
@dataclass(frozen=True)
class Hyperband(_Sampled):
    """Hyperband (Li et al. 2018): brackets of successive halving, from many short to few long trials.

    A trial is trained for at most `max_steps` steps. `min_steps` is the number of steps in one unit of the paper's R,
    and therefore the shortest rung. `iterations` is how often the whole set of brackets is run.
    """

    max_steps: int
    eta: int = 3
    min_steps: int = 1
    iterations: int = 1
    sampler: Sampler = "random"

    def _fill(self, message: pb.Tuner) -> None:
        out = message.hyperband
        out.max_steps = self._steps("max_steps", self.max_steps)
        out.eta = _count(self, "eta", self.eta, 2)
        out.min_steps = _rung(self, self.min_steps, self.max_steps)
        out.iterations = _count(self, "iterations", self.iterations, 1)
        out.sampler = _sampler(self, self.sampler)


@hinted_class
@dataclass(frozen=True)
class ASHA(_Sampled):
    """Asynchronous successive halving (Li et al. 2020).

    `form="promote"` pauses a trial at each rung and resumes it from its checkpoint when it is promoted. `form="stop"`
    only stops trials, so they need no checkpoints.
    """

    max_steps: int
    eta: int = 3
    min_steps: int = 1
    form: Literal["promote", "stop"] = "promote"
    brackets: int = 1
    sampler: Sampler = "random"

    def _fill(self, message: pb.Tuner) -> None:
        out = message.asha
        out.max_steps = self._steps("max_steps", self.max_steps)
        out.eta = _count(self, "eta", self.eta, 2)
        out.min_steps = _rung(self, self.min_steps, self.max_steps)
        out.form = _one_of(self, "form", self.form, ("promote", "stop"))
        out.brackets = _count(self, "brackets", self.brackets, 1)
        out.sampler = _sampler(self, self.sampler)


@hinted_class
@dataclass(frozen=True)
class Median(_Sampled):
    """Median stopping (Golovin et al. 2017): stop a trial whose best is below the median of running means.

    No trial is stopped before `grace_steps`, or before `min_trials` others have reached the step.
    """

    max_steps: int
    grace_steps: int = 1
    min_trials: int = 3
    sampler: Sampler = "random"

    def _fill(self, message: pb.Tuner) -> None:
        out = message.median
        out.max_steps = self._steps("max_steps", self.max_steps)
        out.grace_steps = _count(self, "grace_steps", self.grace_steps, 1)
        out.min_trials = _count(self, "min_trials", self.min_trials, 1)
        out.sampler = _sampler(self, self.sampler)


@hinted_class
@dataclass(frozen=True)
class PerformanceCurve(_Sampled):
    """Stop trials whose learning curves forecast little chance of becoming the best.

    Every `interval` steps (0: a twentieth of `max_steps`) a trial is classified as promising, opportunistic or poor.
    The class depends on its chance to beat the sweep's target or, without a target, the best known or forecast value. A
    trial is poor if that chance is below `poor` and a new trial would have a better chance for the same steps.

    No trial is stopped before `grace_steps` (0: two intervals). The share `keep` of the trials that would be stopped is
    trained further, to check forecasts on them too. While forecasts are not calibrated, a rank rule stops the worst
    1/`eta` at rungs.
    """

    max_steps: int
    interval: int = 0
    grace_steps: int = 0
    poor: float = 0.05
    keep: float = 0.1
    eta: int = 3
    sampler: Sampler = "random"

    def _fill(self, message: pb.Tuner) -> None:
        out = message.performance_curve
        out.max_steps = self._steps("max_steps", self.max_steps)
        for name in ("interval", "grace_steps"):
            steps = _count(self, name, getattr(self, name), 0)
            if steps > self.max_steps:
                raise ValueError(
                    f"PerformanceCurve: {name} must not be above max_steps, got {steps} and {self.max_steps}"
                )
            setattr(out, name, steps)
        if not 0 < self.poor < 1:
            raise ValueError(f"PerformanceCurve: poor must be above 0 and below 1, got {self.poor!r}")
        if not 0 <= self.keep <= 1:
            raise ValueError(f"PerformanceCurve: keep must be from 0 to 1, got {self.keep!r}")
        out.poor = self.poor
        out.keep = self.keep
        out.eta = _count(self, "eta", self.eta, 2)
        out.sampler = _sampler(self, self.sampler)


@hinted_class
@dataclass(frozen=True)
class FreezeThaw(_Sampled):
    """Train many trials a little at a time, and continue those whose next steps are worth most.

    Trials are evaluated after `min_steps` (0: `max_steps`/40) and then at 1.4 times the steps of the evaluation before.
    Each evaluation forecasts every trial that waits at a checkpoint, and candidates that have not started. The forecast
    uses the trial's rank among the others and the trials of this sweep that have finished. A trial is stopped if its
    chance to beat all finished trials is below `poor`.

    With `sampler="model"` the forecasts choose up to half of the configurations; any other sampler draws all of them.
    """

    max_steps: int
    min_steps: int = 0
    poor: float = 0.01
    sampler: Literal["model"] | Sampler = "model"

    def _fill(self, message: pb.Tuner) -> None:
        out = message.freeze_thaw
        out.max_steps = self._steps("max_steps", self.max_steps)
        out.min_steps = _count(self, "min_steps", self.min_steps, 0)
        if out.min_steps > out.max_steps:
            raise ValueError(
                f"FreezeThaw: min_steps must not be above max_steps, got {self.min_steps} and {self.max_steps}"
            )
        if not 0 < self.poor < 1:
            raise ValueError(f"FreezeThaw: poor must be above 0 and below 1, got {self.poor!r}")
        out.poor = self.poor
        out.sampler = _sampler(self, self.sampler, own="model")


@hinted_class
@dataclass(frozen=True)
class PBT(Tuner):
    """Population based training (Jaderberg et al. 2017).

    Every `interval` steps the worst `quantile` of the `population` copy checkpoint and configuration from the best
    `quantile`. Each copied parameter is drawn again with probability `resample`, and otherwise multiplied by one of
    `factors`.

    Members advance together. With fewer devices than members they take turns: a member that has done its `interval`
    steps saves, frees its device for members that are behind, and resumes from its checkpoint when all have come as
    far. Therefore the training code must save and load all of its state, and `interval` should be long compared with a
    start. With a device for each member, a member keeps its device unless others are more than an interval behind.
    """

    max_steps: int
    interval: int
    population: int = 10
    quantile: float = 0.2
    resample: float = 0.25
    factors: Sequence[float] = (0.8, 1.2)

    def _fill(self, message: pb.Tuner) -> None:
        out = message.pbt
        out.max_steps = self._steps("max_steps", self.max_steps)
        out.interval = self._steps("interval", self.interval)
        out.population = _count(self, "population", self.population, 2)
        if not 0 < self.quantile <= 0.5:
            raise ValueError(f"PBT: quantile must be above 0 and at most 0.5, got {self.quantile!r}")
        if not 0 <= self.resample <= 1:
            raise ValueError(f"PBT: resample must be from 0 to 1, got {self.resample!r}")
        validation.several("PBT: factors", self.factors, "numbers")
        if any(not validation.number("PBT: factors", factor) > 0 for factor in self.factors):
            raise ValueError(f"PBT: factors must be above 0, got {list(self.factors)!r}")
        out.quantile = self.quantile
        out.resample = self.resample
        out.factors.extend(self.factors)


@hinted_class
@dataclass(frozen=True)
class Plugin(Tuner):
    """A tuner that the server runs as `command` over hashicorp/go-plugin, with `settings`."""

    command: Sequence[str]
    max_steps: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def _fill(self, message: pb.Tuner) -> None:
        out = message.plugin
        if isinstance(self.command, str) or not self.command:
            raise ValueError(f"Plugin: command must be a list of the program and its arguments, got {self.command!r}")
        out.command.extend(self.command)
        out.max_steps = self._steps("max_steps", self.max_steps, least=0)
        out.settings.CopyFrom(to_value(dict(self.settings), "Plugin: settings").struct_value)


def _count(tuner: Tuner, name: str, value: int, least: int) -> int:
    count = validation.whole(f"{type(tuner).__name__}: {name}", value)
    if count < least:
        raise ValueError(f"{type(tuner).__name__}: {name} must be at least {least}, got {count}")
    return count


def _rung(tuner: Tuner, min_steps: int, max_steps: int) -> int:
    _count(tuner, "min_steps", min_steps, 1)
    if min_steps > max_steps:
        raise ValueError(
            f"{type(tuner).__name__}: min_steps must not be above max_steps, got {min_steps} and {max_steps}"
        )
    return min_steps


def _sampler(tuner: Tuner, value: Any, own: str = "random") -> str:
    if isinstance(value, Model):
        return "random"  # to_proto adds the sampler to the message
    if isinstance(value, type) and issubclass(value, Model):
        raise TypeError(f"{type(tuner).__name__}: sampler is the class; write ob.{value.__name__}()")
    validation.text(
        f"{type(tuner).__name__}: sampler", value, "a name such as 'sobol', or one that learns, such as ob.TPE()"
    )
    names = dict.fromkeys((own, "random", "sobol", "tpe", "gp", "cmaes", "nsga2"))
    name = _one_of(tuner, "sampler", value, tuple(names))
    return name if name in (own, "random", "sobol") else "random"


_PRIOR = 'prior must be an Optuna study, a result such as ob.load("digits-1"), or dicts with params and value'


def is_study(thing: Any) -> bool:
    """Return whether a value is an Optuna study, without importing Optuna."""
    return hasattr(thing, "get_trials") and hasattr(thing, "directions")


def known_trials(prior: Any) -> list[dict[str, Any]]:
    """Return earlier trials as dicts; `prior` is an Optuna study, a result, or such dicts."""
    if is_study(prior):
        done = (t for t in prior.get_trials(deepcopy=False) if t.state.name == "COMPLETE" and len(t.values) == 1)
        return [{"params": dict(t.params), "value": t.value} for t in done]
    if hasattr(prior, "sweep") and hasattr(prior, "trials"):
        over = (t for t in prior.trials if t.state == "completed" and t.metric is not None)
        return [
            {"params": flatten(getattr(t, "_stored", t.config)), "value": t.metric}
            for t in over
            if math.isfinite(t.metric)
        ]
    if isinstance(prior, (str, bytes, Mapping)) or not isinstance(prior, Iterable):
        raise TypeError(f"{_PRIOR}, got {prior!r:.80}")
    known = list(prior)
    for trial in known:
        if not isinstance(trial, Mapping) or set(trial) != {"params", "value"}:
            raise TypeError(f"{_PRIOR}, got {trial!r:.80}")
    return [{"params": flatten(t["params"]), "value": t["value"]} for t in known]


def _one_of(tuner: Tuner, name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        words = " or ".join(repr(word) for word in allowed)
        raise ValueError(f"{type(tuner).__name__}: {name} must be {words}, got {value!r}")
    return value
