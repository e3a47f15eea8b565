"""An Optuna storage that keeps objects of any kind, as categories and as attributes of trials and studies.

JSON values are stored like Optuna stores them. Another category is stored as text, and the study stores the objects of
these texts once. Another attribute is stored as its pickle.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import BaseStorage
from optuna.storages._heartbeat import BaseHeartbeat
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from outbid.integrations.optuna.object_codec import (
    Choices,
    ReadOnAccess,
    decoded,
    encoded,
    fixed_text,
    is_encoded,
    packed_choice,
    plain_distribution,
    unpacked_choice,
    unread,
)

_CHOICES = "outbid:choices:"  # study attribute: prefix of a parameter's name, for its categories
_FIXED = "fixed_params"  # attribute of an enqueued trial


class Objects(BaseStorage):
    """Keeps a study's objects in another storage, `base`.

    With a `folder`, pickles above 64 KiB are written to files in it. With `by_text`, categories that are objects become
    `Choices`; otherwise they are Optuna's distribution, which compares the objects themselves.
    """

    def __init__(self, base: BaseStorage, study: str, *, folder: Path | None = None, by_text: bool = False) -> None:
        self.base = base
        self._study_id = base.get_study_id_from_name(study)
        self._folder = folder
        self._by_text = by_text
        self._known: dict[tuple[str, tuple[Any, ...]], tuple[Any, ...] | None] = {}  # categories by name and texts
        self._stored: set[tuple[str, tuple[Any, ...]]] = set()  # categories that the study has stored
        self._finished: dict[int, FrozenTrial] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": {}, "_stored": set(), "_finished": {}}

    # Studies.

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        return self.base.create_new_study(directions, study_name)

    def delete_study(self, study_id: int) -> None:
        self.base.delete_study(study_id)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        self.base.set_study_user_attr(study_id, key, encoded(key, value, self._folder))

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self.base.set_study_system_attr(study_id, key, encoded(key, value, self._folder))

    def get_study_id_from_name(self, study_name: str) -> int:
        return self.base.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        return self.base.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self.base.get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return {key: decoded(value, self._folder) for key, value in self.base.get_study_user_attrs(study_id).items()}

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return {key: decoded(value, self._folder) for key, value in self.base.get_study_system_attrs(study_id).items()}

    def get_all_studies(self) -> list[Any]:
        return self.base.get_all_studies()

    # Trials.

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        if template_trial is not None:
            template_trial = self._as_stored(study_id, template_trial)
        return self.base.create_new_trial(study_id, template_trial)

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        stored = self._with_texts(self._study_id, param_name, distribution)
        self.base.set_trial_param(trial_id, param_name, param_value_internal, stored)

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        return self.base.get_trial_id_from_study_id_trial_number(study_id, trial_number)

    def get_trial_number_from_id(self, trial_id: int) -> int:
        return self.base.get_trial_number_from_id(trial_id)

    def get_trial_param(self, trial_id: int, param_name: str) -> float:
        return self.base.get_trial_param(trial_id, param_name)

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        return self.base.set_trial_state_values(trial_id, state, values)

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        self.base.set_trial_intermediate_value(trial_id, step, intermediate_value)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        self.base.set_trial_user_attr(trial_id, key, encoded(key, value, self._folder))

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self.base.set_trial_system_attr(trial_id, key, encoded(key, value, self._folder))

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._made(self.base.get_trial(trial_id))

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        found = [self._made(trial) for trial in self.base.get_all_trials(study_id, deepcopy=False, states=states)]
        return copy.deepcopy(found) if deepcopy else found

    def get_n_trials(self, study_id: int, state: tuple[TrialState, ...] | TrialState | None = None) -> int:
        return self.base.get_n_trials(study_id, state)

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        return self._made(self.base.get_best_trial(study_id))

    def remove_session(self) -> None:
        self.base.remove_session()

    def check_trial_is_updatable(self, trial_id: int, trial_state: TrialState) -> None:
        self.base.check_trial_is_updatable(trial_id, trial_state)

    # Objects.

    def know(self, name: str, choices: Choices) -> None:
        """Use these objects as the categories of a parameter in trials that are read."""
        self._known[name, choices.texts] = choices.choices

    def _made(self, trial: FrozenTrial) -> FrozenTrial:
        """Return a trial with its objects instead of the stored texts."""
        if (made := self._finished.get(trial._trial_id)) is not None:
            return made
        found = {name: d for name, d in trial.distributions.items() if isinstance(d, CategoricalDistribution)}
        asked = {name: self._objects(name, d.choices) for name, d in found.items()}
        objects = {name: choices for name, choices in asked.items() if choices is not None}
        made = trial
        attributes = (*trial._user_attrs.values(), *trial._system_attrs.values())
        if objects or any(map(is_encoded, attributes)):
            made = copy.copy(trial)
            made._params, made._distributions = dict(trial.params), dict(trial.distributions)
            for name, choices in objects.items():
                texts = found[name].choices
                made._params[name] = choices[texts.index(trial.params[name])]
                made._distributions[name] = Choices(choices, texts) if self._by_text else plain_distribution(choices)
            made.__class__ = ReadOnAccess
            made._user_attrs, made._system_attrs = unread(trial._user_attrs), unread(trial._system_attrs)
            made.__dict__["_folder"] = self._folder
        if trial.state.is_finished():
            self._finished[trial._trial_id] = made
        return made

    def _as_stored(self, study_id: int, trial: FrozenTrial) -> FrozenTrial:
        """Return a trial in the form in which it is stored."""
        stored = copy.copy(trial)
        stored.__class__ = FrozenTrial
        stored.__dict__.pop("_folder", None)
        stored._distributions = {n: self._with_texts(study_id, n, d) for n, d in trial.distributions.items()}
        stored._params = {
            name: stored._distributions[name].to_external_repr(trial.distributions[name].to_internal_repr(value))
            for name, value in trial.params.items()
        }
        stored._user_attrs = {name: encoded(name, value, self._folder) for name, value in trial.user_attrs.items()}
        system = dict(trial.system_attrs)
        if fixed := system.get(_FIXED):
            system[_FIXED] = {n: fixed_text(value) for n, value in fixed.items()}
        stored._system_attrs = {name: encoded(name, value, self._folder) for name, value in system.items()}
        return stored

    def _with_texts(self, study_id: int, name: str, given: BaseDistribution) -> BaseDistribution:
        """Return a distribution with texts for objects, and store the objects in the study."""
        if not isinstance(given, CategoricalDistribution):
            return given
        if not isinstance(given, Choices):
            if all(choice is None or type(choice) in (bool, int, float, str) for choice in given.choices):
                return given
            given = Choices(given.choices)
        if (name, given.texts) not in self._stored:
            self._stored.add((name, given.texts))
            self._store(study_id, name, given)
            self._known.setdefault((name, given.texts), given.choices)
        return CategoricalDistribution(given.texts)

    def _store(self, study_id: int, name: str, choices: Choices) -> None:
        """Store the categories of a parameter. Those that cannot be pickled remain texts in other processes."""
        kept = self.base.get_study_system_attrs(study_id).get(_CHOICES + name)
        if kept is not None and tuple(kept["texts"]) == choices.texts:
            return
        kept = {"texts": list(choices.texts), "objects": [packed_choice(choice) for choice in choices.choices]}
        self.base.set_study_system_attr(study_id, _CHOICES + name, kept)

    def _objects(self, name: str, texts: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the objects for the texts of a parameter, or None if the texts are the original values."""
        if (name, texts) not in self._known:
            kept = None
            if any(type(text) is str for text in texts):
                kept = self.base.get_study_system_attrs(self._study_id).get(_CHOICES + name)
            if kept is not None and tuple(kept["texts"]) == texts:
                pairs = zip(kept["objects"], texts, strict=True)
                self._known[name, texts] = tuple(unpacked_choice(one, text) for one, text in pairs)
            else:
                self._known[name, texts] = None
        return self._known[name, texts]


class BeatingObjects(Objects, BaseHeartbeat):
    """Keeps a study's objects in a storage that records heartbeats."""

    base: Any

    def record_heartbeat(self, trial_id: int) -> None:
        self.base.record_heartbeat(trial_id)

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        found: list[int] = self.base._get_stale_trial_ids(study_id)
        return found

    def get_heartbeat_interval(self) -> int | None:
        interval: int | None = self.base.get_heartbeat_interval()
        return interval

    def get_heartbeat_stale_trial_callback(self) -> Any:
        return stale_callback(self.base)

    def get_failed_trial_callback(self) -> Any:
        return stale_callback(self.base)


def stale_callback(storage: Any) -> Any:
    """Return a storage's callback for stale trials, or None."""
    if not isinstance(storage, BaseHeartbeat) or storage.get_heartbeat_interval() is None:
        return None
    named = "get_heartbeat_stale_trial_callback"  # since Optuna 4.9
    return getattr(storage, named if hasattr(storage, named) else "get_failed_trial_callback")()


def keeping(base: BaseStorage, study: str, *, folder: Path | None = None, by_text: bool = False) -> Objects:
    """Return a storage that keeps the objects of a study in `base`."""
    if isinstance(base, Objects):
        base = base.base
    kind = BeatingObjects if isinstance(base, BaseHeartbeat) else Objects
    return kind(base, study, folder=folder, by_text=by_text)
