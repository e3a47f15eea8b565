"""Converts the reports of `SearchCV`'s trials to scikit-learn's form: one dict for each candidate and fold."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from outbid._results.model import TrialResult
from outbid._results.result import Result
from outbid.integrations.sklearn.folds import Job, fold_of


class Outcomes:
    """The candidates that were tried: their parameters, how far each was trained, and the results of every fold."""

    def __init__(self, result: Result, job: Job) -> None:
        self._splits = len(job.splits)
        self.params: list[dict[str, Any]] = []
        self.resources: list[int] = []
        self.outs: list[dict[str, Any]] = []
        self._missing: list[set[int]] = []  # by candidate, the folds that were not fitted
        names = _names(result.trials, self._splits)
        for trial in sorted(result.trials, key=lambda t: int(t.config.get("candidate", t.number))):
            self.params.append(job.params(trial.config))
            self.resources.append(trial.step)
            found = [fold_of(trial.attributes, fold) for fold in range(self._splits)]
            self._missing.append({fold for fold, out in enumerate(found) if out is None})
            began = any(out is not None for out in found)
            self.outs += [_nothing(names, trial, began, job) if out is None else out for out in found]

    def complete(self) -> None:
        """For stopped candidates, set the results of folds that were not fitted to the mean of the others."""
        for i, missing in enumerate(self._missing):
            mine = self.outs[i * self._splits : (i + 1) * self._splits]
            there = [out for fold, out in enumerate(mine) if fold not in missing]
            for fold in missing if there else ():
                mine[fold].update({key: _mean([out[key] for out in there]) for key in mine[fold] if key != "fit_error"})

    def rank(self, results: dict[str, Any]) -> None:
        """Rank stopped candidates after the others, and make the results of folds that were not fitted NaN."""
        whole = np.array(self.resources) == max(self.resources)
        for key in [key for key in results if key.startswith("rank_test_")]:
            means = results["mean" + key[len("rank") :]]
            worse = np.where(np.isfinite(means), -means, np.inf)
            order = list(zip(~whole, worse, strict=True))
            results[key] = np.array([1 + sum(other < mine for other in order) for mine in order], dtype=np.int32)
        for i, missing in enumerate(self._missing):
            for key in results if missing else ():
                fold, _, _ = key.removeprefix("split").partition("_")
                if key.startswith("split") and fold.isdigit() and int(fold) in missing:
                    results[key][i] = np.nan
            for key in [key for key in results if missing and key.startswith(("std_test_", "std_train_"))]:
                folds = [results[f"split{fold}{key[len('std') :]}"][i] for fold in range(self._splits)]
                results[key][i] = np.nanstd(folds) if np.isfinite(folds).any() else np.nan


def _names(trials: Iterable[TrialResult], splits: int) -> dict[str, list[str]]:
    """Return the kinds of scores and the names of each; the names are empty for a scorer that returns a number."""
    found: dict[str, list[str]] = {"test_scores": []}
    for trial in trials:
        for fold in range(splits):
            out = fold_of(trial.attributes, fold) or {}
            for kind in ("test_scores", "train_scores"):
                if kind in out:
                    names = found.setdefault(kind, [])
                    names += [name for name in (out[kind] if isinstance(out[kind], dict) else ()) if name not in names]
    return found


def _nothing(names: dict[str, list[str]], trial: TrialResult, began: bool, job: Job) -> dict[str, Any]:
    """Return the results of a fold that was not fitted. They contain an error unless the candidate was stopped."""
    score = math.nan if began or job.error_score == "raise" else float(job.error_score)
    out: dict[str, Any] = {"fit_time": math.nan, "score_time": math.nan, "n_test_samples": 0, "fit_error": None}
    if trial.state == "failed" or not began:
        out["fit_error"] = f"trial {trial.id} is {trial.state}: {trial.reason}"
    for kind, named in names.items():
        out[kind] = dict.fromkeys(named, score) if named else score
    if job.return_train_score and "train_scores" not in out:
        out["train_scores"] = score
    return out


def _mean(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: float(np.mean([value[name] for value in values])) for name in values[0]}
    return float(np.mean(values))
