"""Trains one candidate of `SearchCV` as a trial: a worker's process fits and scores its folds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection._validation import _fit_and_score

from outbid._core.exception_codec import packed
from outbid._training.trial import Trial
from outbid.integrations.sklearn.param_space import Drawn

METRIC = "score"  # the metric of the sweep: the mean over the folds
CANDIDATE = "candidate"  # the name of the parameter if candidates were drawn in advance
FOLDS, SAMPLES = "folds", "n_samples"
_FOLD = "fold."  # prefix of the attributes of folds, before the fold's number
_FACTS = ("test_scores", "train_scores", "fit_time", "score_time", "n_test_samples", "fit_error")


@dataclass(frozen=True)
class Data:
    """The training data; if it is large, it is in a file that all processes of this machine read."""

    content: tuple[Any, Any, dict[str, Any]] | None
    path: str = ""

    def load(self) -> tuple[Any, Any, dict[str, Any]]:
        """Return X, y and the parameters of fit."""
        return self.content if self.content is not None else _read(self.path)


@lru_cache(maxsize=1)
def _read(path: str) -> Any:
    import joblib

    if not Path(path).exists():
        raise FileNotFoundError(f"SearchCV: {path}, which holds the data, is not on this machine")
    return joblib.load(path, mmap_mode="r")


@dataclass(frozen=True)
class Job:
    """The description of a search, which is the same for all its trials."""

    estimator: Any
    data: Data
    splits: list[tuple[Any, Any]]
    scorer: Any
    refit_metric: str
    error_score: Any
    return_train_score: bool
    candidates: list[dict[str, Any]] | None
    drawn: Drawn | None
    resource: str = FOLDS
    rungs: tuple[int, ...] = ()
    paused: bool = False  # whether the tuner may pause trials, which then continue from their checkpoints
    arguments: dict[str, Any] = field(default_factory=dict)

    def params(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the estimator's parameters for a trial."""
        if self.candidates is not None:
            return self.candidates[int(config[CANDIDATE])]
        assert self.drawn is not None
        return self.drawn.params(config)

    def fit(self, params: dict[str, Any], fold: int, units: int | None) -> dict[str, Any]:
        """Fit and score one fold with `units` of the resource; returns scikit-learn's facts about it."""
        X, y, fit_params = self.data.load()
        train, test = self.splits[fold]
        if units is not None and self.resource == SAMPLES:
            order = np.random.default_rng(fold).permutation(len(train))
            train = np.asarray(train)[np.sort(order[:units])]
        elif units is not None:
            params = {**params, self.resource: units}
        made: dict[str, Any] = _fit_and_score(
            clone(self.estimator),
            X,
            y,
            scorer=self.scorer,
            train=train,
            test=test,
            verbose=0,
            parameters=clone(params, safe=False),
            fit_params=fit_params,
            return_train_score=self.return_train_score,
            return_n_test_samples=True,
            return_times=True,
            return_parameters=False,
            error_score=self.error_score,
            **self.arguments,
        )
        return made


def evaluate(trial: Trial, *, job: Job) -> None:
    """Train one candidate, fold by fold or with increasing amounts of a resource."""
    params = job.params(trial.config)
    trial.note(params={name: repr(value)[:80] for name, value in params.items()})
    try:
        (_folds if job.resource == FOLDS else _rungs)(trial, job, params)
    except Exception as error:
        if job.error_score == "raise":
            trial.note(raised=packed(error))
        raise


def _folds(trial: Trial, job: Job, params: dict[str, Any]) -> None:
    """Report every fold: the mean over all of them, and also the mean so far if trials may be stopped."""
    sums = {"sum": 0.0, "n": 0.0}
    if job.paused and (kept := trial.checkpoint()) is not None:
        sums = {name: float(value) for name, value in kept.items()}
    for step in _steps(trial, len(job.splits)):
        out = job.fit(params, step - 1, None)
        score = _refit_score(out, job)
        sums = {"sum": sums["sum"] + score, "n": sums["n"] + 1}
        if job.paused:
            trial.save({name: np.float64(value) for name, value in sums.items()})
        ranked = job.paused or step == len(job.splits)
        _report(trial, step, sums["sum"] / sums["n"] if ranked else None, {step - 1: out})


def _steps(trial: Trial, folds: int) -> Iterator[int]:
    for step in trial.steps():
        yield step
        if step >= folds:
            return


def _rungs(trial: Trial, job: Job, params: dict[str, Any]) -> None:
    """Report at every rung the mean over all folds, fitted with the rung's amount of the resource."""
    done = trial.start_step
    while True:
        until = trial.until_step or job.rungs[-1]
        units = min((rung for rung in job.rungs if done < rung < until), default=until)
        outs = {fold: job.fit(params, fold, units) for fold in range(len(job.splits))}
        if job.paused:
            trial.save({"done": np.float64(units)})
        mean = float(np.mean([_refit_score(out, job) for out in outs.values()]))
        done = units
        _report(trial, units, mean, outs)  # this ends the trial at its last rung
        if units >= job.rungs[-1]:
            return


def _refit_score(out: Mapping[str, Any], job: Job) -> float:
    scores = out["test_scores"]
    if isinstance(scores, Mapping):
        return float(scores.get(job.refit_metric, next(iter(scores.values()), math.nan)))
    return float(scores)


def _report(trial: Trial, step: int, mean: float | None, outs: Mapping[int, Mapping[str, Any]]) -> None:
    """Report a step and the mean if there is one, and note the results of each fold."""
    trial.note({_FOLD + str(fold): {key: out[key] for key in _FACTS if key in out} for fold, out in outs.items()})
    trial._report({} if mean is None else {METRIC: mean}, step)


def fold_of(attributes: Mapping[str, Any], fold: int) -> dict[str, Any] | None:
    """Return `_fit_and_score`'s facts about a fold from a trial's attributes; None if it was not fitted."""
    found = attributes.get(_FOLD + str(fold))
    return None if found is None else dict(found)
