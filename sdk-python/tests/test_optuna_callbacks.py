"""When callbacks of Optuna's are called: as soon as the study has a trial's value, not with the sweep's next news."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

optuna = pytest.importorskip("optuna")

import outbid.integrations.optuna.optimize as entry  # noqa: E402
from outbid.integrations.optuna.study_callback import StudyCallback  # noqa: E402
from outbid.integrations.optuna.sweep_study import ATTRIBUTE  # noqa: E402
from outbid.integrations.optuna.trial_process import called_for  # noqa: E402


def test_callbacks_do_not_wait_for_news_of_the_sweep() -> None:
    study: Any = optuna.create_study()
    following, _, _ = entry._shared(study, None, SimpleNamespace(local=True))  # type: ignore[arg-type]
    told: list[int] = []
    called: Any = StudyCallback(following, SimpleNamespace(), (lambda of, trial: told.append(trial.number),))  # type: ignore[arg-type]
    assert called._on_idle() is None, "nothing runs yet"
    called._on_update(SimpleNamespace(sweep=SimpleNamespace(id="s"), trials=()))
    for number in range(3):
        asked = following.shared.ask()
        asked.set_user_attr(ATTRIBUTE, f"s/{number}")
        assert called._on_idle() < 0.1 and told == list(range(number))
        following.shared.tell(asked, 0.5)
        assert called._on_idle() < 0.1 and told == list(range(number + 1))
        assert called_for(following.shared, "s") == number + 1, "the next trial may begin"
    while (pause := called._on_idle()) is not None:
        assert pause < 0.3, "the study is looked at for a moment only"
    for number in range(3):
        called.on_trial_end(SimpleNamespace(id=f"s/{number}", sweep="s", state="completed", attributes={}))
    assert told == [0, 1, 2], "no trial's are called twice"
