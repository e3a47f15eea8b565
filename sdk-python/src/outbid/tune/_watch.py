"""Calls a user's callbacks and stoppers while the program follows an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outbid._results.model import TrialResult, Update
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._config import RunConfig, TuneConfig, seconds
from outbid.tune._plan import NOTHING
from outbid.tune._record import Run, collect, status_of, trial_of
from outbid.tune._result_files import agrees, from_report, read_results
from outbid.tune._trial import Trial


class Watch:
    """Makes the calls in the program that waits for the experiment."""

    def __init__(self, made: Run, tune: TuneConfig, run: RunConfig) -> None:
        self._made, self._tune, self._run = made, tune, run
        self._callbacks = list(run.callbacks or [])
        stop = made.plan.stop
        self._stopper = None if stop is None or isinstance(stop, Mapping) else stop
        reporter = run.progress_reporter
        self._reporter = reporter if reporter is not None and getattr(reporter, "own", False) else None
        self._trials: dict[int, Trial] = {}
        self._said: dict[int, int] = {}  # number of results that were passed on, by trial
        self._started: set[int] = set()
        self._ended: set[int] = set()
        # Callbacks already know ended trials, and results of others up to their checkpoints.
        over = {n for n, t in made.infos.items() if t.over and t.state != "stopped"}
        self._ended |= over
        self._started |= over
        self._before = {
            n: t.step if n in over else max((c.step for c in t.checkpoints), default=0) for n, t in made.infos.items()
        }
        self._lines: dict[int, list[dict[str, Any]]] = {}
        self._iteration = 0
        self.enough = False
        """Whether a stopper has ended the experiment."""

    @property
    def shows(self) -> bool:
        """Whether a user's reporter shows the progress."""
        return self._reporter is not None

    @property
    def wants_reports(self) -> bool:
        """Whether results are needed as they arrive."""
        return bool(self._callbacks) or self._stopper is not None or self._reporter is not None

    def begin(self) -> None:
        """Call the callbacks' `setup`."""
        plan = self._made.plan
        about = {
            "stop": self._run.stop or {},
            "num_samples": self._tune.num_samples,
            "time_budget_s": seconds(self._tune.time_budget_s),
        }
        for callback in self._callbacks:
            if hasattr(callback, "setup"):
                callback.setup(**about, total_num_samples=plan.samples)
        if self._reporter is not None:
            self._reporter.setup(
                start_time=plan.began.timestamp(),
                total_samples=plan.samples,
                metric=self._tune.metric,
                mode=self._tune.mode,
            )

    def update(self, update: Update) -> None:
        """Make the calls for an update of the sweep."""
        if not self.wants_reports:
            return
        self._iteration += 1
        self._call("on_step_begin")
        for info in update.trials:
            self._trial(info)
        for report in update.reports:
            known = self._made.infos.get(report.trial)
            if known is not None and not report.superseded and NOTHING not in report.metrics:
                self._result(self._trial(known), report.step, report.metrics)
        for info in update.trials:
            if info.over and info.number not in self._ended:
                self._end(info)
        self._call("on_step_end")
        if self._stopper is not None and self._stopper.stop_all():
            self.enough = True
        if self._reporter is not None and self._reporter.should_report(self._all(), False):
            self._reporter.report(self._all(), False)

    def end(self, trials: list[Trial]) -> None:
        """Make the calls for the end of the experiment."""
        if not self.wants_reports:
            return
        for trial in trials:
            known = self._trials.get(trial.number)
            if known is not None:
                known.__dict__.update(trial.__dict__)
        for callback in self._callbacks:
            if hasattr(callback, "on_experiment_end"):
                callback.on_experiment_end(trials=trials)
        if self._reporter is not None:
            self._reporter.report(trials, True)

    def _all(self) -> list[Trial]:
        return [self._trials[n] for n in sorted(self._trials)]

    def _trial(self, info: TrialResult) -> Trial:

        trial = self._trials.get(info.number)
        if trial is None:
            trial = self._trials[info.number] = trial_of(self._made.plan, info)
        trial.status = status_of(info)
        if info.number not in self._started and (info.state == "running" or info.step or info.over):
            self._started.add(info.number)
            self._made.plan.claim(trial)  # loggers open files in the trial's directory
            self._call("on_trial_start", trial=trial)
        return trial

    def _result(self, trial: Trial, step: int, metrics: Mapping[str, float]) -> None:

        own = next(n for n, t in self._trials.items() if t is trial)
        lines = self._lines.get(own, [])
        at = int(metrics.get("training_iteration", step))
        if max(at, step) > len(lines):
            trial.relative_logdir = self._made.plan.trial(own, trial.config).relative_logdir
            lines = self._lines[own] = read_results(Path(trial.local_path))
        # A trial that continues from another sweep has more lines than steps.
        found = (lines[n - 1] for n in (at, step) if 0 < n <= len(lines) and agrees(lines[n - 1], metrics))
        line: dict[str, Any] | None = next(found, None)
        result = dict(line) if line is not None else from_report(trial, at, metrics)
        result["config"] = trial.config
        trial.last_result = result
        self._said[own] = step
        if self._stopper is not None:
            self._stopper(trial.trial_id, result)
        if step <= self._before.get(own, 0):
            return
        self._call("on_trial_result", trial=trial, result=result)
        name = result.get("checkpoint_dir_name")
        if name:
            checkpoint = Checkpoint(Path(trial.local_path, name))
            trial.checkpoints = [*trial.checkpoints, (checkpoint, result)]
            self._call("on_trial_save", trial=trial)
            self._call("on_checkpoint", trial=trial, checkpoint=checkpoint)

    def _end(self, info: TrialResult) -> None:

        self._ended.add(info.number)
        trial = self._trials[info.number]
        # The last reports of a trial may arrive after the news of its end; its files are complete.
        whole = collect(self._made.plan, info)
        for step in range(self._said.get(info.number, 0) + 1, len(whole.history) + 1):
            self._result(trial, step, whole.history[step - 1])
        trial.__dict__.update(whole.__dict__)
        self._call("on_trial_error" if info.state == "failed" else "on_trial_complete", trial=trial)

    def _call(self, hook: str, **more: Any) -> None:
        for callback in self._callbacks:
            call = getattr(callback, hook, None)
            if call is not None:
                call(iteration=self._iteration, trials=self._all(), **more)
