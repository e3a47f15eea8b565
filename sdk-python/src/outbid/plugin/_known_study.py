"""A study of a sweep's known trials that makes drawing as cheap as possible.

Optuna's storages copy each trial, and its samplers convert all trials for each draw. Here a trial is created and
converted once and shared by all draws, because it does not change.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers._tpe.sampler import default_gamma
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

Way = Literal["minimize", "maximize"]


class Known(FrozenTrial):
    """A known trial. Copies share its data."""

    internal: dict[str, float]  # its parameters in Optuna's internal representation
    # sort key of Optuna's TPE, best first, for finished trials with one objective
    score: tuple[int, float, float]
    # Optuna looks for constraints in each trial for each draw, but these trials have none.
    constraints = property(lambda _: _UNCONSTRAINED)

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenTrial:
        return copy.copy(self)


_UNCONSTRAINED: dict[str, float] = {}


def study_of(trials: Sequence[FrozenTrial], ways: Sequence[Way], sampler: Any) -> optuna.Study:
    """Return a study of trials, whose numbers are set, in which one more trial can be drawn."""
    for number, trial in enumerate(trials):
        if trial._trial_id != number:
            trial.number = trial._trial_id = number
    return optuna.create_study(storage=_Drawing(trials), directions=list(ways), sampler=sampler)


def in_all(trials: Sequence[FrozenTrial]) -> dict[str, BaseDistribution]:
    """Return the distributions that all finished trials have in common, by name, without those of a single value.

    The result is that of `optuna.search_space.intersection_search_space`, which inspects each trial instead of each
    different set of distributions.
    """
    sets = {id(trial.distributions): trial.distributions for trial in trials if trial.state is not TrialState.RUNNING}
    common: dict[str, BaseDistribution] | None = None
    for found in sets.values():
        common = dict(found) if common is None else {k: d for k, d in common.items() if found.get(k) == d}
    return {name: d for name, d in sorted((common or {}).items()) if not d.single()}


class _Drawing(BaseStorage):
    """The storage of a study for one draw, with the known trials and the one that is drawn."""

    def __init__(self, known: Sequence[FrozenTrial]) -> None:
        self._trials = list(known)
        self._last = len(known)
        self._directions: list[StudyDirection] = []
        self._study_attrs: dict[str, Any] = {}

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        self._directions = list(directions)
        return 0

    def get_study_id_from_name(self, study_name: str) -> int:
        return 0

    def get_study_name_from_id(self, study_id: int) -> str:
        return "outbid"

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self._directions

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return {}

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study_attrs

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._study_attrs = {**self._study_attrs, key: value}

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        if template_trial is not None or len(self._trials) > self._last:
            raise NotImplementedError("only one trial can be drawn")
        self._trials.append(
            FrozenTrial(
                number=self._last,
                trial_id=self._last,
                state=TrialState.RUNNING,
                value=None,
                datetime_start=datetime.now(),
                datetime_complete=None,
                params={},
                distributions={},
                user_attrs={},
                system_attrs={},
                intermediate_values={},
            )
        )
        return self._last

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        self._add("params", param_name, distribution.to_external_repr(param_value_internal))
        self._add("distributions", param_name, distribution)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._add("system_attrs", key, value)

    def _add(self, what: str, key: str, value: Any) -> None:
        """Change the trial that is drawn, but not the copy that was returned before."""
        changed = copy.copy(self._trials[self._last])
        setattr(changed, what, {**getattr(changed, what), key: value})
        self._trials[self._last] = changed

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._trials[trial_id]

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        trials = self._trials if states is None else [t for t in self._trials if t.state in states]
        return copy.deepcopy(trials) if deepcopy else list(trials)

    # The rest of Optuna's interface is not used by a draw.

    def delete_study(self, study_id: int) -> None:
        raise NotImplementedError

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        raise NotImplementedError

    def get_all_studies(self) -> list[Any]:
        raise NotImplementedError

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        raise NotImplementedError

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        raise NotImplementedError

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        raise NotImplementedError


class TPE(optuna.samplers.TPESampler):
    """Optuna's TPE for a space without conditions, in which the intersection search space is known in advance."""

    def __init__(self, common: Mapping[str, BaseDistribution], **options: Any) -> None:
        super().__init__(**options)
        self._common = dict(common)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the distributions that all finished trials have in common."""
        return self._common

    def _sample(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw with the same result as Optuna, which iterates over all trials several times per draw."""
        known = study.get_trials(deepcopy=False)[: trial.number]
        if len(study.directions) > 1 or not all(isinstance(t, Known) for t in known):
            return super()._sample(study, trial, search_space)
        ended = [t for t in known if t.state is not TrialState.RUNNING]
        ranked = sorted(ended, key=attrgetter("score"))
        better = set(map(id, ranked[: default_gamma(len(ended))]))
        below = [t for t in ended if id(t) in better]
        above = [t for t in known if id(t) not in better]
        good = self._build_parzen_estimator(study, search_space, below, handle_below=True)
        rest = self._build_parzen_estimator(study, search_space, above, handle_below=False)
        samples = good.sample(self._rng.rng, self._n_ei_candidates)
        drawn = self._compare(samples, self._compute_acquisition_func(samples, good, rest))
        return {name: search_space[name].to_external_repr(value) for name, value in drawn.items()}

    def _get_internal_repr(
        self, trials: list[FrozenTrial], search_space: dict[str, BaseDistribution], *rest: Any
    ) -> dict[str, Any]:
        """Return the parameters of trials as columns. Optuna would convert each value of each trial for each draw."""
        import numpy as np

        rows: list[Mapping[str, float]] = []
        for trial in trials:
            if (
                isinstance(trial, Known)
                and trial.state is not TrialState.RUNNING
                and self._common.keys() >= search_space.keys()
            ):
                rows.append(trial.internal)
                continue
            one = super()._get_internal_repr([trial], search_space, *rest)
            rows += [{name: float(column[0]) for name, column in one.items()}] if all(map(len, one.values())) else []
        return {name: np.asarray([row[name] for row in rows]) for name in search_space}
