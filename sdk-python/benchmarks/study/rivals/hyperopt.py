"""HyperOpt's TPE, with its nested spaces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hyperopt import JOB_STATE_DONE, JOB_STATE_RUNNING, STATUS_FAIL, STATUS_OK, Domain, Trials, hp, space_eval, tpe
from problem import Config, Space, active, condition_of
from samplers import Maker


def _node(name: str, spec: tuple[Any, ...]) -> Any:
    kind, low, high, logarithmic = spec[:4]
    if kind == "float":
        return hp.loguniform(name, math.log(low), math.log(high)) if logarithmic else hp.uniform(name, low, high)
    if logarithmic:
        return hp.qloguniform(name, math.log(low), math.log(high), 1)
    return hp.uniformint(name, low, high)


def _space(space: Space) -> dict[str, Any]:
    made: dict[str, Any] = {}
    numbers = {name: _node(name, spec) for name, spec in space.items() if spec[0] != "choice"}
    for name, spec in space.items():
        if spec[0] == "choice":
            branches = []
            for value in spec[1]:
                branch = {"": value}
                for inner, other in space.items():
                    when = condition_of(other)
                    if when is not None and when[0] == name and value in when[1]:
                        branch[inner] = numbers[inner]
                branches.append(branch)
            made[name] = hp.choice(name, branches)
        elif condition_of(spec) is None:
            made[name] = numbers[name]
    return made


class _Asked:
    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._nodes = space, _space(space)
        self._draw = np.random.default_rng(seed)
        self._trials = Trials()
        self._domain = Domain(lambda config: 0.0, self._nodes)

    def ask(self) -> tuple[Any, Config]:
        self._trials.refresh()
        ids = self._trials.new_trial_ids(1)
        documents = tpe.suggest(ids, self._domain, self._trials, int(self._draw.integers(2**31 - 1)))
        documents[0]["state"] = JOB_STATE_RUNNING
        self._trials.insert_trial_docs(documents)
        self._trials.refresh()
        drawn = {k: v[0] for k, v in documents[0]["misc"]["vals"].items() if v}
        config: dict[str, Any] = {}
        for name, value in space_eval(self._nodes, drawn).items():
            if isinstance(value, dict):
                config[name] = value[""]
                config.update({k: v for k, v in value.items() if k})
            else:
                config[name] = value
        for name, value in config.items():
            spec = self._space[name]
            if spec[0] == "int":
                config[name] = min(max(int(value), spec[1]), spec[2])
        return ids[0], active(self._space, config)

    def tell(self, trial: Any, loss: float) -> None:
        for document in self._trials._dynamic_trials:
            if document["tid"] == trial:
                document["state"] = JOB_STATE_DONE
                failed = math.isnan(loss)
                document["result"] = {"status": STATUS_FAIL} if failed else {"status": STATUS_OK, "loss": loss}
        self._trials.refresh()


def maker(name: str) -> Maker:
    """Return what starts a run."""
    return lambda space, seed, trials, flight: _Asked(space, seed)
