"""The warm training process, which a worker starts as `python -m outbid.trial_process`."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import Any

# Training code may fork (data loaders) and use gRPC, whose fork handlers would only print warnings about threads.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from outbid._core.errors import OutbidError, StopTrial, as_text, one_line, shown
from outbid._core.trace_context import of_trial
from outbid._training.gang import FromRank
from outbid._training.notes import OUTSIDE
from outbid._training.outside_state import Watch, watched
from outbid._training.session import Poke, Session, Terminate
from outbid._training.trial import AnswerError, Trial
from outbid.v1 import node_pb2, session_pb2

_MARK = "\x1eoutbid:"
_WATCHED = 3  # first trials of a process, after each the state outside the training function is compared


def _how(trial: Trial) -> str:
    """Return advice on how to report a value."""
    name = trial._a.metric or "loss"
    return f'return a number, or a dict such as {{"{name}": 0.5}}, or give one to trial.report in the loop over steps()'


class Runner:
    """Runs the trials that the worker assigns."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._path = ""
        self._function: Callable[[Trial], Any] | None = None
        self._outside: Watch | None = None
        self._generators = Generators()

    def loop(self) -> None:
        """Run trials until the worker or a signal ends the process."""
        while True:
            message = self._session.inbox.get()
            if isinstance(message, (Poke, FromRank)):
                continue
            if isinstance(message, Terminate) or message.HasField("shutdown"):
                return
            # Anything else belongs to a trial that is over.
            if message.HasField("assignment") and self._run(message.assignment):
                return

    def _run(self, assignment: session_pb2.TrialAssignment) -> bool:
        """Run one trial; returns whether the process should exit."""
        mark(assignment.fork)
        trial = Trial(assignment, self._session)
        error, trace, outside = "", "", None
        try:
            function = self._load(assignment.function_path)
        except (OutbidError, OSError) as failure:
            error = one_line(failure)  # the message is enough, a traceback would add nothing
        else:
            self._generators.seed(assignment.seed)
            if (outside := self._outside) is not None:
                outside.begin()
            with of_trial(assignment.traceparent):
                error, trace = call(function, trial)
        if outside is not None and (names := outside.changed()):
            trial.note({OUTSIDE: names})
        if error:
            print(trace or error, file=sys.stderr)
        flush()
        trial._finish(error, trace)
        flush()
        return trial._leaving

    def _load(self, path: str) -> Callable[[Trial], Any]:
        """Return the function in a file. It is cached because all trials of a process have the same function."""
        if self._function is None or self._path != path:
            from outbid._core import function_pickle

            self._function, self._path = function_pickle.load_file(path), path
            self._outside = Watch(watched(self._function), _WATCHED, ignore_resets=True)
        return self._function


def call(function: Callable[[Trial], Any], trial: Trial) -> tuple[str, str]:
    """Run training code; returns the error as one line and in full, or two empty strings."""
    try:
        answer = function(trial) if trial._join() else None
        if answer is not None and not trial._answer(answer):
            return f"TypeError: the training function returned {shown(answer)} and reported nothing: {_how(trial)}", ""
    except StopTrial:
        pass
    except AnswerError as failure:
        return f"TypeError: {failure}", ""
    except SystemExit as leave:
        if leave.code not in (None, 0):
            return as_text(f"SystemExit: {leave.code}"), trace_of(leave)
    except BaseException as failure:
        return one_line(failure), trace_of(failure)
    return "", ""


def trace_of(failure: BaseException) -> str:
    """Return the traceback from the training function on, without the runner's frame."""
    first = failure.__traceback__
    return as_text("".join(traceback.format_exception(type(failure), failure, first.tb_next if first else None)))


def mark(fork: node_pb2.ForkRef) -> None:
    """Write a mark to both streams, so that the worker knows which trial the following output belongs to."""
    line = f"{_MARK}{fork.sweep}/{fork.trial}@{fork.lease_id}\n"
    for stream in (sys.stdout, sys.stderr):
        stream.write(line)
        stream.flush()


def flush() -> None:
    """Flush both streams."""
    sys.stdout.flush()
    sys.stderr.flush()


class Generators:
    """Seeds the global random generators for each trial, so that earlier trials of the process do not affect it.

    If training code is the first to import numpy.random, its generator is seeded on import. Importing it here would
    take longer than many trials.
    """

    def __init__(self) -> None:
        self._seed = 0

    def seed(self, seed: int) -> None:
        """Seed the generators of the modules that are loaded."""
        import random

        self._seed = seed
        random.seed(seed)
        if (numpy := sys.modules.get("numpy.random")) is not None:
            numpy.seed(seed % (1 << 32))
        elif self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(seed)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for numpy.random whose loader seeds the generator."""
        if fullname != "numpy.random":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                module.seed(self._seed % (1 << 32))

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def handle_sigterm(session: Session) -> None:
    """Make SIGTERM end the process like a pause does. In forked children SIGTERM kills as usual."""
    masks = threading.local()

    def on_term(_signal: int, _frame: FrameType | None) -> None:
        session.inbox.put(Terminate())  # put is reentrant, so this is safe in a handler

    def hold() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def reset() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        release()

    # Python runs signal handlers in the main thread, between two instructions. A signal that arrives just before that
    # thread blocks on its inbox would go unnoticed. Therefore another thread reads the wakeup pipe and wakes it.
    source, target = os.pipe()
    os.set_blocking(target, False)
    threading.Thread(target=_poke, args=(source, session), name="outbid-signals", daemon=True).start()
    signal.signal(signal.SIGTERM, on_term)
    signal.set_wakeup_fd(target, warn_on_full_buffer=False)
    # A child that got the signal before reset would lose it: Pool.terminate of multiprocessing sends it once.
    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=reset)


def _poke(source: int, session: Session) -> None:
    while os.read(source, 64):
        session.inbox.put(Poke())


def on_ray() -> None:
    """Keep Ray tasks and actors of trials within the worker's placement group bundle (outbid.ray.up), if it has one."""
    if os.environ.get("RAY_OUTBID_BUNDLE") and importlib.util.find_spec("ray") is not None:
        importlib.import_module("outbid.ray._capture").capture()


def main() -> int:
    """Connect to the worker and run its trials. Returns the exit code."""
    try:
        socket, secret = os.environ["OUTBID_STREAM"], os.environ["OUTBID_SESSION"]
    except KeyError as missing:
        print(f"outbid: {missing.args[0]} is not set: this process is started by a worker", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        if callable(reconfigure := getattr(stream, "reconfigure", None)):
            reconfigure(line_buffering=True)  # so that logs can be followed
    session = Session(socket, secret)
    handle_sigterm(session)
    on_ray()
    Runner(session).loop()
    session.close()
    return 0
