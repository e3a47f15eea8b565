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
from outbid._search.tuner_settings import count, fill, one_of
from outbid.v1 import sweep_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class Tuner:
    """Base class of all tuners."""

    seed: int | None = None

    _kind: ClassVar[str] = ""

    def to_proto(self) -> pb.Tuner:
        """Return the tuner as the API's message."""
        seed = None if self.seed is None else validation.whole(f"{type(self).__name__}: seed", self.seed)
        if seed is not None and not 0 <= seed < 1 << 64:
            raise ValueError(f"{type(self).__name__}: seed must be a whole number from 0 to 2**64-1, got {seed!r}")
        message = pb.Tuner(seed=seed)
        self._fill(message)
        return message

    def _fill(self, message: pb.Tuner) -> None:
        if not self._kind:
            raise NotImplementedError
        fill(self, getattr(message, self._kind), _own_sampler)


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
        rule.random.max_steps = count(self, "max_steps", self.max_steps, 0)
        rule.random.SetInParent()
        self._draw(message, rule)

    def _draw(self, message: pb.Tuner, rule: pb.Tuner) -> None:
        """Make `message` the plugin that samples configurations for the tuner `rule`."""
        out = message.plugin
        out.max_steps = getattr(rule, rule.WhichOneof("kind") or "").max_steps
        settings: dict[str, Any] = {"sampler": self._name, "startup": count(self, "startup", self.startup, 1)}
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


NAMES: dict[str, type[Model]] = {kind._name: kind for kind in (TPE, GP, CMAES, NSGA2)}
"""Optuna's samplers by their names."""

Sampler: TypeAlias = Literal["random", "sobol", "bayes", "tpe", "gp", "cmaes", "nsga2"] | Model
"""How configurations are drawn: independently, by a low-discrepancy sequence, or by one of Optuna's samplers."""


def _own_sampler(name: str, value: Any, words: list[str]) -> str:
    """Return the server's sampler: its name, or "random" for a sampler of Optuna, which is added later."""
    if isinstance(value, Model):
        return "random"
    if isinstance(value, type) and issubclass(value, Model):
        raise TypeError(f"{name} is the class; write ob.{value.__name__}()")
    validation.text(name, value, "a name such as 'sobol', or one that learns, such as ob.TPE()")
    one_of(name, value, [*words, *NAMES])
    return str(value) if value in words else "random"


@hinted_class
@dataclass(frozen=True)
class Sampled(Tuner):
    """Base class of the tuners that take a sampler."""

    def to_proto(self) -> pb.Tuner:
        """Return the tuner as the API's message. An Optuna sampler becomes a plugin with this tuner as its rule."""
        message = super().to_proto()
        sampler = getattr(self, "sampler", "random")
        if isinstance(sampler, str):
            sampler = NAMES[sampler]() if sampler in NAMES else None
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
        out.max_steps = count(self, "max_steps", self.max_steps, 0)
        out.settings.CopyFrom(to_value(dict(self.settings), "Plugin: settings").struct_value)


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
