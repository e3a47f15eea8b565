"""Invalid arguments raise the same types of errors as in Ray, so that scripts which expect these work."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from outbid import tune as ours
from outbid.tune import schedulers, stopper

ray_tune: Any = pytest.importorskip("ray.tune")

from ray.tune import schedulers as their_schedulers  # noqa: E402
from ray.tune import stopper as their_stopper  # noqa: E402
from ray.tune.experiment import Experiment as TheirExperiment  # noqa: E402

LOCK = threading.Lock()


def train(config: dict[str, Any]) -> None:
    """Do nothing."""


def locked(config: dict[str, Any]) -> None:
    """Use an object that cannot be pickled."""
    with LOCK:
        pass


locked.__module__ = "__main__"  # so that it is sent by value

CASES: dict[str, Any] = {
    "an experiment of nothing": lambda t, s, p, e: t.run_experiments({"x": {}}),
    "an unknown argument": lambda t, s, p, e: t.run_experiments({"x": {"run": train, "bah": 1}}),
    "an unknown keyword": lambda t, s, p, e: t.run_experiments({"x": {"run": train}}, bah=1),
    "experiments of no kind": lambda t, s, p, e: t.run_experiments([train]),
    "an instance": lambda t, s, p, e: e("x", object()),
    "an instance in JSON": lambda t, s, p, e: e.from_json("x", {"run": object()}),
    "PBT without mutations": lambda t, s, p, e: s.PopulationBasedTraining(hyperparam_mutations={}),
    "PBT with a number": lambda t, s, p, e: s.PopulationBasedTraining(hyperparam_mutations={"lr": 1}),
    "PBT of a function of specs": lambda t, s, p, e: s.PopulationBasedTraining(
        hyperparam_mutations={"lr": t.sample_from(lambda spec: 1)}
    ),
    "PBT with a large quantile": lambda t, s, p, e: s.PopulationBasedTraining(
        hyperparam_mutations={"lr": [1]}, quantile_fraction=0.6
    ),
    "PBT without an interval": lambda t, s, p, e: s.PopulationBasedTraining(
        hyperparam_mutations={"lr": [1]}, perturbation_interval=0
    ),
    "a replay of no file": lambda t, s, p, e: s.PopulationBasedTrainingReplay("/nowhere"),
    "a scheduler of no name": lambda t, s, p, e: t.create_scheduler("x"),
    "a search of no name": lambda t, s, p, e: t.create_searcher("x"),
    "top as text": lambda t, s, p, e: p.ExperimentPlateauStopper("loss", top="0"),
    "a low top": lambda t, s, p, e: p.ExperimentPlateauStopper("loss", top=1),
    "patience as text": lambda t, s, p, e: p.ExperimentPlateauStopper("loss", patience="0"),
    "negative patience": lambda t, s, p, e: p.ExperimentPlateauStopper("loss", patience=-1),
    "std as text": lambda t, s, p, e: p.ExperimentPlateauStopper("loss", std="0"),
    "negative std": lambda t, s, p, e: p.ExperimentPlateauStopper("loss", std=-0.1),
    "a mode of no name": lambda t, s, p, e: p.ExperimentPlateauStopper("loss", mode="most"),
    "a threshold without a mode": lambda t, s, p, e: p.TrialPlateauStopper("loss", metric_threshold=1.0),
    "a timeout as text": lambda t, s, p, e: p.TimeoutStopper("20"),
    "a space as text": lambda t, s, p, e: t.Tuner(train, param_space="x"),
    "a lock": lambda t, s, p, e: t.Tuner(locked),
    "no trainable": lambda t, s, p, e: t.Tuner(None),
    "a mode of TuneConfig": lambda t, s, p, e: t.run(train, mode="most"),
    "a config as text": lambda t, s, p, e: t.run(train, config="x"),
    "fail_fast with retries": lambda t, s, p, e: t.run(train, fail_fast=True, max_failures=1),
    "an unknown trainable": lambda t, s, p, e: t.run("nothing of this name"),
}
KINDS = (ray_tune.TuneError, ValueError, TypeError, FileNotFoundError, AttributeError)


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_an_error_is_of_rays_type(make: Any) -> None:
    with pytest.raises(Exception) as theirs:
        make(ray_tune, their_schedulers, their_stopper, TheirExperiment)
    with pytest.raises(Exception) as mine:
        make(ours, schedulers, stopper, ours.Experiment)
    kinds = [kind for kind in KINDS if isinstance(theirs.value, kind)]
    assert kinds, f"Ray raises {theirs.value!r}"
    for kind in kinds:
        assert isinstance(mine.value, ours.TuneError if kind is ray_tune.TuneError else kind), repr(mine.value)
    assert "\n" not in str(mine.value) or len(str(mine.value)) < 600
