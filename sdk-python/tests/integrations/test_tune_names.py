"""Names of trials, compared with Ray's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outbid import tune
from outbid.tune._config import CheckpointConfig, TuneConfig, placement_of
from outbid.tune._controller import merge
from outbid.tune._driver import _experiment
from outbid.tune._encoding import decode, encode, keep_large
from outbid.tune._plan import Plan
from outbid.tune._trial import Trial
from outbid.tune.search.optuna import OptunaSearch

Names = list[tuple[str, dict[str, Any], str]]


def work(config: dict[str, Any]) -> None:
    """Do nothing."""


def spaces(t: Any) -> dict[str, Any]:
    """Return spaces made with a package."""
    return {
        "nested": {"a": {"b": t.grid_search([1, 2]), "c": {"d": t.grid_search(["x", "y"])}}, "k": 3},
        "grid of dicts": {"m": t.grid_search([{"kind": "a", "lr": 0.1}, {"kind": "b", "depth": 3}])},
        "grid of spaces": {
            "m": t.grid_search([{"kind": "a", "lr": t.uniform(0, 1)}, {"kind": "b", "depth": t.randint(1, 5)}])
        },
        "grid in a grid": {
            "m": t.grid_search([t.grid_search([1, 2]), 7]),
            "z": {"q": t.grid_search([{"w": t.grid_search([5, 6])}, None])},
        },
        "arrays": {"m": t.grid_search([{"w": np.ones(2)}, {"w": np.ones(3), "x": t.grid_search([1, 2])}])},
        "a long list": {"l": [t.grid_search([n]) for n in range(12)]},
        "what no file may be called": {"s": t.grid_search(["a/b(c) d:*", "", None])},
    }


def parts(trial: Any, directory: str) -> tuple[str, dict[str, Any], str]:
    own = directory.removeprefix(f"{trial}_")[: -len("_2000-01-01_00-00-00")]
    return trial.experiment_tag, trial.evaluated_params, own


def rays(space: dict[str, Any], search: Any, samples: int, folder: Path) -> Names:
    """Return Ray's names of the trials of a space."""
    from ray import tune as theirs

    theirs.register_trainable("work", work)
    spec = {"run": "work", "config": space, "num_samples": samples, "storage_path": str(folder)}
    search.add_configurations({"e": spec})
    made = iter(search.next_trial, None)
    return [parts(trial, trial._generate_dirname()) for trial, _ in zip(made, range(samples * 20), strict=False)]


def plan_of(space: dict[str, Any], search: Any, samples: int, folder: Path) -> tuple[Plan, Any]:
    plan = Plan(work, "work", str(folder), "", keep_large(space), "", "max", placement_of(None), CheckpointConfig())
    settings = TuneConfig(num_samples=samples, search_alg=search, metric="loss", mode="min")
    return plan, _experiment(plan, settings)[0]


@pytest.mark.parametrize("name", list(spaces(tune)))
def test_trials_are_called_what_ray_calls_them(name: str, tmp_path: Path) -> None:
    from ray import tune as theirs
    from ray.tune.search import BasicVariantGenerator

    plan, made = plan_of(spaces(tune)[name], tune.search.BasicVariantGenerator(random_state=1), 2, tmp_path)
    trials: list[Trial] = [plan.trial(n, decode(encode(c), plan.space)) for n, c in enumerate(made.points)]
    ours = [parts(trial, trial.relative_logdir) for trial in trials]
    expected = rays(spaces(theirs)[name], BasicVariantGenerator(random_state=1), 2, tmp_path)
    assert str(ours) == str(expected)


def test_trials_of_a_search_algorithm_are_called_what_ray_calls_them(tmp_path: Path) -> None:
    from optuna.samplers import RandomSampler
    from ray import tune as theirs
    from ray.tune.search import SearchGenerator, optuna

    def space(t: Any) -> dict[str, Any]:
        return {"lr": t.uniform(0, 1), "net": {"depth": t.randint(1, 9), "kind": "mlp"}, "epochs": 3}

    plan, made = plan_of(space(tune), OptunaSearch(sampler=RandomSampler(seed=1)), 3, tmp_path)
    configs = [merge(plan.space, made.searcher.suggest(str(n))) for n in range(3)]
    trials = [plan.trial(n, decode(encode(c), plan.space)) for n, c in enumerate(configs)]
    ours = [parts(trial, trial.relative_logdir) for trial in trials]
    search = SearchGenerator(optuna.OptunaSearch(sampler=RandomSampler(seed=1), metric="loss", mode="min"))
    search.set_search_properties("loss", "min", space(theirs))
    assert ours == rays(space(theirs), search, 3, tmp_path)
    assert ours[0][0].startswith("1_epochs=3,lr=0.")
