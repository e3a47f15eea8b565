"""The timeout of `outbid.optuna.optimize`, which counts from the start of the first trial."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import optuna
from optuna.trial import TrialState

from outbid._core.errors import OutbidError
from outbid._search.sweep import Sweep

START_SECONDS = 60.0
"""The maximum seconds until the first trial begins that a timeout does not count."""

_LOOK_SECONDS = 0.1


@contextlib.contextmanager
def stopped_after(seconds: float | None, sweep: Sweep, study: optuna.Study) -> Iterator[None]:
    """Stop a sweep some seconds after its first trial began. A process may need longer to start than that."""
    if seconds is None:
        yield
        return
    over = threading.Event()
    arguments = (seconds, sweep, study, _begun(study), over)
    threading.Thread(target=_stop_after, args=arguments, name="outbid-timeout", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _stop_after(seconds: float, sweep: Sweep, study: optuna.Study, before: int, over: threading.Event) -> None:
    """Wait until more trials than `before` have begun, and stop the sweep some seconds later, unless it is over."""
    while not (sweep.submitted and _begun(study) > before):
        if over.wait(_LOOK_SECONDS):
            return
    if not over.wait(seconds):
        with contextlib.suppress(OutbidError):  # the server ends the sweep a minute later
            sweep.handle.stop()


def _begun(study: optuna.Study) -> int:
    """Return the number of a study's trials that have begun."""
    states = tuple(state for state in TrialState if state != TrialState.WAITING)
    return study._storage.get_n_trials(study._study_id, states)
