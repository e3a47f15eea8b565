"""Optuna's samplers, asked and told through a study in memory."""

from __future__ import annotations

import math
import warnings
from typing import Any

import optuna
from problem import Config, Space, condition_of
from samplers import Maker

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)


class _Study:
    def __init__(self, space: Space, sampler: Any) -> None:
        self._space, self._study = space, optuna.create_study(sampler=sampler)

    def ask(self) -> tuple[Any, Config]:
        trial = self._study.ask()
        config: dict[str, Any] = {}
        for name, spec in sorted(self._space.items(), key=lambda item: condition_of(item[1]) is not None):
            when = condition_of(spec)
            if when is not None and config[when[0]] not in when[1]:
                continue
            if spec[0] == "choice":
                config[name] = trial.suggest_categorical(name, spec[1])
            else:
                suggest = trial.suggest_float if spec[0] == "float" else trial.suggest_int
                config[name] = suggest(name, spec[1], spec[2], log=spec[3])
        return trial, config

    def tell(self, trial: Any, loss: float) -> None:
        if math.isnan(loss):
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(trial, loss)


def maker(name: str) -> Maker:
    """Return what starts a run of a sampler with its defaults; for several trials at a time as Optuna recommends."""

    def make(space: Space, seed: int, trials: int, flight: int) -> _Study:
        lie = {"constant_liar": True} if flight > 1 else {}
        if name == "tpe":
            sampler: Any = optuna.samplers.TPESampler(seed=seed, **lie)
        elif name == "tpe-multivariate":
            sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, **lie)
        elif name == "gp":
            sampler = optuna.samplers.GPSampler(seed=seed, deterministic_objective=False)
        elif name == "auto":
            sampler = optuna.samplers.AutoSampler(seed=seed)
        else:
            sampler = optuna.samplers.CmaEsSampler(seed=seed)
        return _Study(space, sampler)

    return make
