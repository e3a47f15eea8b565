"""The state of a trial in its process: its step, its saves, and the messages of its worker."""

from __future__ import annotations

import math
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from outbid._core.errors import ENDLESS, CheckpointError, one_line
from outbid._training.checkpointer import Checkpointer
from outbid._training.config import parse_config
from outbid._training.gang import FromRank, Message
from outbid._training.metrics import step_number
from outbid._training.session import Incoming, Poke, Terminate, WorkerSession
from outbid.v1 import bus_pb2, event_pb2, session_pb2

_FIRST_RETRY, _LAST_RETRY = 0.2, 5.0  # seconds between two attempts to store a checkpoint
_MANY_STEPS = 10_000  # steps of a trial without a target, after which its log warns that nothing ends it
_AFTER_ERROR = 5.0  # seconds that storing a failed trial's newest weights may take


class TrialLoop:
    """The part of a `Trial` for the runner and the loop. Its methods are not for training code."""

    def __init__(self, assignment: session_pb2.TrialAssignment, session: WorkerSession) -> None:
        self._a = assignment
        self._session = session
        self._fork = assignment.fork
        self._id = f"{self._fork.sweep}/{self._fork.trial}"
        self._config = parse_config(assignment.config_json)
        self._lock = threading.RLock()
        self._step = assignment.start_step  # steps done
        self._body: int | None = None  # the step that the loop's body is doing
        self._uses_steps = False
        self._target = assignment.until_step
        self._verdict = bus_pb2.VERDICT_TRAIN
        self._obeyed = False  # the training code must end
        self._reached = -1  # the step of the last ProcessReached
        self._known = assignment.start_step  # the last step reported or saved
        self._seq = 0
        self._reported = False
        self._noted: dict[str, str] = {}  # attributes to send with the next report
        self._checkpointer: Checkpointer = Checkpointer(assignment, session)
        self._skipped_save = False
        self._unsaved: Any = None  # the newest step's weights, which were not requested yet
        self._late = False
        self._begun = False
        self._stop: Callable[[int, Mapping[str, float]], bool] | None = None
        self._enough = False  # a report met the stop condition
        self._pruned = False  # the training code pruned the trial: it needs no value
        self._since = time.monotonic()
        self._trained = 0.0
        self._metadata: dict[str, Any] | None = None
        self._leaving = False  # the process should exit after this trial

    def _advance(self) -> int | None:
        """Finish the current step and return the next one, or None to end the loop."""
        with self._lock:
            if self._body is not None:
                self._step, self._body = self._body, None
            if not self._boundary():
                return None
            self._body = self._step + 1
            self._begin()
            if self._target == 0 and self._body == self._a.start_step + _MANY_STEPS:
                print(f"outbid: trial {self._id} {ENDLESS}", file=sys.stderr)
            return self._body

    def _begin(self) -> None:
        """Announce once that this fork begins its first step in the fork slot; before, it has nothing to save."""
        if self._a.HasField("part") and not self._begun:
            self._begun = True
            self._session.send(session_pb2.AttachRequest(began=session_pb2.ProcessBegan(fork=self._fork)))

    def _boundary(self) -> bool:
        """Between two steps, save if asked and wait at the target. Returns whether to train on."""
        self._drain()
        if self._enough and not self._obeyed:
            return False  # the trial ends by itself
        while not self._obeyed:
            if self._verdict == bus_pb2.VERDICT_STOP:
                break
            at_target = 0 < self._target <= self._step
            if self._verdict == bus_pb2.VERDICT_PAUSE:
                if self._skipped_save and not at_target:
                    # The training code saw save_due False before the pause arrived: let it do one more step.
                    self._skipped_save = False
                    return True
                self._secure()
                break
            if not at_target:
                if self._checkpointer.due:
                    self._checkpointer.offer()
                elif self._checkpointer.best_passed:
                    self._checkpointer.offer_best()
                return True
            self._secure()
            if self._ending() or self._target > self._step or self._target == 0:
                continue
            if self._reached != self._step:
                self._reached = self._step
                reached = session_pb2.ProcessReached(fork=self._fork, step=self._step)
                self._session.send(session_pb2.AttachRequest(reached=reached))
            self._wait(None)
        self._obeyed = True
        return False

    def _finish(self, error: str, trace: str) -> None:
        """Announce that the training code has returned or raised."""
        with self._lock:
            self._drain()
            self._checkpointer.name(self._known)
            if not error and not self._obeyed:
                self._keep_unsaved()
            self._send_noted()
            ordered = self._obeyed and not error
            if not (ordered and self._verdict == bus_pb2.VERDICT_STOP):
                try:
                    self._secure(_AFTER_ERROR if error else None)
                except CheckpointError as failure:
                    error = error or one_line(failure)
            ended = session_pb2.ProcessEnded(
                fork=self._fork,
                step=max(self._step, self._known),
                error=error,
                traceback=trace,
                ordered=ordered and not error,
                pruned=self._pruned and not error,
            )
            self._session.send(session_pb2.AttachRequest(ended=ended))

    def _keep_unsaved(self) -> None:
        """Keep the last weights of a library that ended training by itself, such as by early stopping."""
        if self._unsaved is not None and self._a.rank.rank == 0:
            try:
                self._checkpointer.hold(self._known, self._unsaved, None, copy=False)
            except (TypeError, ValueError) as failure:  # the trial is complete nevertheless
                print(f"outbid: trial {self._id} keeps no checkpoint: {one_line(failure)}", file=sys.stderr, flush=True)

    def _send(self, report: event_pb2.Report, step: int) -> None:
        """Send a report at a step."""
        self._seq += 1
        report.seq, report.step = self._seq, step
        report.time.GetCurrentTime()
        report.train_seconds = self._trained + time.monotonic() - self._since
        self._session.report(self._fork, report)

    def _send_noted(self) -> None:
        """Send pending attributes, if any, in a separate report."""
        if self._noted:
            report = event_pb2.Report()
            self._annotate(report)
            self._send(report, self._known)

    def _annotate(self, report: event_pb2.Report) -> None:
        report.attributes.update(self._noted)
        self._noted.clear()

    def _ending(self) -> bool:
        return self._verdict in (bus_pb2.VERDICT_PAUSE, bus_pb2.VERDICT_STOP)

    def _report_step(self, step: int | None) -> int:
        if step is None:
            if self._uses_steps:
                return self._step if self._body is None else self._body
            return self._step + 1
        number = step_number(step)
        limit = self._step if self._body is None else self._body
        if self._uses_steps and number > limit:
            raise ValueError(
                f"report: step {number} is not done yet: inside steps() report the loop's step, now {limit}"
            )
        return number

    def _drain(self) -> None:
        """Process all messages that the worker has sent."""
        while True:
            try:
                self._take(self._session.inbox.get_nowait())
            except queue.Empty:
                return

    def _wait(self, timeout: float | None) -> None:
        """Wait for a message from the worker, at most `timeout` seconds. The time does not count as training time."""
        waited = time.monotonic()
        self._trained += waited - self._since
        try:
            self._take(self._session.inbox.get(timeout=timeout))
        except queue.Empty:
            pass
        finally:
            self._since = time.monotonic()
            # Waiting must not count towards the next periodic save either.
            self._checkpointer.postpone(self._since - waited)
        self._drain()

    def _take(self, message: Incoming) -> None:
        if isinstance(message, Poke):
            return
        if isinstance(message, FromRank):
            self._heard(message.rank, message.message)
            return
        if isinstance(message, Terminate) or message.HasField("shutdown"):
            self._leaving = True
            if self._verdict != bus_pb2.VERDICT_STOP:
                self._verdict = bus_pb2.VERDICT_PAUSE
        elif message.HasField("directive") and message.directive.fork == self._fork:
            self._follow(message.directive)
        elif message.HasField("save_done") and message.save_done.fork == self._fork:
            self._checkpointer.stored(message.save_done)

    def _heard(self, rank: int, message: Message) -> None:
        """Handle a message of another rank."""

    def _follow(self, directive: session_pb2.Directive) -> None:
        if directive.save:
            self._checkpointer.ask()
        if directive.verdict == bus_pb2.VERDICT_TRAIN:
            # With until_step 0 the training code ends by itself. After a signal to exit, no directive reverses it.
            self._target = directive.until_step
            if not self._leaving:
                self._verdict = directive.verdict
        elif directive.verdict in (bus_pb2.VERDICT_PAUSE, bus_pb2.VERDICT_STOP):
            self._verdict = directive.verdict

    def _secure(self, patience: float | None = None) -> None:
        """Return when the newest weights are stored, the trial must stop, or `patience` seconds have passed."""
        pause = _FIRST_RETRY
        deadline = math.inf if patience is None else time.monotonic() + patience
        while self._verdict != bus_pb2.VERDICT_STOP and self._checkpointer.pending:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            if self._checkpointer.offered:
                self._checkpointer.report_wait()
                self._wait(None if left == math.inf else left)
                continue
            if self._checkpointer.error:
                self._rest(min(pause, left))
                pause = min(2 * pause, _LAST_RETRY)
                if self._verdict == bus_pb2.VERDICT_STOP:
                    return
            self._checkpointer.offer()

    def _rest(self, seconds: float) -> None:
        """Wait for `seconds`, or until the trial must stop."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._verdict != bus_pb2.VERDICT_STOP:
            self._wait(left)


class Steps(Iterator[int]):
    """The iterator of Trial.steps()."""

    def __init__(self, trial: TrialLoop) -> None:
        self._trial = trial

    def __next__(self) -> int:
        step = self._trial._advance()
        if step is None:
            raise StopIteration
        return step
