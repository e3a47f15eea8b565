"""Nevergrad's NGOpt. Its spaces have no conditions: parameters that do not exist are drawn and ignored."""

from __future__ import annotations

import math
from typing import Any

import nevergrad as ng
from problem import Config, Space, active
from samplers import Maker


class _Asked:
    def __init__(self, space: Space, seed: int, trials: int, flight: int) -> None:
        self._space, self._worst = space, 1e6
        made: dict[str, Any] = {}
        for name, (kind, *rest) in space.items():
            if kind == "choice":
                made[name] = ng.p.Choice(rest[0])
            elif rest[2]:
                made[name] = ng.p.Log(lower=float(rest[0]), upper=float(rest[1]))
            else:
                made[name] = ng.p.Scalar(lower=float(rest[0]), upper=float(rest[1]))
            if kind == "int":
                made[name] = made[name].set_integer_casting()
        parameters = ng.p.Dict(**made)
        parameters.random_state.seed(seed)
        self._optimizer = ng.optimizers.registry["NGOpt"](parameters, budget=trials, num_workers=flight)

    def ask(self) -> tuple[Any, Config]:
        trial = self._optimizer.ask()
        return trial, active(self._space, trial.value)

    def tell(self, trial: Any, loss: float) -> None:
        self._optimizer.tell(trial, self._worst if math.isnan(loss) else loss)


def maker(name: str) -> Maker:
    """Return what starts a run."""
    return _Asked
