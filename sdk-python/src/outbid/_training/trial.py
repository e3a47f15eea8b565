"""Trial: the interface of a trial for its training code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outbid._core.errors import LATE_REPORT, StopTrial
from outbid._core.limits import check_report, room
from outbid._training import notes
from outbid._training.config import Config
from outbid._training.gang import REDUCTIONS
from outbid._training.gang_checkpointer import check_shards
from outbid._training.metrics import is_number, metric_values
from outbid._training.start_checkpoint import StartCheckpoint
from outbid._training.trial_loop import Steps
from outbid.v1 import event_pb2

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Device:
    """A device that the trial may use. `index` is the worker's index; CUDA_VISIBLE_DEVICES is set to match."""

    index: int
    type: str
    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Fork:
    """One of several processes that train a trial at the same time, each doing a share of the steps of a fork slot.

    `index` is from 0 to `count` - 1. `seed` is specific to this fork and slot. `trial_seed` is the same for all forks
    of the trial in every slot; use it to draw held-out data.
    """

    index: int
    count: int
    seed: int
    trial_seed: int


class Trial(StartCheckpoint):
    """One configuration that is being trained; the argument of a training function.

    Steps count completed work: **step k is the state after k steps**. Inside `for step in trial.steps():` the body does
    step number `step`, and its reports and checkpoints have the state after it.
    """

    def __repr__(self) -> str:
        return f"<Trial {self.id} at step {self._step}>"

    if not TYPE_CHECKING:  # type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError with a hint for the right name."""
            from outbid._core.name_hints import trial_hint

            hint = trial_hint(name, self.__dict__.get("_config", {}))
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

        def __getitem__(self, key: object) -> Any:
            """Raise TypeError with the hint to use `config`."""
            from outbid._core.name_hints import subscript_hint

            raise TypeError(subscript_hint(key))

        def __contains__(self, key: object) -> bool:
            """Raise TypeError with the hint to use `config`."""
            from outbid._core.name_hints import subscript_hint

            raise TypeError(subscript_hint(key))

        __iter__ = None  # a trial is not a collection

    @property
    def config(self) -> Config:
        """The configuration: a dict, nested for groups, with whole numbers as ints. Entries are also attributes."""
        return self._config

    @property
    def id(self) -> str:
        """The trial's name, such as "digits-1/17"."""
        return self._id

    @property
    def number(self) -> int:
        """The trial's number within its sweep, from 0."""
        return self._fork.trial

    @property
    def seed(self) -> int:
        """A seed for this trial, from 0 to 2**64-1; the same when the trial is resumed or restarted.

        If several forks train the trial, each fork has its own seed in each fork slot, so that they read their data in
        different orders; `fork.trial_seed` is the same for all. `random` and the global generators of numpy and, if it
        is loaded, torch are seeded with it before the training function is called.
        """
        return self._a.seed

    @property
    def fork(self) -> Fork:
        """This process's fork of the trial. There is only one unless the sweep's `Resources(forks=)` allows several.

        Forks start from the same checkpoint, the average of the last fork slot, and count their own steps from there:
        `start_step` and `until_step` are those of this fork. Reports count at the trial's step, the sum over all forks.
        """
        part = self._a.part
        return Fork(part.index, max(1, part.count), seed=self._a.seed, trial_seed=part.trial_seed or self._a.seed)

    def shard(self, n: int) -> npt.NDArray[np.int64]:
        """Return the indices of n samples that this fork trains on in this fork slot: all n if it is the only fork.

        Every sample belongs to one fork. The assignment changes in every slot, and a fork that trains more steps gets
        more samples.
        """
        import numpy as np

        part = self._a.part
        if part.count < 2:
            return np.arange(n, dtype=np.int64)
        order = np.random.default_rng([self._a.start_step, part.total, n]).permutation(n).astype(np.int64)
        return order[n * part.before // part.total : n * (part.before + part.share) // part.total]

    @property
    def local_rank(self) -> int:
        """This process's rank among those of its gang on this node: the index of its device in `devices`."""
        return self._a.rank.local_rank

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that this trial may use on this node. With one process for each, see `local_rank`."""
        return tuple(Device(d.index, d.type, d.name, d.memory_bytes) for d in self._a.devices)

    @property
    def start_step(self) -> int:
        """The number of steps in the start checkpoint; 0 for a fresh start."""
        return self._a.start_step

    @property
    def until_step(self) -> int:
        """The step to train to for now; 0 means until the function ends. It may increase while the trial runs."""
        with self._lock:
            return self._reachable()

    @property
    def scratch(self) -> Path:
        """A directory for the trial's temporary files, which is removed after the trial."""
        return Path(self._a.scratch)

    @property
    def should_stop(self) -> bool:
        """Whether the trial must stop or pause. `steps()` and `report()` check this themselves.

        In a gang rank 0 answers for all, so every rank must ask, in the same step.
        """
        with self._lock:
            self._drain()
            ends = self._agree("should_stop", self._ending)
            self._obeyed = self._obeyed or ends
            return ends

    @property
    def save_due(self) -> bool:
        """Whether weights saved in this step would be written, rather than replaced by later ones.

        For models so large that even a copy in memory is expensive: `if trial.save_due: trial.save(model)`.

        In a gang rank 0 answers for all, so every rank must ask, in the same step.
        """
        with self._lock:
            self._drain()
            due = self._agree("save_due", self._is_save_due)
            self._skipped_save = not due
            return due

    def _is_save_due(self) -> bool:
        upcoming = self._body if self._body is not None else self._step + 1
        return (
            self._ending()
            or self._checkpointer.due
            or 0 < self._target <= upcoming
            or self._checkpointer.is_best(upcoming)
        )

    def steps(self) -> Iterator[int]:
        """Count the steps to train: `start_step + 1`, `start_step + 2`, ...

        The body of the loop does the step that it gets. At the target the newest saved weights are stored and the
        process waits for the server's decision. Then the loop continues, or ends if the trial is paused or stopped. If
        the trial has to end before the target, the loop also saves before it ends. So nothing is left to do after
        the loop. Without a target (`until_step` 0: a tuner without max_steps) only your own `break` ends the loop.
        """
        with self._lock:
            if not self._uses_steps:
                self._uses_steps = True
                self._step = self._a.start_step
                self._checkpointer.name(self._step)
        return Steps(self)

    def report(
        self,
        metrics: Mapping[str, Any] | None = None,
        /,
        *,
        step: int | None = None,
        reduce: Any = None,  # not a Literal, so that type checkers accept report(step=k, **values)
        **named: Any,
    ) -> None:
        """Report metrics at a step. A value is anything that `float` accepts, or an array or tensor of one element.

        NaN and infinities are allowed, as numbers and as text. A number too large for a float becomes infinite.

        `step` is the number of steps done. Inside `steps()` the default is the loop's step, and `step` must not be
        above it. The call does not wait for the server unless 10,000 reports are unsent.

        Without `steps()` every report without `step` counts as one more step. Then this call waits at the trial's
        target, and raises `StopTrial` if the trial must stop or pause. Call `save` before it.

        In a gang only rank 0's values count; those of other ranks are checked and dropped. With `reduce` ("mean",
        "sum", "min" or "max") the values of all ranks are combined, and every rank must report the same names at the
        same steps. Without `steps()` every rank must report each step, with or without `reduce`, so that all of them
        end at the same one.

        Raises TypeError for a value that is not a single number. Raises ValueError for an invalid step, a name of more
        than 256 bytes, or metrics that do not fit into one report of 60 KiB, naming it.
        """
        if reduce not in (None, *REDUCTIONS):
            raise ValueError(
                f"report: reduce must be one of {', '.join(map(repr, REDUCTIONS))} or None, got {reduce!r}"
            )
        self._report(metric_values("report", metrics, named), step, reduce)

    def _report(self, values: dict[str, float], step: int | None, reduce: str | None = None) -> None:
        """Report metrics. Without metrics, record that a step is done; attributes then wait for the next report."""
        with self._lock:
            step = self._report_step(step)
            check_report("report", event_pb2.Report(metrics=values))
            if reduce is not None:
                values = self._reduce(reduce, step, values)
            if self._follows:
                self._known, self._reported = step, True
                self._checkpointer.name(step)
            else:
                self._record(values, step)
        if not self._uses_steps:
            with self._lock:
                self._step = step
                if not self._boundary():
                    raise StopTrial(f"trial {self.id} was told to end at step {step}")

    def _record(self, values: dict[str, float], step: int) -> None:
        """Send a report. The caller holds the lock."""
        report = event_pb2.Report(metrics=values)
        if values:
            self._annotate(report)
            if room(report) < 0:  # the metrics and attributes together are too large
                self._send(event_pb2.Report(attributes=report.attributes), self._known)
                report.ClearField("attributes")
        self._known = step
        self._checkpointer.name(step)
        if self._a.metric in values:
            self._checkpointer.measured(step, values[self._a.metric])
        self._send(report, step)
        self._reported = True
        self._enough = self._enough or (self._stop is not None and bool(self._stop(step, values)))
        if self._uses_steps and self._obeyed and not self._late:
            self._late = True
            print(f"outbid: trial {self.id} {LATE_REPORT}", file=sys.stderr)

    def note(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Record facts about the trial that are not metrics: named values that JSON can represent.

        They are shown in the result: in a trial's `attributes` and as columns "note.<name>" of `frame()`. Noting a name
        again replaces its value. They are sent with the next report or when the trial ends.

        In a gang only rank 0's facts count.

        Raises TypeError for a value that JSON cannot represent. Raises ValueError for a name of more than 256 bytes or
        for values that take more than 60 KiB as JSON; save larger data in the checkpoint.
        """
        found = event_pb2.Report(attributes=notes.encode("note", {**(values or {}), **named}))
        check_report("note", found)
        if self._follows:
            return
        with self._lock:
            if room(event_pb2.Report(attributes={**self._noted, **found.attributes})) < 0:
                self._send_noted()
            self._noted.update(found.attributes)

    def save(
        self,
        weights: Any,
        metadata: Mapping[str, Any] | None = None,
        *,
        copy: bool = True,
        sharded: bool = False,
    ) -> None:
        """Keep the weights of this step until a checkpoint is needed.

        This is cheap enough for every step. The newest weights and those of the best report are written at the target,
        on a pause, and periodically (`Checkpoints(every=)`); all others are dropped.

        `weights` is a dict of arrays (numpy, torch, jax, numbers; nested dicts are joined by dots) or an object with
        `state_dict()`. `metadata` is JSON. Anything else is saved whole: a directory, given by its path, or an object
        that can be pickled, such as a scikit-learn model. Forks of a trial cannot average such a checkpoint. With
        `copy=False` the arrays are not copied: do not change them in place later.

        In a gang only rank 0's weights are kept; those of other ranks are dropped. With `sharded=True` every rank's
        are kept: each rank gives its own part, and must do so in the same steps as the others. The checkpoint counts
        only once the parts of all ranks are stored. Its `metadata` is rank 0's.

        Raises TypeError for a value that is not an array, naming it. With `sharded=True`, raises CheckpointError if
        the server or the worker is too old for it, and ValueError in a trial that has several forks.
        """
        if sharded:
            check_shards(self._a)
        with self._lock:
            # Before the first report of a loop without steps() the step is unknown; the report will name it.
            step = self._body if self._body is not None else self._step if self._uses_steps else None
            if not self._follows or sharded:
                self._checkpointer.hold(step, weights, metadata, copy=copy, sharded=sharded)
            self._known = max(self._known, step or 0)
            self._skipped_save = False
            self._unsaved = None

    # The rest is for the runner, not for training code.

    def _answer(self, answer: Any) -> bool:
        """Handle the training function's return value as its last report: the metric, or a dict of metrics.

        Returns False if it is neither and nothing was reported. Raises AnswerError if nothing was reported and the
        dict's value for the metric is not a number.
        """
        with self._lock:
            if self._obeyed:  # told to end, so the trial is not done
                return self._reported
            reported = self._reported
            named = isinstance(answer, Mapping)
            if not named:
                answer = {self._a.metric: answer}
            numbers = {k: v for k, v in answer.items() if isinstance(k, str) and k and is_number(v)}
            # a value under the metric's name is meant as a number, also if it is text or a bool
            if not reported and self._a.metric in answer:
                try:
                    numbers |= metric_values("return", {self._a.metric: answer[self._a.metric]})
                except TypeError as error:
                    if named:
                        raise AnswerError(str(error)) from None
            step = None if self._uses_steps or not reported else self._known
        if numbers:
            self.report(numbers, step=step)
        return bool(numbers) or reported


class AnswerError(TypeError):
    """Raised if a training function returns a dict whose value for the sweep's metric is not a number."""
