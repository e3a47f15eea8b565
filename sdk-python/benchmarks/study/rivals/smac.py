"""SMAC3: the facade for hyperparameters (a random forest) or black boxes (a Gaussian process), refitted each time."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import ConfigSpace as cs
from problem import Config, Space, condition_of
from samplers import Maker
from smac import BlackBoxFacade, HyperparameterOptimizationFacade, Scenario
from smac.runhistory import StatusType, TrialInfo, TrialValue


def _space(space: Space, seed: int) -> Any:
    made, nodes = cs.ConfigurationSpace(seed=seed), {}
    for name, (kind, *rest) in space.items():
        if kind == "choice":
            nodes[name] = cs.CategoricalHyperparameter(name, [str(i) for i in range(len(rest[0]))])
        else:
            number = cs.UniformFloatHyperparameter if kind == "float" else cs.UniformIntegerHyperparameter
            nodes[name] = number(name, rest[0], rest[1], log=rest[2])
    made.add(list(nodes.values()))
    for name, spec in space.items():
        when = condition_of(spec)
        if when is not None:
            made.add(cs.InCondition(nodes[name], nodes[when[0]], [str(space[when[0]][1].index(v)) for v in when[1]]))
    return made


class _Asked:
    def __init__(self, facade: Any, space: Space, seed: int, trials: int) -> None:
        self._space = space
        scenario = Scenario(
            _space(space, seed), n_trials=trials, seed=seed, deterministic=True,
            output_directory=Path(tempfile.mkdtemp(prefix="smac-")),
        )  # fmt: skip
        self._facade = facade(
            scenario, lambda config, seed=0: 0.0, logging_level=50, overwrite=True,
            config_selector=facade.get_config_selector(scenario, retrain_after=1),
        )  # fmt: skip

    def ask(self) -> tuple[Any, Config]:
        info: TrialInfo = self._facade.ask()
        config: dict[str, Any] = {}
        for name, value in dict(info.config).items():
            spec = self._space[name]
            config[name] = spec[1][int(value)] if spec[0] == "choice" else value
        return info, config

    def tell(self, trial: Any, loss: float) -> None:
        if math.isnan(loss):
            self._facade.tell(trial, TrialValue(cost=1e6, status=StatusType.CRASHED))
        else:
            self._facade.tell(trial, TrialValue(cost=loss))


def maker(name: str) -> Maker:
    """Return what starts a run: `rf` or `gp`."""
    facade = BlackBoxFacade if name == "gp" else HyperparameterOptimizationFacade
    return lambda space, seed, trials, flight: _Asked(facade, space, seed, trials)
