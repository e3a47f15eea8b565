"""An Optuna study whose trials run elsewhere: the copy that workers share, and the results that come back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from outbid._search.categories import is_plain
from outbid.integrations.optuna.object_codec import plain_trial
from outbid.integrations.optuna.object_storage import Objects, stale_callback
from outbid.integrations.optuna.sweep_study import ATTRIBUTE

_OURS = "outbid:"  # prefix of attributes that only the shared study has


class Following:
    """Updates a study from `shared`, the study that workers use. They are the same study, or `shared` is a copy."""

    def __init__(self, study: optuna.Study, shared: optuna.Study) -> None:
        assert isinstance(shared._storage, Objects)
        self.study, self.shared = study, shared
        self._copied = study is not shared
        self._ids: dict[int, int] = {}  # of the study's trials, by those of the shared ones
        self._trials: dict[str, int] = {}  # ids of the shared trials, by the trials of the sweep
        self._over: set[int] = set()  # ids of shared trials that are in the study as they ended
        self._finished: list[str] = []  # trials of the sweep that have a value or were pruned
        self._attributes: dict[str, Any] = {}  # of the study when they were last the same in both
        self._stored: dict[str, Any] = {}  # the same as the shared study stores them
        self._create = study._storage.create_new_trial
        if self._copied:
            for name, value in study._storage.get_study_system_attrs(study._study_id).items():
                shared._storage.set_study_system_attr(shared._study_id, name, value)
            for trial in study.get_trials(deepcopy=False):
                made = shared._storage.create_new_trial(shared._study_id, trial)
                self._ids[made] = trial._trial_id
                if trial.state.is_finished():
                    self._over.add(made)
            self.push()

    @contextlib.contextmanager
    def numbering(self) -> Iterator[None]:
        """Give trials that this process adds to the study, such as in a callback, the same numbers in both studies."""
        storage: Any = self.study._storage
        if self._copied:
            storage.create_new_trial = self._add
        try:
            yield
        finally:
            if self._copied:
                del storage.create_new_trial

    def push(self) -> None:
        """Copy user attributes that this process set on the study to the shared study."""
        if not self._copied:
            return
        for name, value in self.study._storage.get_study_user_attrs(self.study._study_id).items():
            if name not in self._attributes or not _is_same(self._attributes[name], value):
                self.shared.set_user_attr(name, value)
                self._attributes[name], self._stored[name] = value, self._as_stored()[name]

    def pull(self) -> None:
        """Update the study from the shared study."""
        for trial in self.shared.get_trials(deepcopy=False):
            if trial._trial_id in self._over:
                continue
            if isinstance(of_sweep := trial._user_attrs.get(ATTRIBUTE), str):
                self._trials[of_sweep] = trial._trial_id
            if self._copied:
                self._take(trial)
            if trial.state.is_finished():
                self._over.add(trial._trial_id)
                if isinstance(of_sweep, str) and trial.state != TrialState.FAIL:
                    self._finished.append(of_sweep)
        if self._copied:
            self._take_attributes()

    def finished(self) -> list[str]:
        """Return the trials of the sweep that ended well as of the last `pull`; each is returned once."""
        found, self._finished = self._finished, []
        return found

    def trial(self, of_sweep: str) -> FrozenTrial | None:
        """Return the study's trial for a sweep's trial at the last `pull`, or None."""
        there = self._trials.get(of_sweep)
        if there is None:
            return None
        return self.study._storage.get_trial(self._ids[there] if self._copied else there)

    def runs(self) -> bool:
        """Return whether any trial of the sweep was running at the last `pull`."""
        return any(there not in self._over for there in self._trials.values())

    def is_over(self, of_sweep: str) -> bool:
        """Return whether the study's trial of a sweep's trial had ended at the last `pull`."""
        return self._trials.get(of_sweep) in self._over

    def fail(self, of_sweep: str) -> None:
        """Fail a trial that still runs in the study although its process has ended.

        If the storage records heartbeats, its callback for stale trials is called, like in Optuna.
        """
        there = self._trials.get(of_sweep)
        if there is None or there in self._over:
            return
        storage = self.shared._storage
        with contextlib.suppress(UpdateFinishedTrialError):
            storage.set_trial_state_values(there, TrialState.FAIL)
            if (call := stale_callback(storage)) is not None:
                call(self.shared, storage.get_trial(there))
        self.pull()

    def fail_all(self, sweep: str) -> None:
        """Fail the trials of an ended sweep that still run in the study."""
        self.pull()
        for of_sweep, there in list(self._trials.items()):
            if there not in self._over and of_sweep.startswith(sweep + "/"):
                self.fail(of_sweep)

    def _add(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Add a trial to both studies."""
        if study_id != self.study._study_id:
            return self._create(study_id, template_trial)
        made = self.shared._storage.create_new_trial(self.shared._study_id, template_trial)
        self.pull()
        return self._ids[made]

    def _take(self, trial: FrozenTrial) -> None:
        """Update one trial of the study."""
        storage, trial = self.study._storage, plain_trial(trial)
        if trial._trial_id not in self._ids:
            self._ids[trial._trial_id] = self._create(self.study._study_id, trial)
            return
        here = self._ids[trial._trial_id]
        mine = storage.get_trial(here)
        if mine.state.is_finished():  # this process has told its result
            return
        if mine.state == TrialState.WAITING and trial.state != TrialState.WAITING:
            storage.set_trial_state_values(here, TrialState.RUNNING)
        ended = trial.state.is_finished()
        for name, value in trial.params.items():
            if name not in mine.params:
                distribution = trial.distributions[name]
                storage.set_trial_param(here, name, distribution.to_internal_repr(value), distribution)
        for step, value in trial.intermediate_values.items():
            if step not in mine.intermediate_values:
                storage.set_trial_intermediate_value(here, step, value)
        for name, value in trial.user_attrs.items():
            if ended or name not in mine.user_attrs:
                storage.set_trial_user_attr(here, name, value)
        for name, value in trial.system_attrs.items():
            if (ended or name not in mine.system_attrs) and name != "fixed_params":
                storage.set_trial_system_attr(here, name, value)
        if ended:
            storage.set_trial_state_values(here, trial.state, trial.values)
            mine = storage.get_trial(here)
            mine.datetime_start, mine.datetime_complete = trial.datetime_start, trial.datetime_complete

    def _take_attributes(self) -> None:
        """Copy the attributes that objectives and samplers set on the shared study."""
        here, study_id = self.study._storage, self.study._study_id
        for name, stored in self._as_stored().items():
            if name not in self._stored or self._stored[name] != stored:
                self._stored[name] = stored
                here.set_study_user_attr(study_id, name, self.shared.user_attrs[name])
                self._attributes[name] = here.get_study_user_attrs(study_id)[name]
        for name, value in self.shared._storage.get_study_system_attrs(self.shared._study_id).items():
            if not name.startswith(_OURS):
                here.set_study_system_attr(study_id, name, value)

    def _as_stored(self) -> dict[str, Any]:
        storage: Any = self.shared._storage
        found: dict[str, Any] = storage.base.get_study_user_attrs(self.shared._study_id)
        return found


def _is_same(a: Any, b: Any) -> bool:
    return a is b or bool(is_plain(a) and is_plain(b) and a == b)
