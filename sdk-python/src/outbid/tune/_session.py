"""Session: the trial that runs in this process, for `tune.report` and related functions."""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from outbid._core.errors import StopTrial, as_text
from outbid._core.exception_codec import pickled
from outbid._core.limits import sent_name
from outbid._training import trial as training
from outbid._training.metrics import is_number
from outbid.tune import _checkpoint_ranking, _order
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._encoding import decode
from outbid.tune._host import DATE, process
from outbid.tune._plan import NOTHING, Plan, met
from outbid.tune._result_files import LAST, UNSENT, Writer, read_results, saved_results
from outbid.tune._trial import Trial, flatten, to_json
from outbid.tune.stopper import asked_in_trial

current: Session | None = None
"""The session of the trial that runs in this process."""

_ABOUT = "outbid"  # key in a checkpoint's metadata for state besides the trial's steps


class Session:
    """One trial in its process: counts its iterations, writes its files, and uses Outbid's trial."""

    def __init__(self, plan: Plan, trial: training.Trial) -> None:
        self._plan, self._own = plan, trial
        self.placement = plan.placement
        """The trial's resources."""
        self.config = decode(json.loads(trial._a.config_json or "{}"), plan.space)
        self.trial: Trial = plan.trial(trial.number, self.config)
        self.folder = plan.claim(self.trial)
        self._start: Checkpoint | None = None
        self._offset, self._before = 0, 0.0  # iterations and seconds of earlier runs
        self._load()
        self.iteration = trial.start_step + self._offset
        self.since_restore = 0
        self._clock = self._began = time.time()
        self.time_total = self._before
        self._kept: list[tuple[Path, _order.Rank]] = []
        self._made = 0  # number of checkpoints so far
        self.counts: dict[str, float] = {}
        self._files: Writer | None = None
        self._open()
        self._enough = False
        trial._stop = lambda step, metrics: self._enough
        self._pending: str | None = None  # a directory of `checkpoint_dir`, until the next report
        self._given: list[str] = []  # directories that the training code may still write to
        self.last: dict[str, Any] = {}

    def checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint from which the trial starts."""
        return self._start

    @property
    def save_due(self) -> bool:
        """Whether Outbid needs a checkpoint of the next iteration."""
        return self._own.save_due

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the run's configuration requires a checkpoint of the next iteration."""
        every = self._plan.checkpoints.checkpoint_frequency
        return bool(every) and (self.iteration + 1) % every == 0

    @property
    def at_end(self) -> bool:
        """Whether a checkpoint is required at the trial's end."""
        return bool(self._plan.checkpoints.checkpoint_at_end)

    @property
    def plan(self) -> Plan:
        """The experiment."""
        return self._plan

    def report(
        self,
        metrics: Mapping[str, Any],
        checkpoint: Checkpoint | None = None,
        name: str | None = None,
        final: Callable[[], Checkpoint] | None = None,
    ) -> None:
        """Record one result. Raises StopTrial if the trial should end or pause.

        `final` makes a checkpoint if the result turns out to be the last.
        """
        result = self.fill(metrics)
        flat = flatten(result)
        enough = bool(result.get("done")) or self._stops(result, flat)
        result["done"] = flat["done"] = enough
        if checkpoint is None and self._pending is not None:
            checkpoint = Checkpoint(self._pending)
        if checkpoint is None and enough and final is not None:
            checkpoint = final()
        if checkpoint is not None:
            if not Path(checkpoint.path).is_dir():
                raise FileNotFoundError(f"tune.report: the checkpoint's directory {checkpoint.path} does not exist")
            about = {_ABOUT: {"offset": self._offset, "time_total": self.time_total, "counts": self.counts}}
            self._own.save(checkpoint.path, metadata=about)
            result["checkpoint_dir_name"] = self._keep(checkpoint, result, flat, name)
            if self._pending is not None:
                self._clear()
        self._pending = None
        if not self.since_restore and self.folder is not None:
            (self.folder / LAST).unlink(missing_ok=True)  # of an earlier process, whose last result this one replaces
        self.iteration += 1
        self.since_restore += 1
        if self._files is not None:
            self._files.write(result, flat)
        self.last = result
        self._enough = self._enough or enough
        numbers = {k: v for k, v in flat.items() if k not in UNSENT and is_number(v) and not _configured(k)}
        goal = self._plan.metric
        for name in (goal, *(self._plan.stop if isinstance(self._plan.stop, Mapping) else ())):
            if name not in numbers and (value := _order.number(flat.get(name))) is not None:
                numbers[name] = value  # such as True or "0.5", which are not sent under other names
        if goal in numbers:
            numbers[sent_name(goal)] = numbers[goal]
        try:
            self._own.report(numbers, step=None)
        finally:
            self._clock = time.time()

    def finish(self) -> None:
        """Keep a checkpoint that was made after the last report, and add it to that report's result."""
        if self._pending is None or not self.last:
            return
        checkpoint, self._pending = Checkpoint(self._pending), None
        about = {_ABOUT: {"offset": self._offset, "time_total": self.time_total, "counts": self.counts}}
        self._own.save(checkpoint.path, metadata=about)
        self.keep(checkpoint)

    def nothing(self) -> None:
        """Tell the server that the trial ends successfully without a report."""
        with contextlib.suppress(StopTrial):
            self._own.report({sent_name(self._plan.metric): float("nan"), NOTHING: 1.0}, step=None)

    def fill(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Return a result with the fields that Ray adds."""
        now = datetime.datetime.now()
        took = metrics.get("time_this_iter_s")
        took = time.time() - self._clock if took is None else took
        self.time_total += took
        result = dict(metrics)
        for one, total in (("timesteps_this_iter", "timesteps_total"), ("episodes_this_iter", "episodes_total")):
            if result.get(one) is not None:
                self.counts[total] = self.counts.get(total, 0) + result[one]
            if total in self.counts:
                result.setdefault(total, self.counts[total])
        result.setdefault("timestamp", int(now.timestamp()))
        result.setdefault("checkpoint_dir_name", None)
        result.setdefault("done", False)
        result.setdefault("training_iteration", self.iteration + 1)
        result.update(
            trial_id=self.trial.trial_id,
            date=now.strftime(DATE),
            time_this_iter_s=took,
            time_total_s=self.time_total,
            **process(),
            config=self.config,
            time_since_restore=self.time_total - self._before,
            iterations_since_restore=self.since_restore + 1,
        )
        return result

    @contextlib.contextmanager
    def checkpoint_dir(self) -> Iterator[str]:
        """Yield a directory that the next report keeps as its checkpoint."""
        self._pending = tempfile.mkdtemp(prefix="checkpoint_")
        self._given.append(self._pending)
        yield self._pending

    def _clear(self) -> None:
        """Delete the directories of `checkpoint_dir`; reported ones were copied."""
        for path in self._given:
            shutil.rmtree(path, ignore_errors=True)
        self._given = []

    def failed(self, error: BaseException) -> None:
        """Write the error of a failed trial to its directory."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            (self.folder / "error.txt").write_text(as_text("".join(traceback.format_exception(error))))
            if whole := pickled(error):
                (self.folder / "error.pkl").write_bytes(whole)

    def close(self) -> None:
        """Close the files. A last result that JSON cannot represent is also pickled."""
        self._clear()
        if self.folder is not None and self.last:
            with contextlib.suppress(Exception):
                own = {k: v for k, v in self.last.items() if k != "config"}
                if not _same(own, json.loads(to_json(own))):
                    import cloudpickle

                    (self.folder / LAST).write_bytes(cloudpickle.dumps(self.last))
        if self._files is not None:
            self._files.close()

    def keep(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint of the last result in the trial's directory when the trial must end."""
        name = self._keep(checkpoint, self.last, flatten(self.last), None)
        self.last["checkpoint_dir_name"] = name
        if self._files is not None:
            self._files.replace_last(self.last)

    def _load(self) -> None:
        """Find the checkpoint to start from: Outbid's, otherwise that of the run that this one continues."""
        own = self._own.checkpoint()
        if own is not None:
            about = self._own.metadata.get(_ABOUT, {})
            self._offset, self._before = int(about.get("offset", 0)), float(about.get("time_total", 0.0))
            self.counts = dict(about.get("counts", {}))
            self._start = Checkpoint(own)
            return
        offset = (self._plan.offsets or {}).get(self.trial.number)
        if not offset or self.folder is None:
            return
        for result, path in saved_results(self.folder):
            if int(result["training_iteration"]) == offset:
                self._offset, self._before = offset, float(result["time_total_s"])
                self._start = Checkpoint(path)
                return

    def _open(self) -> None:
        """Open the trial's files without the results after the start, which will be repeated."""
        if self.folder is None:
            return
        for name in ("error.txt", "error.pkl"):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "params.json").write_text(to_json(self.config))
        with contextlib.suppress(Exception):
            import cloudpickle

            (self.folder / "params.pkl").write_bytes(cloudpickle.dumps(self.config))
        before = read_results(self.folder)[: self.iteration]  # one line per iteration
        self._files = Writer(self.folder, before)
        for path in sorted(self.folder.glob("checkpoint_[0-9]*")):
            self._made = max(self._made, int(path.name.split("_")[1]) + 1)
            of = next((r for r in before if r.get("checkpoint_dir_name") == path.name), None)
            if of is not None:
                self._kept.append((path, _checkpoint_ranking.score(self._plan.checkpoints, of, flatten(of))))

    def _keep(
        self, checkpoint: Checkpoint, result: Mapping[str, Any], flat: Mapping[str, Any], name: str | None
    ) -> str | None:
        """Copy a checkpoint into the trial's directory, and delete surplus ones."""
        if self.folder is None:
            return None
        path = self.folder / (name or f"checkpoint_{self._made:06d}")
        self._made += 1
        if Path(checkpoint.path).resolve() != path.resolve():
            shutil.copytree(checkpoint.path, path, dirs_exist_ok=True)
        rules = self._plan.checkpoints
        mine = (path, _checkpoint_ranking.score(rules, result, flat))
        self._kept = [*(pair for pair in self._kept if pair[0] != path), mine]
        # The newest is always kept, because the trial may have to continue from it.
        stay = {*_checkpoint_ranking.best(rules, self._kept), path}
        for gone in {kept for kept, _ in self._kept} - stay:
            shutil.rmtree(gone, ignore_errors=True)
        self._kept = [pair for pair in self._kept if pair[0] in stay]
        return path.name

    def _stops(self, result: dict[str, Any], flat: dict[str, Any]) -> bool:
        stop = self._plan.stop
        if stop is None:
            return False
        if isinstance(stop, Mapping):
            return met(stop, result, flat)
        return asked_in_trial(stop) and bool(stop(self.trial.trial_id, result))


def _configured(name: str) -> bool:
    return name.startswith("config/")


def _same(a: Any, b: Any) -> bool:
    """Return whether two values are equal and have the same types."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def report(
    metrics: Any = None,
    *,
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    **named: Any,
) -> None:
    """Report one iteration's metrics as a dict or keywords, optionally with a checkpoint."""
    if "_metric" in named:
        metrics = named.pop("_metric") if metrics is None else metrics
    if metrics is not None and not isinstance(metrics, Mapping):
        if not hasattr(metrics, "__float__"):
            raise TypeError(f"tune.report() takes a dict of metrics, or a number, got {metrics!r:.80}")
        metrics = {"_metric": metrics}
    if current is None:
        warnings.warn("tune.report() outside of a trial does nothing", stacklevel=2)
        return
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint) and hasattr(checkpoint, "path"):
        checkpoint = Checkpoint(checkpoint.path)
    current.report({**(metrics or {}), **named}, checkpoint, checkpoint_dir_name)


def get_checkpoint() -> Checkpoint | None:
    """Return the checkpoint from which the trial starts; None for a fresh start."""
    return None if current is None else current.checkpoint()


@contextlib.contextmanager
def checkpoint_dir(step: int) -> Iterator[str]:
    """Yield a directory whose files the next `tune.report` keeps, like Ray until 1.13."""
    if current is None:
        yield tempfile.mkdtemp(prefix="checkpoint_")
        return
    with current.checkpoint_dir() as path:
        yield path


class Tee:
    """A stream that also writes to a file of the trial."""

    def __init__(self, stream: Any, file: IO[str]) -> None:
        self._stream, self._file = stream, file

    def write(self, text: str) -> int:
        """Write to both."""
        self._file.write(text)
        return int(self._stream.write(text))

    def flush(self) -> None:
        """Flush both."""
        self._file.flush()
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def logged(session: Session) -> Iterator[None]:
    """Write the output to files in the trial's directory if that is configured."""
    names = session.plan.log_to_file
    if not names or session.folder is None:
        yield
        return
    out, err = ("stdout", "stderr") if names is True else (names, names) if isinstance(names, str) else names
    with (session.folder / out).open("a") as first, contextlib.ExitStack() as stack:
        second = first if out == err else stack.enter_context((session.folder / err).open("a"))
        own = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = Tee(own[0], first), Tee(own[1], second)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = own
