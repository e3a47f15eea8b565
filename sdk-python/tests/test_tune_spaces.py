"""Parameters in lists, tuples and dicts: a search algorithm draws them, or its error names the ones it cannot draw."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from outbid import tune
from outbid.tune._config import CheckpointConfig, TuneConfig, placement_of
from outbid.tune._controller import Controller, Program, merge
from outbid.tune._driver import _experiment
from outbid.tune._encoding import keep_large
from outbid.tune._plan import Plan
from outbid.tune._variants import find
from outbid.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from outbid.tune.search.optuna import OptunaSearch

SPACES: dict[str, Any] = {
    "tuple": {"w": (tune.uniform(0, 1), 7)},
    "list": {"w": [tune.uniform(0, 1), tune.choice([1, 2]), 7]},
    "tuple in a list in a dict": {"a": {"b": [(tune.randint(0, 5), "x"), {"c": tune.uniform(0, 1)}]}, "k": 1},
    "dict in a tuple": {"w": ({"lr": tune.loguniform(1e-4, 1)}, (tune.uniform(0, 1), (tune.uniform(0, 1),)))},
    "names with slashes": {"a/b": tune.uniform(0, 1), "in": {"c/d": tune.uniform(0, 1)}},
    "numbers as names": {1: tune.uniform(0, 1), "in": {2: (tune.uniform(0, 1),)}},
}
NESTED: dict[str, Any] = {
    "choice of parameters": {"w": tune.choice([tune.uniform(0, 1), 7])},
    "choice of dicts": {"m": tune.choice([{"kind": "a", "lr": tune.uniform(0, 1)}, {"kind": "b"}])},
    "choice of tuples": {"w": (tune.choice([(tune.uniform(0, 1), 1)]), 7)},
}
SEARCH: dict[str, Any] = {
    "basic": BasicVariantGenerator,
    "optuna": lambda: OptunaSearch(seed=1),
    "limited": lambda: ConcurrencyLimiter(OptunaSearch(seed=1), 4),
    "repeated": lambda: Repeater(OptunaSearch(seed=1), 2),
}


def configs(space: Any, search: Any) -> list[Any]:
    """Return configurations of a space, as trials get them."""
    plan = Plan(print, "f", "/nowhere", "", keep_large(space), "", "max", placement_of(None), CheckpointConfig())
    program = Program.__new__(Program)
    program.lock = threading.RLock()
    settings = TuneConfig(num_samples=4, search_alg=search, metric="loss", mode="min")
    program.experiment, _ = _experiment(plan, settings)
    program.state = {"trials": [], "steps": {}, "offsets": {}, "drawn_out": False}
    program.trials, program.scheduler = program.state["trials"], program.experiment.scheduler
    program.live, program.paused = {}, {}
    program.stopper = None
    program.controller, program.learned = Controller(program), _Unlearned()  # type: ignore[assignment]
    program.ask(4)
    return [trial.config for trial in program.trials]


class _Unlearned:
    def keep(self, program: Any, *, last: bool) -> None:
        """Do nothing."""


def alike(space: Any, value: Any) -> bool:
    """Report whether a value has the structure and constants of a space, and numbers for its parameters."""
    if isinstance(space, dict):
        return isinstance(value, dict) and all(alike(inside, value.get(key)) for key, inside in space.items())
    if isinstance(space, (list, tuple)):
        return type(space) is type(value) and len(space) == len(value) and all(map(alike, space, value))
    return isinstance(value, (int, float)) if hasattr(space, "sample") else bool(space == value)


@pytest.mark.parametrize("search", SEARCH.values(), ids=SEARCH)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_parameters_are_drawn_wherever_they_are(space: Any, search: Any) -> None:
    found = configs(space, search())
    assert len(found) == 4 and all(alike(space, config) for config in found), found


@pytest.mark.parametrize("search", SEARCH.values(), ids=SEARCH)
@pytest.mark.parametrize("space", NESTED.values(), ids=NESTED)
def test_choices_that_hold_parameters_are_drawn_or_refused(space: Any, search: Any) -> None:
    if search is BasicVariantGenerator:
        assert not any(find(config) for config in configs(space, search()))
    else:
        with pytest.raises(ValueError, match=r"OptunaSearch cannot draw \w[/\d]*: its choices contain parameters"):
            configs(space, search())


def test_points_name_parameters_within_tuples() -> None:
    points = [{"w": (0.25, 7)}, {"w": (0.5, 7)}]
    search = OptunaSearch(points_to_evaluate=points, seed=1)
    assert configs({"w": (tune.uniform(0, 1), 7)}, search)[:2] == points
    known = OptunaSearch(points_to_evaluate=points, evaluated_rewards=[1.0, 2.0], seed=1)
    configs({"w": (tune.uniform(0, 1), 7)}, known)
    assert [t.params for t in known._study.trials[:2]] == [{"w/0": 0.25}, {"w/0": 0.5}]


def test_a_search_algorithm_that_leaves_parameters_out_is_refused() -> None:
    class Own(Searcher):
        takes = False

        def set_search_properties(self, metric: Any, mode: Any, config: Any, **_: Any) -> bool:
            return self.takes

        def suggest(self, trial_id: str) -> Any:
            return {"x": 1}

    space = {"x": tune.uniform(0, 1), "w": [(tune.uniform(0, 1),)]}
    with pytest.raises(ValueError, match=r"Own does not use param_space, which has parameters \(x, w/0/0\)"):
        configs(space, Own())
    Own.takes = True
    with pytest.raises(ValueError, match="the search algorithm gave no value for w/0/0 of param_space: it returned"):
        configs(space, Own())


def test_what_was_drawn_is_put_among_constants() -> None:
    space = {"a": {"b": 1, "c": [1, (2, 3)]}, "x": tune.uniform(0, 1)}
    drawn = {"x": 0.5, "a": {"d": 4}, "a/c/1/0": 9, "new/deep": 5}
    assert merge(space, drawn) == {"a": {"b": 1, "c": [1, (9, 3)], "d": 4}, "x": 0.5, "new": {"deep": 5}}


def test_the_constructor_refuses_what_cannot_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Tuner: param_space must be a dict, got 'x'"):
        tune.Tuner(print, param_space="x")  # type: ignore[arg-type]
    with (tmp_path / "open").open("w") as file, pytest.raises(TypeError, match="cannot be pickled"):
        tune.Tuner(lambda config: file.write("x"))
