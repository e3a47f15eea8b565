"""OpenBox's advisor with its automatic choice of model and optimiser."""

from __future__ import annotations

import math
import tempfile
from typing import Any

from openbox import Observation
from openbox import space as sp
from openbox.core.generic_advisor import Advisor
from openbox.utils.constants import FAILED, SUCCESS
from problem import Config, Space, condition_of
from samplers import Maker


def _space(space: Space, seed: int) -> Any:
    made, nodes = sp.Space(seed=seed), {}
    for name, (kind, *rest) in space.items():
        if kind == "choice":
            nodes[name] = sp.Categorical(name, [str(i) for i in range(len(rest[0]))])
        else:
            variable = sp.Real if kind == "float" else sp.Int
            nodes[name] = variable(name, rest[0], rest[1], log=rest[2])
    made.add_variables(list(nodes.values()))
    for name, spec in space.items():
        when = condition_of(spec)
        if when is not None:
            values = [str(space[when[0]][1].index(v)) for v in when[1]]
            made.add_condition(sp.InCondition(nodes[name], nodes[when[0]], values))
    return made


class _Advised:
    def __init__(self, space: Space, seed: int, trials: int) -> None:
        self._space = space
        self._advisor = Advisor(
            _space(space, seed), num_objectives=1, num_constraints=0, initial_trials=3, task_id="study",
            random_state=seed, output_dir=tempfile.gettempdir(), logger_kwargs={"level": "ERROR", "logdir": None},
        )  # fmt: skip

    def ask(self) -> tuple[Any, Config]:
        suggested = self._advisor.get_suggestion()
        config: dict[str, Any] = {}
        for name, value in suggested.get_dictionary().items():
            spec = self._space[name]
            config[name] = spec[1][int(value)] if spec[0] == "choice" else value
            if spec[0] == "int":
                config[name] = int(value)
        return suggested, config

    def tell(self, trial: Any, loss: float) -> None:
        failed = math.isnan(loss)
        state = FAILED if failed else SUCCESS
        objectives = [math.inf if failed else loss]
        self._advisor.update_observation(Observation(config=trial, objectives=objectives, trial_state=state))


def maker(name: str) -> Maker:
    """Return what starts a run, one trial at a time."""
    return lambda space, seed, trials, flight: _Advised(space, seed, trials)
