"""scikit-optimize's Gaussian process. Its spaces have no conditions; failed trials count as the worst so far."""

from __future__ import annotations

import math
from typing import Any

from problem import Config, Space, active
from samplers import Maker
from skopt import Optimizer
from skopt.space import Categorical, Integer, Real


class _Asked:
    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._worst = space, 0.0
        made: list[Any] = []
        for kind, *rest in space.values():
            if kind == "choice":
                made.append(Categorical(rest[0]))
            else:
                prior = "log-uniform" if rest[2] else "uniform"
                made.append((Real if kind == "float" else Integer)(rest[0], rest[1], prior=prior))
        self._optimizer = Optimizer(made, random_state=seed)

    def ask(self) -> tuple[Any, Config]:
        point = self._optimizer.ask()
        return point, active(self._space, dict(zip(self._space, point, strict=True)))

    def tell(self, trial: Any, loss: float) -> None:
        if not math.isnan(loss):
            self._worst = max(self._worst, loss)
        self._optimizer.tell(trial, self._worst if math.isnan(loss) else loss)


def maker(name: str) -> Maker:
    """Return what starts a run."""
    return lambda space, seed, trials, flight: _Asked(space, seed)
