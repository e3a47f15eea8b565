"""SweepHandle: the handle of a submitted sweep."""

from __future__ import annotations

import contextlib
import datetime
import math
import operator
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, SupportsIndex

from outbid._client import programs
from outbid._client.callbacks import Callback, Caller, callables
from outbid._client.connection import Connection
from outbid._client.device_wait import telling_who
from outbid._client.interrupt import interrupted
from outbid._client.outside_state_warning import ChangesOutside
from outbid._core import validation
from outbid._core.errors import OutbidError, SweepFailedError, UnavailableError
from outbid._core.exception_codec import RemoteTraceback
from outbid._core.user_warning import warn_user
from outbid._display.display import Display, NoDisplay, make_display
from outbid._display.failures import LATE_LOG, Failures, last_lines, last_traceback
from outbid._results import from_proto, model
from outbid._results.result import Result
from outbid._search.asktell import AskTell
from outbid._search.resources import Limits
from outbid._search.space import Space, fill_space
from outbid.rpc import Patience
from outbid.v1 import service_pb2 as pb

_TAIL = 500  # lines of a log that are searched for a traceback


@dataclass(frozen=True)
class LogLine:
    """A line that a trial printed. `stream` is "stdout" or "stderr", or "outbid" for a line between two attempts."""

    trial: int
    node: str
    stream: str
    time: datetime.datetime | None
    line: str


class SweepHandle(AskTell):
    """A sweep on the server. It continues without this handle; `outbid.attach(id)` returns another handle."""

    def __init__(self, client: Connection, sweep_id: str) -> None:
        super().__init__(client, sweep_id)

    def __repr__(self) -> str:
        return f"<outbid.SweepHandle of {self.id}>"

    def _repr_html_(self) -> str:
        from outbid._display.display import html_of

        return html_of(self.info(), self.trials())

    @property
    def id(self) -> str:
        """The sweep's id, such as "digits-1"."""
        return self._sweep_id

    def info(self) -> model.SweepInfo:
        """Return the current state of the sweep."""
        return self._client.sweep(self.id)

    def trials(self) -> list[model.TrialResult]:
        """Return the current state of every trial, by number."""
        return self._client.trials(self.id)

    def reports(self) -> list[model.Report]:
        """Return every report of every trial, oldest first."""
        return self._client.reports(self.id)

    def result(self) -> Result:
        """Return the current result without waiting for the sweep's end."""
        return Result(self._client, self.info(), self.trials())

    def wait(
        self,
        timeout: float | None = None,
        *,
        display: bool = False,
        callbacks: Iterable[Callback] = (),
        loggers: Iterable[Callback] = (),
    ) -> Result:
        """Wait until the sweep has ended and return its result.

        After `timeout` seconds TimeoutError is raised and the sweep continues. `display` shows a live table. `loggers`
        are loggers from `outbid.loggers`, which log the sweep from its beginning. Raises SweepFailedError if the sweep
        failed. If the server restarts meanwhile, the call waits for it for at most a minute. Ctrl-C only ends the
        waiting; with `display` it pauses the sweep or leaves it running, like in `Sweep.run`.
        """
        called = (*callables("callbacks", callbacks), *callables("loggers", loggers))
        return self._wait(timeout, display, called, pausing=display)

    async def wait_async(self, timeout: float | None = None, *, callbacks: Iterable[Callback] = ()) -> Result:
        """Wait like `wait`, for asyncio. Callbacks run in another thread."""
        import asyncio

        cancel = _Cancel()
        try:
            return await asyncio.to_thread(self._wait, timeout, False, callables("callbacks", callbacks), cancel)
        except asyncio.CancelledError:
            cancel.cancel()
            raise

    def watch(self, *, reports: bool = False, timeout: float | None = None) -> Iterator[model.Update]:
        """Yield updates of the sweep until it has ended, at most ten a second.

        The first update contains every trial, and so does the first after a lost connection. With `reports`, every
        report of the sweep is yielded once, including earlier ones. Raises TimeoutError after `timeout` seconds.
        """
        return self._watch(reports, timeout, _Cancel())

    def pause(self) -> None:
        """Save every trial and free every device, until `resume`."""
        self._control(pb.SWEEP_COMMAND_PAUSE)

    def resume(self) -> SweepHandle:
        """Continue a paused sweep from its trials' checkpoints. Returns this handle, for `wait`."""
        self._control(pb.SWEEP_COMMAND_RESUME)
        programs.hold(self._client, self.id, new=True)
        return self

    def stop(self) -> None:
        """End every trial. The sweep can be extended later."""
        self._control(pb.SWEEP_COMMAND_STOP)

    def stop_trial(self, number: int, *, reason: str = "") -> None:
        """Save and end one trial. Its reports count, and the sweep continues with others."""
        self._client.rpc.control_trial(
            pb.ControlTrialRequest(sweep=self.id, trial=number, command=pb.TRIAL_COMMAND_STOP, reason=reason)
        )

    def retry_trial(self, number: int, *, reason: str = "") -> None:
        """Run a failed trial again, from its newest checkpoint until the step that its tuner wanted.

        Its reports count, but its tuner still regards it as failed. A sweep that is done or has failed continues
        with it.
        """
        self._client.rpc.control_trial(
            pb.ControlTrialRequest(sweep=self.id, trial=number, command=pb.TRIAL_COMMAND_RETRY, reason=reason)
        )
        programs.hold(self._client, self.id, new=True)

    def delete(self, *, force: bool = False) -> None:
        """Delete the sweep permanently, with its checkpoints, logs and reports. It must have ended.

        With `force` a sweep that has not ended is stopped first. Deleting it again is not an error.
        """
        request = pb.DeleteSweepRequest(sweep=self.id, force=force)
        self._client.rpc.delete_sweep(request)

    def extend(
        self,
        *,
        trials: int | None = None,
        max_steps: int | None = None,
        space: Space | None = None,
        limits: Limits | None = None,
        weight: float | None = None,
        preview: bool = False,
    ) -> tuple[model.TrainedAgain, ...]:
        """Raise the limits of the sweep, or change its weight.

        A sweep that has ended continues; another weight or concurrency alone is an error for it.

        `trials` is the new total of trials, `max_steps` the tuner's new maximum of steps per trial, `space` holds
        parameters with wider ranges (each must contain the old one), `limits` are new limits, and `weight` is the new
        weight relative to other sweeps, which may be lower. If the sweep is stopping, the call waits until it has
        stopped.

        Most checkpoints of ended trials are deleted (see `Sweep`'s `checkpoints`). Trials that continue without a
        checkpoint repeat their steps. They are returned, and a warning names them before anything starts. With
        `preview` they are returned and nothing is changed.
        """
        request = pb.ExtendSweepRequest(sweep=self.id)
        if trials is not None:
            request.trials = _count("trials", trials)
        if max_steps is not None:
            request.max_steps = _count("max_steps", max_steps)
        if space is not None:
            fill_space(request.space, space)
        if limits is not None:
            request.limits.CopyFrom(limits.to_proto())
        if weight is not None:
            if not (math.isfinite(validation.number("extend: weight", weight)) and weight > 0):
                raise ValueError(f"extend: weight must be a number above 0, got {weight!r}")
            request.weight = weight
        if self.info().state == "stopping":
            for _ in self.watch():
                pass
        again = self._extend(request, preview=True)
        if preview:
            return again
        if again:
            # If warnings are errors, this raises before anything has changed.
            warn_user(_trained_again(self.id, again))
        return self._extend(request, preview=False)

    def annotate(
        self,
        description: str | None = None,
        *,
        add_tags: Iterable[str] = (),
        remove_tags: Iterable[str] = (),
    ) -> None:
        """Describe the sweep, which may have ended, or change its tags; `info` returns both.

        `description` is plain text of at most 2,000 bytes; "" removes it. A sweep has at most 20 tags of at most 64
        bytes, without spaces and commas. They do not affect training.
        """
        request = pb.AnnotateSweepRequest(sweep=self.id)
        if description is not None:
            request.description = validation.text("annotate: description", description)
        request.add_tags.extend(_texts("annotate: add_tags", add_tags, "tags"))
        request.remove_tags.extend(_texts("annotate: remove_tags", remove_tags, "tags"))
        self._client.rpc.annotate_sweep(request)

    def logs(self, trial: int | None = None, *, follow: bool = False, tail: int = 0) -> Iterator[LogLine]:
        """Yield the lines that the trials, or one trial, printed; only the last `tail` lines if that is not 0.

        `follow` waits for more lines until the sweep, or the trial, has ended. It also waits for a trial that does not
        exist yet.
        """
        if follow and trial is not None:
            for update in self.watch():
                if any(there.number >= trial for there in update.trials):
                    break
        request = pb.StreamLogsRequest(sweep=self.id, follow=follow, tail=tail)
        if trial is not None:
            request.trial = trial
        for line in self._client.rpc.stream_logs(request):
            when = line.time.ToDatetime(datetime.timezone.utc) if line.HasField("time") else None
            yield LogLine(line.trial, line.node, line.stream, when, line.line)

    def explain(self, trial: int | None = None) -> str:
        """Explain the sweep, or one of its trials, in three sentences, one a line.

        They say why it waits, runs or has ended, why it lost devices, and how it would fare under another policy or
        weight. They are those of the command `outbid explain`. For the last one the server simulates its ledger, which
        may take some seconds.
        """
        request = pb.ExplainSweepRequest(sweep=self.id, simulate=True)
        if trial is not None:
            request.trial = operator.index(trial)
        answer = self._client.rpc.explain_sweep(request)
        return "\n".join((answer.why, answer.lost, answer.otherwise))

    def traceback(self, trial: int) -> str:
        """Return the last complete traceback that a trial printed, or ""."""
        return last_traceback(line.line for line in self.logs(trial, tail=_TAIL) if line.stream == "stderr")

    def _extend(self, request: pb.ExtendSweepRequest, *, preview: bool) -> tuple[model.TrainedAgain, ...]:
        request.preview = preview
        answer = self._client.rpc.extend_sweep(request)
        return tuple(model.TrainedAgain(t.trial, t.from_step, t.step) for t in answer.trained_again)

    def _control(self, command: pb.SweepCommand.ValueType) -> None:
        request = pb.ControlSweepRequest(sweep=self.id, command=command)
        self._client.rpc.control_sweep(request)

    def _wait(
        self,
        timeout: float | None,
        display: bool,
        callbacks: tuple[Callback, ...],
        cancel: _Cancel | None = None,
        *,
        pausing: bool = False,
        fail_fast: bool = False,
    ) -> Result:
        """Wait for the sweep's end.

        With `pausing`, Ctrl-C pauses or detaches from the sweep and prints how to continue.
        """
        screen: Display = NoDisplay()
        caller = Caller((*callbacks, ChangesOutside()))
        last: model.SweepInfo | None = None
        try:
            try:
                page = self._client.page_of(self.id)
                screen = make_display(display, self._explain, page)  # loads many modules: Ctrl-C may well arrive here
                for update in self._watch(caller.wants_reports, timeout, cancel or _Cancel(), caller.idle):
                    last = update.sweep
                    screen.update(update)
                    caller.update(update)
                    if fail_fast:
                        self._fail(update)
            except KeyboardInterrupt:
                if not pausing:
                    raise
                raise interrupted(self, self._client, screen) from None
            result = self.result()
            screen.end(result.sweep, result.trials)
        finally:
            screen.close()
        caller.end(result)
        if last is not None and last.state == "failed":
            cause = None if display else self._cause(last)  # the display has shown the traceback already
            told = display or cause is not None
            raise SweepFailedError(self.id, self._reason(last, result.trials, told=told)) from cause
        return result

    def _cause(self, failed: model.SweepInfo) -> RemoteTraceback | None:
        """Return the traceback of the first failed trial, or None if it has no Python traceback."""
        failures = Failures(self._explain)
        failures.take(failed, last=True)
        found = failures.tracebacks.values()  # for a program, its last lines of output
        return next((RemoteTraceback(trace) for trace in found if "Traceback (most recent call last)" in trace), None)

    def _reason(self, sweep: model.SweepInfo, trials: list[model.TrialResult], *, told: bool) -> str:
        """Return why a sweep failed, with the output of its newest failed trial unless that was shown already."""
        reason = sweep.reason or "the server gave no reason"
        failed = [trial.number for trial in trials if trial.state == "failed"]
        wrote = self._explain(failed[-1]) if failed and not told else ""
        return f"{reason}\n{wrote}" if wrote else reason

    def _fail(self, update: model.Update) -> None:
        """Stop the sweep and raise if a trial has failed."""
        failed = next((trial for trial in update.trials if trial.state == "failed"), None)
        if failed is not None:
            self.stop()
            waiting = Patience(LATE_LOG)
            while not (trace := self._explain(failed.number)) and waiting.more():
                pass
            reason = f"trial {failed.number} failed and fail_fast is set: {failed.reason}"
            raise SweepFailedError(self.id, f"{reason}\n{trace}" if trace else reason)

    def _explain(self, trial: int) -> str:
        """Return a trial's traceback, or its last lines without one; "" if the server does not answer."""
        try:
            lines = [(line.stream, line.line) for line in self.logs(trial, tail=_TAIL)]
        except OutbidError:
            return ""
        stderr = [line for stream, line in lines if stream == "stderr"]
        if any(line.startswith("Traceback") for line in stderr):
            return last_traceback(stderr)
        return last_lines(lines)

    def _watch(
        self, reports: bool, timeout: float | None, cancel: _Cancel, idle: Callable[[], float | None] | None = None
    ) -> Iterator[model.Update]:
        with telling_who(self._client, self.id):
            yield from self._news(reports, timeout, cancel, idle)

    def _news(
        self, reports: bool, timeout: float | None, cancel: _Cancel, idle: Callable[[], float | None] | None
    ) -> Iterator[model.Update]:
        rpc = self._client.rpc
        end = None if timeout is None else time.monotonic() + validation.number("timeout", timeout)
        request = pb.WatchSweepRequest(sweep=self.id, reports=reports)
        waiting, seen = Patience(), 0
        while True:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise self._late(timeout)
            state, skip = "", seen  # a new connection repeats all reports, in the same order
            try:
                for news in rpc.watch_sweep(request, timeout=left, started=cancel.watch, idle=idle):
                    waiting = Patience()
                    fresh = news.reports[min(skip, len(news.reports)) :]
                    skip -= len(news.reports) - len(fresh)
                    seen += len(fresh)
                    sweep = from_proto.sweep_info(news.sweep, self._client)
                    state = sweep.state
                    yield model.Update(
                        sweep,
                        tuple(from_proto.trial_result(t, self._client) for t in news.trials),
                        tuple(from_proto.report_info(r) for r in fresh if r.report.metrics),
                    )
            except TimeoutError:
                raise self._late(timeout) from None
            except UnavailableError as error:
                rpc.recover(error, waiting)
                continue
            if state in model.ENDED_SWEEP:
                programs.release(self._client, self.id)
                return
            # The server closed the stream because it is shutting down: wait for its restart.
            waiting.more()

    def _late(self, timeout: float | None) -> TimeoutError:
        why = ""
        with contextlib.suppress(OutbidError):
            if waiting := self.info().waiting:
                why = f" ({waiting})"
        return TimeoutError(
            f"sweep {self.id} has not ended within {timeout:g} s{why}; it continues, "
            f"and ob.attach({self.id!r}) follows it"
        )


class _Cancel:
    """Lets another thread end a call."""

    def __init__(self) -> None:
        self._call: Any = None
        self._cancelled = False

    def watch(self, call: Any) -> None:
        """Store the running call, or cancel it at once if `cancel` was called before."""
        self._call = call
        if self._cancelled:
            call.cancel()

    def cancel(self) -> None:
        """Cancel the running call, or the next one."""
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()


def _texts(name: str, value: Any, such: str) -> list[str]:
    return [validation.text(name, one) for one in validation.several(name, value, such)]


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"extend: {name} must be a whole number, got {value!r}")
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"extend: {name} must be at least 1, got {value!r}")
    return number


def _trained_again(sweep: str, again: tuple[model.TrainedAgain, ...]) -> str:
    """Return the text of the warning about repeated steps."""
    some = ", ".join(str(t.trial) for t in again[:10]) + (", ..." if len(again) > 10 else "")
    steps = sum(t.step - t.from_step for t in again)
    return (
        f"{len(again)} trials of {sweep} repeat {steps} steps because their checkpoints were deleted when they ended "
        f"(trials {some}); extend(..., preview=True) returns them and changes nothing"
    )
