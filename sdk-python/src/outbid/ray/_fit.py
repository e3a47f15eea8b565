"""Reports of Ray Train as reports of a trial, so that the trial can be stopped and paused."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Any

import ray
from ray.train import UserCallback

from outbid._core.errors import StopTrial
from outbid._training.metrics import is_number
from outbid._training.trial import Trial


def fit(trainer: Any, trial: Trial) -> Any:
    """Return `trainer.fit()` of Ray Train, and report its workers' reports for the trial.

    Every report of rank 0 is a step of the trial, with its numeric metrics; its checkpoint is the trial's checkpoint.
    If the trial should wait, such as at a rung of ASHA, the workers wait too, after one or two more reports. If it has
    to stop or pause, the workers are ended and StopTrial is raised. A resumed trial finds the saved directory in
    `trial.checkpoint()`: pass it on in `train_loop_config`.
    """
    if trial._uses_steps:
        raise RuntimeError("outbid.ray.fit: every report is a step here, so call it outside of trial.steps()")
    with _Hearing(trainer, trial) as hearing:
        try:
            result = trainer.fit()
        except ray.exceptions.RayActorError:  # the controller has ended, possibly as requested
            if hearing.ended is None:
                raise
    if hearing.ended is not None:
        raise hearing.ended
    return result


class Telling(UserCallback):  # type: ignore[misc]
    """Passes each report to the trial's process and waits until it is handled. It runs in Ray Train's controller."""

    def __init__(self, line: Any) -> None:
        self._line = line

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        """Pass on rank 0's report and the checkpoint of all ranks."""
        numbers = {name: value for name, value in metrics[0].items() if is_number(value)}
        controller = ray.get_runtime_context().current_actor
        # the receiver has ended because the trial must end
        with contextlib.suppress(ray.exceptions.RayActorError):
            ray.get(self._line.tell.remote(numbers, checkpoint, controller))


class Line:
    """Passes reports from one process to another, one at a time. It runs in an actor."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self._taken: asyncio.Queue[None] = asyncio.Queue()

    async def tell(self, *report: Any) -> None:
        """Send a report; returns when it was handled."""
        await self._told.put(report)
        await self._taken.get()

    async def hear(self) -> tuple[Any, ...]:
        """Return the next report."""
        return await self._told.get()

    async def taken(self) -> None:
        """Confirm that the report was handled."""
        await self._taken.put(None)


class _Hearing:
    """Reports for a trial in a thread what its trainer's workers report, and ends them with the trial."""

    def __init__(self, trainer: Any, trial: Trial) -> None:
        self._trainer, self._trial = trainer, trial
        self._line = ray.remote(num_cpus=0)(Line).remote()
        self._thread = threading.Thread(target=self._run, name="outbid-ray-train", daemon=True)
        self._others = trainer.run_config.callbacks
        self.ended: BaseException | None = None
        """Why the workers were ended, or None."""

    def __enter__(self) -> _Hearing:
        self._trainer.run_config.callbacks = [*(self._others or ()), Telling(self._line)]
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._trainer.run_config.callbacks = self._others
        ray.kill(self._line)  # this ends the thread
        self._thread.join()

    def _run(self) -> None:
        # the line has ended because fit has; or the controller has ended
        with contextlib.suppress(ray.exceptions.RayActorError):
            while True:
                metrics, checkpoint, controller = ray.get(self._line.hear.remote())
                self._report(metrics, checkpoint)
                if self.ended is not None:
                    break
                ray.get(self._line.taken.remote())
            ray.kill(self._line)  # releases the controller, which waits there
            ray.get(controller.abort.remote())  # like Ctrl-C

    def _report(self, metrics: dict[str, Any], checkpoint: Any) -> None:
        try:
            if checkpoint is not None:
                with checkpoint.as_directory() as place:
                    self._trial.save(place)
            self._trial.report(metrics)
        except (StopTrial, Exception) as end:
            self.ended = end
