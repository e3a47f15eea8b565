"""The plugin that draws configurations with Optuna's samplers: `python -m outbid.plugin.optuna`.

The server starts it for a sweep whose sampler is `tpe`, `gp`, `cmaes` or `nsga2`. A rule in the server decides how long
each trial is trained, and this program gets the reports.

A new sampler is created for each trial, seeded by the sweep's seed and the trial's number, with a study of all known
trials. Therefore the records of trials are the only state, and the answers are the same after a restart.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from outbid._core.errors import InvalidError
from outbid.plugin._space import Dimension, flatten
from outbid.plugin._tuner import Action, Create, Exit, Outlook, Report, Train, Tuner

if TYPE_CHECKING:
    import optuna

SAMPLERS = ("cmaes", "gp", "nsga2", "tpe")
_NEEDS = {"gp": ("torch", "scipy"), "cmaes": ("cmaes",)}
_STUBBORN = 20  # consecutive draws that violated constraints, after which one is drawn at random
_STUBBORN_GP = 3  # a Gaussian process proposes the same point again, and is slow


class Sampler(Tuner):
    """Optuna's samplers.

    Settings: `sampler`, `startup` (random trials before it starts; 10, or 20 for NSGA-II) and `prior` (earlier trials).
    """

    name = "optuna"

    def start(self) -> None:
        """Read the settings and the known trials."""
        settings = self.spec.settings
        self.sampler = settings.text("sampler", "tpe", choices=SAMPLERS)
        self.startup = settings.whole("startup", 20 if self.sampler == "nsga2" else 10, least=1)
        prior = settings.value("prior", [])
        for needed in ("optuna", *_NEEDS.get(self.sampler, ())):
            try:
                __import__(needed)
            except ImportError:
                extra = "optuna,torch" if needed == "torch" else "optuna"
                raise settings.wrong(
                    "sampler", f"{self.sampler} needs {needed}: pip install 'outbid[{extra}]' where the server runs"
                ) from None
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        rule = self.spec.message.tuner.plugin.rule
        kind = rule.WhichOneof("kind")
        # Without rungs, the final value of each trial counts.
        self.whole = getattr(rule, kind).max_steps if kind and kind != "random" else 0
        self.conditional = any(d.when for d in self.spec.space)
        if len(self.spec.objectives) > 1:
            self.whole = 0  # trials are compared by their final values of all objectives
            if self.sampler == "cmaes":
                raise settings.wrong("sampler", "cmaes supports one objective only; use tpe, gp or nsga2")
        if not isinstance(prior, list):
            raise settings.wrong("prior", f"{prior!r} is not a list of trials")
        # Trials with the same parameters share their distributions, and each parameter's distribution is created once.
        self._distributions = {d.path: distribution_of(d) for d in self.spec.space if d.kind != "constant"}
        self._shared: dict[tuple[str, ...], dict[str, optuna.distributions.BaseDistribution]] = {}
        self.prior = [made for made in (self._before(p) for p in prior) if made is not None]
        self.state = self.state or []
        # Optuna's trials, None for those without information. Trials with new reports are created again.
        self._made: list[optuna.trial.FrozenTrial | None] = [None] * len(self.state)
        self._heard_of = set(range(len(self.state)))
        self._made_at = self._level()

    def extended(self) -> Iterable[Action]:
        """Use a wider space."""
        self.start()
        return ()

    def ask(self, n: int) -> Iterable[Create | Train]:
        """Draw configurations, after the given first ones."""
        for _ in range(n):
            if self.created < len(self.spec.points):
                yield self._given(self.spec.points[self.created])
                continue
            config, attributes = self._draw()
            self._add(flatten(config, self.spec.space), attributes)
            yield Create(config, reason=f"drawn by Optuna's {self.sampler}")

    def reported(self, report: Report) -> Iterable[Action]:
        """Record a trial's report."""
        self._note(report.trial, report.step, report.metric, report.metrics)
        return ()

    def reached(self, report: Report) -> Iterable[Action]:
        """Record a trial's report. The rule sets the targets, so this is not called."""
        return self.reported(report)

    def exited(self, exit: Exit) -> Iterable[Action]:
        """Record a trial's end."""
        self._note(exit.trial, exit.step, exit.metric, exit.metrics)
        self.state[exit.trial]["over"] = "failed" if exit.failed else "ended"
        self._heard_of.add(exit.trial)
        return ()

    def exhausted(self) -> bool:
        """Return False: the rule decides when the sweep ends."""
        return False

    def outlook(self) -> Outlook:
        """Return no outlook: the rule has one."""
        return Outlook()

    def _given(self, point: Mapping[str, Any]) -> Create:
        """Return a trial with a given configuration, completed with constants."""
        values = flatten(point, self.spec.space)
        config = self.spec.space.configuration(lambda d: values[d.path])
        values = flatten(config, self.spec.space)
        self._add(values, {})
        return Create(config, reason="given by the sweep")

    def _add(self, values: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
        """Add the record of a trial."""
        self._heard_of.add(len(self.state))
        self._made.append(None)
        self.state.append({"values": values, "attributes": dict(attributes), "seen": [], "over": ""})

    def _draw(self) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Draw a configuration. Returns it with the sampler's attributes of its trial."""
        from outbid.plugin._known_study import in_all, study_of

        trials = self._known_trials()
        at_random = self._rejected() >= (_STUBBORN_GP if self.sampler == "gp" else _STUBBORN)
        digest = hashlib.sha256(f"{self.spec.seed}/{self.created}".encode()).digest()
        sampler = make(
            "random" if at_random else self.sampler,
            int.from_bytes(digest[:4], "big"),
            self.startup,
            common=None if self.conditional or self.sampler != "tpe" else in_all(trials),
        )
        study = study_of(trials, ["maximize" if up else "minimize" for _, up in self.spec.objectives], sampler)
        trial = study.ask()
        config = self.spec.space.configuration(partial(suggest, trial, self._distributions))
        return config, study.get_trials(deepcopy=False)[trial.number].system_attrs

    def _note(self, trial: int, step: int, metric: float, metrics: Mapping[str, float]) -> None:
        self._heard_of.add(trial)
        others = [metrics.get(name, math.nan) for name, _ in self.spec.objectives[1:]]
        if others and all(map(math.isfinite, others)):
            self.state[trial]["others"] = others
        seen = self.state[trial]["seen"]
        if math.isfinite(metric) and (not seen or seen[-1][0] < step):
            seen.append([step, metric])

    def _rejected(self) -> int:
        """Return the number of consecutive draws that violated the constraints."""
        n = 0
        for record in reversed(self.state):
            if record["over"] != "failed" or record["seen"]:
                break
            n += 1
        return n

    def _known_trials(self) -> list[optuna.trial.FrozenTrial]:
        """Return all known trials as Optuna's. Only those that have changed are created again."""
        level = self._level()
        if level != self._made_at:
            self._made_at, self._heard_of = level, set(range(len(self.state)))
        for number in self._heard_of:
            record = self.state[number]
            failed = record["over"] == "failed" or (record["over"] and not record["seen"])  # it ended without a report
            self._made[number] = None if failed else self._known(record, level)
        self._heard_of.clear()
        prior = self.prior if len(self.spec.objectives) == 1 else []
        return [*prior, *(made for made in self._made if made is not None)]

    def _known(self, record: Mapping[str, Any], level: int) -> optuna.trial.FrozenTrial | None:
        """Return a trial as Optuna's, or None if it lacks an objective."""
        from optuna.trial import TrialState

        seen, state, value, steps = record["seen"], TrialState.RUNNING, None, {}
        at = next((metric for step, metric in seen if step >= level), None)
        if seen and at is not None and (record["over"] or level):
            state, value = TrialState.COMPLETE, at
        elif seen and (level or record["over"]):
            state, steps = TrialState.PRUNED, {step: metric for step, metric in seen}
        values = None if value is None else [value, *record.get("others", ())]
        if values is not None and len(values) < len(self.spec.objectives):
            return None
        return self._trial(
            record["values"], state=state, values=values, system_attrs=record["attributes"], intermediate_values=steps
        )

    def _trial(self, at: Mapping[str, Any], **known: Any) -> optuna.trial.FrozenTrial:
        """Return a trial with a configuration."""
        from optuna.trial import create_trial

        from outbid.plugin._known_study import Known

        params, distributions = as_params(self.spec.space, at, self._distributions)
        shared = self._shared.setdefault(tuple(distributions), distributions)
        made = create_trial(params=params, distributions=shared, **known)
        made.__class__ = Known
        assert isinstance(made, Known)
        made.distributions = shared
        made.internal = {name: shared[name].to_internal_repr(value) for name, value in params.items()}
        made.score = _score(made, up=self.spec.objectives[0][1])
        return made

    def _level(self) -> int:
        """Return the step where trials are compared; 0 if their final values are compared.

        TPE ranks trials that did not reach the last rung after those that did. The other samplers learn from the
        highest step that enough trials have reached, like BOHB (Falkner et al. 2018).
        """
        if not self.whole or self.sampler == "tpe":
            return self.whole
        ends = sorted((record["seen"][-1][0] for record in self.state if record["seen"]), reverse=True)
        enough = max(self.startup, len(self.spec.space) + 1)
        return ends[min(enough, len(ends)) - 1] if ends else self.whole

    def _before(self, trial: Any) -> optuna.trial.FrozenTrial | None:
        """Return an earlier trial as Optuna's, with the parameters that fit the space, or None if no parameter fits."""
        if not isinstance(trial, Mapping) or not isinstance(trial.get("params"), Mapping):
            raise InvalidError("tuner.plugin.settings.prior: a trial needs params and a value")
        if not isinstance(trial.get("value"), (int, float)):
            return None
        made = self._trial(trial["params"], value=float(trial["value"]))
        return made if made.params else None


def _score(trial: optuna.trial.FrozenTrial, up: bool) -> tuple[int, float, float]:
    """Return TPE's sort key of a finished trial, best first: by value, then by the progress of trials without one."""
    sign = -1 if up else 1
    if trial.values:
        return 0, sign * trial.values[0], 0.0
    if not trial.intermediate_values:
        return 1, 1, 0.0
    step, value = max(trial.intermediate_values.items())
    return 1, -step, sign * value


def make(
    name: str, seed: int, startup: int, *, common: Mapping[str, optuna.distributions.BaseDistribution] | None
) -> optuna.samplers.BaseSampler:
    """Return an Optuna sampler. `common` are the parameters that all finished trials share; None lets TPE find them."""
    from optuna import samplers

    if name == "random":
        return samplers.RandomSampler(seed=seed)
    if name == "cmaes":
        return samplers.CmaEsSampler(seed=seed, n_startup_trials=startup, warn_independent_sampling=False)
    if name == "gp":
        return samplers.GPSampler(seed=seed, n_startup_trials=startup, warn_independent_sampling=False)
    if name == "nsga2":
        return samplers.NSGAIISampler(seed=seed, population_size=max(2, startup))
    options: dict[str, Any] = {"seed": seed, "n_startup_trials": startup, "multivariate": True, "constant_liar": True}
    if common is None:
        return samplers.TPESampler(group=True, **options)
    from outbid.plugin._known_study import TPE

    return TPE(common, **options)


def distribution_of(d: Dimension) -> optuna.distributions.BaseDistribution:
    """Return a dimension as Optuna's; a choice by its index. Optuna does not support steps on a log scale."""
    from optuna import distributions

    if d.kind == "choice":
        return distributions.CategoricalDistribution(tuple(range(d.count)))
    last = d.nth(d.count - 1) if d.quantum else d.high
    if d.kind == "int":
        return distributions.IntDistribution(int(d.low), int(last), log=d.log, step=1 if d.log else int(d.quantum))
    return distributions.FloatDistribution(d.low, last, log=d.log, step=None if d.log or not d.quantum else d.quantum)


def as_params(
    space: Iterable[Dimension], values: Mapping[str, Any], made: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return values by path as Optuna's parameters and distributions, without values outside the space.

    `made` are existing distributions by path.
    """
    params: dict[str, Any] = {}
    distributions: dict[str, Any] = {}
    for d in space:
        if d.kind == "constant" or d.path not in values:
            continue
        value = values[d.path]
        if d.kind == "choice":
            try:
                value = d.values.index(d.nearest(value))
            except InvalidError:
                continue
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not d.low <= value <= d.high:
            continue
        else:
            value = d.nearest(value)
        params[d.path], distributions[d.path] = value, made[d.path] if made else distribution_of(d)
    return params, distributions


def suggest(trial: optuna.Trial, made: Mapping[str, optuna.distributions.BaseDistribution], d: Dimension) -> Any:
    """Ask Optuna for a parameter with its existing distribution."""
    from optuna import distributions

    asked = made[d.path]
    if isinstance(asked, distributions.CategoricalDistribution):
        return d.values[int(trial.suggest_categorical(d.path, asked.choices))]  # type: ignore[arg-type]
    if isinstance(asked, distributions.IntDistribution):
        return trial.suggest_int(d.path, asked.low, asked.high, log=asked.log, step=asked.step)
    assert isinstance(asked, distributions.FloatDistribution)
    return trial.suggest_float(d.path, asked.low, asked.high, log=asked.log, step=asked.step)
