"""The classes of the built-in tuners. Written by `make gen` from proto/outbid/v1/sweep.proto; do not edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from outbid._core.name_hints import hinted_class
from outbid._search.tuners import Sampled, Sampler, Tuner


@hinted_class
@dataclass(frozen=True)
class Random(Tuner):
    """Independent random configurations.

    - `max_steps`: Steps to train a trial; 0 to train until the code ends.
    """

    max_steps: int = 0

    _kind: ClassVar[str] = "random"


@hinted_class
@dataclass(frozen=True)
class Grid(Tuner):
    """Every combination of values.

    - `max_steps`: Steps to train a trial; 0 to train until the code ends.
    - `points`: Number of values of a float range or a wide int range.
    """

    max_steps: int = 0
    points: int = 5

    _kind: ClassVar[str] = "grid"


@hinted_class
@dataclass(frozen=True)
class Sobol(Tuner):
    """A scrambled low-discrepancy sequence, which fills the space more evenly than random draws.

    - `max_steps`: Steps to train a trial; 0 to train until the code ends.
    """

    max_steps: int = 0

    _kind: ClassVar[str] = "sobol"


@hinted_class
@dataclass(frozen=True)
class SuccessiveHalving(Sampled):
    """Successive halving (Jamieson and Talwalkar 2016).

    The trials are trained for `min_steps`. The best 1/`eta` of each rung continue for `eta` times as many steps, up
    to `max_steps`.

    - `max_steps`: Steps of the last rung.
    - `trials`: Trials in the first rung; 0 for eta^(rungs-1).
    - `eta`: Reduction factor.
    - `min_steps`: Steps of the first rung.
    - `sampler`: How configurations are drawn.
    - `grow`: Trials that continue to the next rung may use eta times as many devices there, so that fewer trials use
      the same number of devices together.
    """

    max_steps: int
    trials: int = 0
    eta: int = 3
    min_steps: int = 1
    sampler: Sampler = "random"
    grow: bool = False

    _kind: ClassVar[str] = "successive_halving"


@hinted_class
@dataclass(frozen=True)
class Hyperband(Sampled):
    """Hyperband (Li et al. 2018): brackets of successive halving, from many short to few long trials.

    - `max_steps`: Maximum number of steps of a trial, R in the paper.
    - `eta`: Reduction factor.
    - `min_steps`: Number of steps in one unit of R, and therefore the shortest rung.
    - `iterations`: How often the whole set of brackets is run.
    - `sampler`: How configurations are drawn.
    """

    max_steps: int
    eta: int = 3
    min_steps: int = 1
    iterations: int = 1
    sampler: Sampler = "random"

    _kind: ClassVar[str] = "hyperband"


@hinted_class
@dataclass(frozen=True)
class ASHA(Sampled):
    """Asynchronous successive halving (Li et al. 2020).

    - `max_steps`: Steps of the last rung.
    - `eta`: Reduction factor.
    - `min_steps`: Steps of the first rung.
    - `form`: "promote" pauses a trial at each rung and resumes it from its checkpoint when it is promoted; "stop"
      only stops trials, so that they need no checkpoints.
    - `brackets`: Number of brackets; each one's first rung is one later than that of the bracket before.
    - `sampler`: How configurations are drawn.
    """

    max_steps: int
    eta: int = 3
    min_steps: int = 1
    form: Literal["promote", "stop"] = "promote"
    brackets: int = 1
    sampler: Sampler = "random"

    _kind: ClassVar[str] = "asha"


@hinted_class
@dataclass(frozen=True)
class Median(Sampled):
    """Median stopping (Golovin et al. 2017): stops a trial whose best value is worse than the median of running means.

    - `max_steps`: Steps to train a trial.
    - `grace_steps`: No trial is stopped before this step.
    - `min_trials`: No trial is stopped before this many others have reached the step.
    - `sampler`: How configurations are drawn.
    """

    max_steps: int
    grace_steps: int = 1
    min_trials: int = 3
    sampler: Sampler = "random"

    _kind: ClassVar[str] = "median"


@hinted_class
@dataclass(frozen=True)
class PBT(Tuner):
    """Population based training (Jaderberg et al. 2017).

    Every `interval` steps the worst `quantile` of the `population` copy checkpoint and configuration from the best
    `quantile`. Each copied parameter is drawn again with probability `resample`, and otherwise multiplied by one of
    `factors`.

    Members advance together. With fewer devices than members they take turns: a member that has done its `interval`
    steps saves, frees its device for members that are behind, and resumes from its checkpoint when all have come as
    far. Therefore the training code must save and load all of its state, and `interval` should be long compared with
    a start. With a device for each member, a member keeps its device unless others are more than an interval behind.

    - `max_steps`: Steps to train a member.
    - `interval`: Steps between two chances to copy another member.
    - `population`: Members of the population.
    - `quantile`: Fraction of the worst members that copy from the same fraction of the best.
    - `resample`: Probability to draw a parameter again instead of perturbing it.
    - `factors`: Factors for perturbing a number.
    """

    max_steps: int
    interval: int
    population: int = 10
    quantile: float = 0.2
    resample: float = 0.25
    factors: Sequence[float] = (0.8, 1.2)

    _kind: ClassVar[str] = "pbt"


@hinted_class
@dataclass(frozen=True)
class PerformanceCurve(Sampled):
    """Stops trials whose learning curves forecast little chance of becoming the best.

    Every `interval` steps a trial is classified as promising, opportunistic or poor. The class depends on its chance
    to beat the sweep's target or, without a target, the best known or forecast value. A trial is poor if that chance
    is below `poor` and a new trial would have a better chance for the same steps. While forecasts are not calibrated,
    a rank rule stops the worst 1/`eta` at rungs `grace_steps` * `eta`^k.

    - `max_steps`: Maximum number of steps of a trial.
    - `interval`: Steps between two checks of a trial; 0 for a 20th of `max_steps`.
    - `grace_steps`: No trial is stopped before this step; 0 for two intervals.
    - `poor`: A trial whose chance is below this is poor.
    - `keep`: Fraction of the trials that should be stopped that is trained further, to check forecasts on such trials
      too.
    - `eta`: Reduction factor of the rank rule.
    - `sampler`: How configurations are drawn.
    """

    max_steps: int
    interval: int = 0
    grace_steps: int = 0
    poor: float = 0.05
    keep: float = 0.1
    eta: int = 3
    sampler: Sampler = "random"

    _kind: ClassVar[str] = "performance_curve"


@hinted_class
@dataclass(frozen=True)
class FreezeThaw(Sampled):
    """Trains many trials a little at a time, and continues those whose next steps are worth most.

    Trials are evaluated after `min_steps` and then at 1.4 times the steps of the evaluation before. Each evaluation
    forecasts every trial that waits at a checkpoint, and candidates that have not started. The forecast uses the
    trial's rank among the others and the trials of this sweep that have finished.

    - `max_steps`: Maximum number of steps of a trial.
    - `min_steps`: Step of the first evaluation; 0 for a 40th of `max_steps`.
    - `poor`: A trial is stopped if its chance to beat all finished trials is below this, once three have finished.
    - `sampler`: With "model", the forecasts choose up to half of the configurations, depending on how well ranks
      predict results; any other sampler draws all of them.
    """

    max_steps: int
    min_steps: int = 0
    poor: float = 0.01
    sampler: Literal["model"] | Sampler = "model"

    _kind: ClassVar[str] = "freeze_thaw"


@hinted_class
@dataclass(frozen=True)
class Bayes(Tuner):
    """Bayesian optimisation (Jones et al. 1998) with a Gaussian process, computed by the server without Optuna.

    Each configuration is the one with the highest expected improvement. The first is the middle of the space, the
    next few fill it evenly, and every sixth explores. A running trial counts with the value that the model predicts
    for it, a failed one with the worst value. Conditions and constraints are met.

    - `max_steps`: Steps to train a trial; 0 to train until the code ends.
    """

    max_steps: int = 0

    _kind: ClassVar[str] = "bayes"


@hinted_class
@dataclass(frozen=True)
class Patient(Sampled):
    """Stops a trial whose best value has not improved for a number of steps, like Optuna's PatientPruner.

    A trial is compared only with itself. This suits sweeps of few trials, and trials that overfit.

    - `max_steps`: Maximum number of steps of a trial.
    - `patience`: Number of steps without an improvement after which a trial is stopped.
    - `min_delta`: By how much the metric must be better to count as an improvement.
    - `sampler`: How configurations are drawn.
    """

    max_steps: int
    patience: int
    min_delta: float = 0
    sampler: Sampler = "random"

    _kind: ClassVar[str] = "patient"


@hinted_class
@dataclass(frozen=True)
class Percentile(Sampled):
    """Stops a trial that is not among the best at its step, like Optuna's PercentilePruner.

    At `grace_steps`, and whenever the step has doubled since, the best value of a trial so far is compared with those
    that others had there.

    - `max_steps`: Maximum number of steps of a trial.
    - `percentile`: Percentage of the trials at a step that continue.
    - `grace_steps`: No trial is stopped before this step.
    - `min_trials`: No trial is stopped before this many others have reached the step.
    - `sampler`: How configurations are drawn.
    """

    max_steps: int
    percentile: float = 50
    grace_steps: int = 1
    min_trials: int = 4
    sampler: Sampler = "random"

    _kind: ClassVar[str] = "percentile"


@hinted_class
@dataclass(frozen=True)
class Auto(Sampled):
    """Bayesian optimisation that stops trials early. It is the default of a sweep with one objective.

    Configurations are those of `bayes`. Once three trials have trained to their end, a trial that reports steps is
    stopped when it has little chance to become the best, judged by how its rank compares with theirs. Trials need no
    checkpoints, and trials that report once are never stopped.

    - `max_steps`: Steps to train a trial; 0 to train until the code ends.
    - `sampler`: How configurations are drawn.
    """

    max_steps: int = 0
    sampler: Sampler = "bayes"

    _kind: ClassVar[str] = "auto"
