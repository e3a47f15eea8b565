"""Conversion of a sweep to an Optuna study, for Optuna's plots, importances and dashboard."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from outbid._search.objectives import values as values_of
from outbid.plugin._optuna import as_params
from outbid.plugin._space import Space, flatten

ATTRIBUTE = "outbid"  # attribute of Optuna's trials: the id of the sweep's trial


def to_study(result: Any, *, storage: str | None = None, study_name: str | None = None) -> optuna.Study:
    """Return a sweep's trials as an Optuna study. With `storage` it is stored, for example for optuna-dashboard.

    Stopped trials become pruned ones. A trial's reported values of the metric become its intermediate values, which
    Optuna does not have for several objectives. Parameters in groups have dotted names. Choices that are lists or
    dicts, which Optuna does not support, become text.
    """
    objectives = _objectives(result)
    study = _empty(result, objectives, None if storage is None else kept(storage), study_name)
    return _fill(study, result, objectives)


def to_study_of_first(result: Any) -> optuna.Study:
    """Return a study of the first objective only, which most of Optuna's plots need."""
    objectives = _objectives(result)[:1]
    with unannounced():
        return _fill(_empty(result, objectives, None, None), result, objectives)


def _objectives(result: Any) -> tuple[tuple[str, str], ...]:
    return result.sweep.objectives or ((result.sweep.metric, result.sweep.mode),)


def _empty(
    result: Any, objectives: Sequence[tuple[str, str]], storage: str | BaseStorage | None, name: str | None
) -> optuna.Study:
    study = optuna.create_study(
        storage=storage,
        study_name=name or result.sweep.id,
        directions=["maximize" if mode == "max" else "minimize" for _, mode in objectives],
    )
    if len(objectives) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names([metric for metric, _ in objectives])
    return study


def _fill(study: optuna.Study, result: Any, objectives: Sequence[tuple[str, str]]) -> optuna.Study:
    space = Space(result._spec_of().space)
    reports: dict[int, dict[int, float]] = {}
    for report in result.reports():
        value = report.metrics.get(result.sweep.metric, math.nan)
        if math.isfinite(value) and not report.superseded:
            reports.setdefault(report.trial, {})[report.step] = value
    for trial in result.trials:
        values = flatten(trial._stored, space)
        params, distributions = as_params(space, values)
        for d in space:
            if d.kind == "choice" and d.path in params:
                params[d.path] = _plain(d.values[params[d.path]])
                distributions[d.path] = CategoricalDistribution([_plain(v) for v in d.values])
        seen = reports.get(trial.number, {})
        state = _STATES.get(trial.state, TrialState.RUNNING)
        if trial.state == "paused" and not trial.step:
            state = TrialState.RUNNING  # it waits in a paused sweep
        last: tuple[float, ...] | None
        if len(objectives) > 1:
            last, seen = values_of(trial, objectives), {}
        else:
            last = (seen[max(seen)],) if seen else None
        if state == TrialState.COMPLETE and last is None:
            state = TrialState.FAIL
        made = optuna.trial.create_trial(
            state=state,
            values=last if state == TrialState.COMPLETE else None,
            params=params,
            distributions=distributions,
            user_attrs={ATTRIBUTE: trial.id, **trial.attributes},
            intermediate_values=seen,
        )
        made.datetime_start = _local(trial.created) or made.datetime_start
        if made.state.is_finished():
            made.datetime_complete = _local(trial.ended or result.sweep.ended) or made.datetime_complete
        study.add_trial(made)
    return study


def _local(when: datetime.datetime | None) -> datetime.datetime | None:
    """Return a time as Optuna stores it: local and without a time zone."""
    return when.astimezone().replace(tzinfo=None) if when is not None else None


def fanova(result: Any, *, seed: int = 0) -> dict[str, float]:
    """Return each parameter's importance by fANOVA, largest first; empty if there are too few trials."""
    study = to_study_of_first(result)
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    shared = set.intersection(*(set(t.params) for t in complete)) if complete else set()
    if len(complete) < 4 or not shared:
        return {}
    if len({t.value for t in complete}) == 1:
        return dict.fromkeys(sorted(shared), 0.0)  # Optuna's evaluator would raise an error
    by = optuna.importance.FanovaImportanceEvaluator(seed=seed)
    found = optuna.importance.get_param_importances(study, evaluator=by)
    return {name: float(share) for name, share in found.items()}


_STATES = {
    "completed": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "paused": TrialState.PRUNED,
    "failed": TrialState.FAIL,
    "stopped": TrialState.FAIL,
}


def kept(storage: str | BaseStorage) -> str | BaseStorage:
    """Return a study's storage for Optuna; a name that ends with ".log" becomes a journal file."""
    if isinstance(storage, str) and storage.endswith(".log") and "://" not in storage:
        return JournalStorage(JournalFileBackend(str(Path(storage).absolute())))
    return storage


@contextlib.contextmanager
def unannounced() -> Iterator[None]:
    """Silence Optuna's message about a new study."""
    said = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(said, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(said)


def _plain(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, (list, dict)) else value
