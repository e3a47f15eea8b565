"""SearchCV: scikit-learn's randomized search as a sweep."""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outbid._core.errors import MissingExtraError, SweepFailedError

try:
    from sklearn.base import _fit_context, clone, is_classifier
    from sklearn.model_selection import ParameterSampler, check_cv
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.model_selection._validation import _insert_error_scores, _warn_or_raise_about_fit_failures
    from sklearn.utils import check_random_state, indexable
    from sklearn.utils._param_validation import Interval, StrOptions
    from sklearn.utils.validation import _check_method_params
except ImportError:  # the class below raises this error
    BaseSearchCV = object
    _MISSING = "ob.SearchCV needs scikit-learn 1.6 or later: pip install 'outbid[sklearn]'"

    def _fit_context(**_: Any) -> Any:
        return lambda method: method
else:
    _MISSING = ""

from outbid._search.tuner_classes import Bayes, Random
from outbid._search.tuners import Model, Tuner

if TYPE_CHECKING:
    from outbid._results.result import Result
    from outbid._search.sweep import Sweep
    from outbid.integrations.sklearn.folds import Data, Job

_SENT = 16 << 20  # maximum bytes of data that are sent with the function; larger data is written to a file
_RESOURCE = "folds"


class SearchCV(BaseSearchCV):  # type: ignore[misc]
    """scikit-learn's RandomizedSearchCV as a sweep, with the same arguments, attributes and candidates.

    Every candidate is a trial, which runs when a device is free, and every fold is a step. `scoring`, `cv`, `refit`,
    `error_score`, `return_train_score` and `cv_results_` have the same meaning as in scikit-learn, which is required.

    Args:
        estimator: the estimator to tune. Workers need its packages.
        param_distributions: lists and scipy distributions, from which `random_state` draws the same candidates as in
            RandomizedSearchCV; or Outbid parameters, such as `{"C": ob.loguniform(0.1, 10)}`, with conditions and
            groups (`{"svc": {"C": ...}}` is `svc__C`).
        n_iter: the number of candidates.
        n_jobs: the maximum number of candidates that run at the same time; None or -1 means one per device.
        tuner: the tuner that draws the candidates or stops them early. Tuners such as `ob.TPE()` draw from the
            distributions and learn. A tuner that stops trials, such as `ob.ASHA(max_steps=5)` with five folds, does so
            after some folds.
        resource: the meaning of the tuner's steps, if not folds: "n_samples", the number of training samples in each
            fold, or a parameter of the estimator that is a whole number, such as "n_estimators". `max_steps` and
            `min_steps` bound it.
        verbose: above 0, the sweep's table is shown.
        pre_dispatch: accepted for compatibility and ignored.

    Candidates that were stopped early have NaN for the folds that were not fitted, rank after the others, and are never
    the best. `cv_results_["n_resources"]` is how far each was trained. `sweep_` is the sweep's id, for
    `ob.load(search.sweep_)`. The server is that of `ob.connect`, or a local one. Workers on other machines get the data
    with the function, at most 64 MiB.
    """

    def __init__(
        self,
        estimator: Any,
        param_distributions: Any,
        *,
        n_iter: int = 10,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: Any = "2*n_jobs",
        random_state: Any = None,
        error_score: Any = math.nan,
        return_train_score: bool = False,
        tuner: Tuner | None = None,
        resource: str = _RESOURCE,
    ) -> None:
        if _MISSING:
            raise MissingExtraError(_MISSING)
        super().__init__(
            estimator=estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.param_distributions = param_distributions
        self.n_iter = n_iter
        self.random_state = random_state
        self.tuner = tuner
        self.resource = resource

    if not _MISSING:
        _parameter_constraints = {
            **BaseSearchCV._parameter_constraints,
            "param_distributions": [dict, list],
            "n_iter": [Interval(numbers.Integral, 1, None, closed="left")],
            "random_state": ["random_state"],
            "error_score": [StrOptions({"raise"}), numbers.Real],
            "tuner": [Tuner, None],
            "resource": [str],
        }

    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, **params: Any) -> SearchCV:
        """Run the sweep over the candidates, and fit the best one on all data if `refit` is set."""
        scorers, refit_metric = self._get_scorers()
        X, y = indexable(X, y)
        params = _check_method_params(X, params=params)
        routed = self._get_routed_params_for_fit(params)
        splitter = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = list(splitter.split(X, y, **routed.splitter.split))
        self.n_splits_ = splitter.get_n_splits(X, y, **routed.splitter.split)
        if len(splits) != self.n_splits_:
            raise ValueError(
                f"cv.split and cv.get_n_splits returned inconsistent results: {len(splits)} and {self.n_splits_} splits"
            )
        base = clone(self.estimator)
        with tempfile.TemporaryDirectory(prefix="outbid-search-") as place:
            job, sweep = self._prepare(base, X, y, splits, scorers, refit_metric, routed, Path(place))
            result = _run(sweep, display=self.verbose > 0, raising=self.error_score == "raise")
        self.sweep_ = result.sweep.id
        results = self._collect(result, job)
        if callable(self.scoring) and self.multimetric_:
            refit_metric = self.refit
        self._choose(results, refit_metric)
        if self.refit:
            self._refit(base, X, y, routed.estimator.fit)
        self.scorer_ = getattr(scorers, "_scorers", scorers)
        self.cv_results_ = results
        return self

    def _run_search(self, evaluate_candidates: Any) -> None:
        # Abstract in scikit-learn's base class, whose fit calls it; this class has another fit.
        raise NotImplementedError("SearchCV.fit runs a sweep")

    def _prepare(
        self, base: Any, X: Any, y: Any, splits: list[Any], scorers: Any, metric: Any, routed: Any, place: Path
    ) -> tuple[Job, Any]:
        """Return the job of every trial, and the sweep."""
        from outbid._client.client import default_client
        from outbid._search.space import choice
        from outbid._search.sweep import Sweep
        from outbid.integrations.sklearn.folds import CANDIDATE, Job, evaluate
        from outbid.integrations.sklearn.param_space import drawn, has_parameters

        rng = check_random_state(self.random_state)
        candidates = space = points = None
        if not _learns(self.tuner) and not has_parameters(self.param_distributions):
            candidates = list(ParameterSampler(self.param_distributions, self.n_iter, random_state=rng))
            for params in candidates:  # report a wrong name before anything runs
                clone(base).set_params(**clone(params, safe=False))
            drawn_space = None
            space = {CANDIDATE: choice(range(len(candidates)))}
            points = [{CANDIDATE: n} for n in range(len(candidates))]
        else:
            drawn_space = drawn(self.param_distributions)
            space = drawn_space.space
        tuner = self.tuner
        if tuner is None and candidates is not None:
            tuner = Random()
        if tuner is not None and tuner.seed is None:
            tuner = dataclasses.replace(tuner, seed=int(rng.randint(2**31 - 1)))
        data = _data((X, y, routed.estimator.fit), place, here=default_client().local)
        job = Job(
            estimator=base,
            data=data,
            splits=splits,
            scorer=scorers,
            refit_metric=metric if isinstance(metric, str) else _first(scorers),
            error_score=self.error_score,
            return_train_score=self.return_train_score,
            candidates=candidates,
            drawn=drawn_space,
            resource=self.resource,
            rungs=_rungs(self.tuner, self.resource, base, splits),
            paused=self.tuner is not None and not isinstance(self.tuner, (Model, Random)),
            arguments={"score_params": routed.scorer.score},
        )
        sweep = Sweep(
            partial(evaluate, job=job),
            space,
            metric="score",
            mode="max",
            tuner=tuner,
            points=points or (),
            trials=len(candidates) if candidates is not None else self.n_iter,
            concurrency=self.n_jobs if self.n_jobs is not None and self.n_jobs > 0 else None,
            name=_name(base),
            fail_fast=self.error_score == "raise",
            max_restarts=0 if self.error_score == "raise" else None,
        )
        return job, sweep

    def _collect(self, result: Result, job: Job) -> dict[str, Any]:
        """Convert the trials' reports to scikit-learn's results of a search."""
        from outbid.integrations.sklearn.cv_results import Outcomes

        found = Outcomes(result, job)
        if callable(self.scoring):
            _insert_error_scores(found.outs, self.error_score)
        _warn_or_raise_about_fit_failures(found.outs, self.error_score)
        self.multimetric_ = isinstance(found.outs[0]["test_scores"], dict)
        if callable(self.scoring) and self.multimetric_:
            self._check_refit_for_multimetric(found.outs[0]["test_scores"])
        found.complete()
        more = {"n_resources": found.resources}
        results: dict[str, Any] = self._format_results(found.params, self.n_splits_, found.outs, more)
        found.rank(results)
        return results

    def _choose(self, results: dict[str, Any], metric: Any) -> None:
        """Set the attributes of the best candidate."""
        if not self.refit and self.multimetric_:
            return
        self.best_index_ = self._select_best_index(self.refit, metric, results)
        if not callable(self.refit):
            self.best_score_ = results[f"mean_test_{metric}"][self.best_index_]
        self.best_params_ = results["params"][self.best_index_]

    def _refit(self, base: Any, X: Any, y: Any, fit_params: dict[str, Any]) -> None:
        """Fit the best candidate on all data, in this process."""
        self.best_estimator_ = clone(base).set_params(**clone(self.best_params_, safe=False))
        began = time.time()
        if y is not None:
            self.best_estimator_.fit(X, y, **fit_params)
        else:
            self.best_estimator_.fit(X, **fit_params)
        self.refit_time_ = time.time() - began
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_


def _run(sweep: Sweep, *, display: bool, raising: bool) -> Result:
    """Run the sweep. With `raising`, an estimator's exception is raised as it was."""
    from outbid._core.exception_codec import unpacked

    try:
        return sweep.run(display=display)
    except SweepFailedError:
        if raising:
            for trial in sweep.result().trials:
                if text := trial.attributes.get("raised"):
                    error = unpacked(str(text))
                    raise error from error.__cause__
        raise


def _data(content: tuple[Any, Any, dict[str, Any]], place: Path, *, here: bool) -> Data:
    """Return the data to send with the function; large data for a server on this machine is in a file."""
    import cloudpickle
    import joblib

    from outbid.integrations.sklearn.folds import Data

    if not here or len(cloudpickle.dumps(content)) <= _SENT:
        return Data(content)
    path = place / "data.joblib"
    joblib.dump(content, path)
    return Data(None, str(path))


def _rungs(tuner: Tuner | None, resource: str, base: Any, splits: list[Any]) -> tuple[int, ...]:
    """Return the amounts of the resource for the fits of a candidate, in order; empty for folds.

    Raises ValueError for invalid settings.
    """
    most = getattr(tuner, "max_steps", 0)
    if resource == "folds":
        if most and most != len(splits):
            raise ValueError(f"tuner: max_steps must be the number of folds, {len(splits)}, got {most}")
        return ()
    if not most:
        raise ValueError(f"resource: {resource!r} needs a tuner with max_steps, such as ob.ASHA(max_steps=100)")
    if resource == "n_samples":
        least = min(len(train) for train, _ in splits)
        if most > least:
            raise ValueError(f"tuner: max_steps must be at most the samples of a training fold, {least}, got {most}")
    elif resource not in base.get_params():
        raise ValueError(
            f"resource: must be 'folds', 'n_samples' or a parameter of {type(base).__name__}, got {resource!r}"
        )
    rungs, eta = {most}, getattr(tuner, "eta", 3)
    at = float(most)
    while at / eta >= max(1, getattr(tuner, "min_steps", 1)):
        at /= eta
        rungs.add(round(at))
    at = float(getattr(tuner, "min_steps", most))
    while at < most:
        rungs.add(int(at))
        at *= eta
    return tuple(sorted(rungs))


def _first(scorers: Any) -> str:
    """Return the first of several metrics."""
    return str(next(iter(getattr(scorers, "_scorers", {"": None}))))


def _name(base: Any) -> str:
    """Return the sweep's name, which is made from the estimator's class."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(base).__name__).lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:50].strip("-") or "search"


def _learns(tuner: Tuner | None) -> bool:
    """Return whether a tuner draws configurations with its own sampler."""
    sampler = getattr(tuner, "sampler", None)
    return (
        isinstance(tuner, (Bayes, Model))
        or isinstance(sampler, Model)
        or sampler in ("sobol", "tpe", "gp", "cmaes", "nsga2")
    )
