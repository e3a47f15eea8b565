"""Callback: user code that is called where `fit` waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from outbid.tune._checkpoint import Checkpoint
from outbid.tune._trial import Trial


class Callback:
    """Base class of callbacks. Override the methods that you need."""

    def setup(
        self, stop: Any = None, num_samples: int | None = None, total_num_samples: int | None = None, **info: Any
    ) -> None:
        """Called before all others."""

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Called before the other calls of an update."""

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Called after the other calls of an update."""

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called when a trial starts."""

    def on_trial_restore(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called when a trial continues from a checkpoint."""

    def on_trial_save(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called when a trial has saved."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Called for every result."""

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called when a trial has ended."""

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called when a failed trial is restarted."""

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Called when a trial has failed."""

    def on_checkpoint(
        self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: Checkpoint, **info: Any
    ) -> None:
        """Called for a checkpoint."""

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Called when all trials have ended."""

    def get_state(self) -> dict[str, Any] | None:
        """Return the state that a restored experiment needs."""
        return None

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state."""


class CallbackList(Callback):
    """Several callbacks as one; they are called in order."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._callbacks = list(callbacks)


def _to_each(name: str) -> Callable[..., None]:
    def call(self: CallbackList, *args: Any, **kwargs: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, name)(*args, **kwargs)

    call.__name__, call.__doc__ = name, getattr(Callback, name).__doc__
    return call


for _name in [n for n in vars(Callback) if n == "setup" or n.startswith("on_")]:
    setattr(CallbackList, _name, _to_each(_name))

__all__ = ["Callback", "CallbackList"]
