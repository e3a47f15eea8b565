"""The warm training process, `python -m outbid._trial`, started by a worker.

It attaches to its worker, by the socket in OUTBID_STREAM or, where a worker of an older version names none, by gRPC on
that in OUTBID_SOCKET, and runs one trial after another until it is told to leave.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import Any

# Training code may fork (data loaders), and use gRPC: its handlers would only print warnings about its threads.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from outbid._attributes import OUTSIDE
from outbid._errors import OutbidError, StopTrial, as_text, one_line, shown
from outbid._outside_state import Watch, watched
from outbid._session import Attached, Poke, Session, Terminate
from outbid._training import AnswerError, Trial
from outbid.v1 import node_pb2, session_pb2

_MARK = "\x1eoutbid:"
_WATCHED = 3  # trials of a process after each of which the state outside the training function is compared


def _how(trial: Trial) -> str:
    """Say what reports a value."""
    name = trial._a.metric or "loss"
    return f'return a number, or a dict such as {{"{name}": 0.5}}, or give one to trial.report in the loop over steps()'


class Runner:
    """Runs the trials that the worker assigns."""

    def __init__(self, session: Attached) -> None:
        self._session = session
        self._path = ""
        self._function: Callable[[Trial], Any] | None = None
        self._outside: Watch | None = None
        self._generators = Generators()

    def loop(self) -> None:
        """Run trials until the worker or a signal ends the process."""
        while True:
            message = self._session.inbox.get()
            if isinstance(message, Poke):
                continue
            if isinstance(message, Terminate) or message.HasField("shutdown"):
                return
            # Anything else belongs to a trial that is over.
            if message.HasField("assignment") and self._run(message.assignment):
                return

    def _run(self, assignment: session_pb2.TrialAssignment) -> bool:
        """Run one trial; returns whether the process is to leave."""
        mark(assignment.fork)
        trial = Trial(assignment, self._session)
        error, trace, outside = "", "", None
        try:
            function = self._load(assignment.function_path)
        except (OutbidError, OSError) as failure:
            error = one_line(failure)  # written for people: a stack adds nothing
        else:
            self._generators.seed(assignment.seed)
            if (outside := self._outside) is not None:
                outside.begin()
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
        """Return the function in a file; read once, as it is the same for every trial of a process."""
        if self._function is None or self._path != path:
            from outbid import _pickle

            self._function, self._path = _pickle.load_file(path), path
            self._outside = Watch(watched(self._function), _WATCHED, ignore_resets=True)
        return self._function


def call(function: Callable[[Trial], Any], trial: Trial) -> tuple[str, str]:
    """Run training code; returns what went wrong, as one line and in full."""
    try:
        answer = function(trial)
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
    """Return the traceback from the training function on, without the runner's own frame."""
    first = failure.__traceback__
    return as_text("".join(traceback.format_exception(type(failure), failure, first.tb_next if first else None)))


def mark(fork: node_pb2.ForkRef) -> None:
    """Tell the worker, in both streams, whose output follows."""
    line = f"{_MARK}{fork.sweep}/{fork.trial}@{fork.lease_id}\n"
    for stream in (sys.stdout, sys.stderr):
        stream.write(line)
        stream.flush()


def flush() -> None:
    """Flush both streams."""
    sys.stdout.flush()
    sys.stderr.flush()


class Generators(MetaPathFinder):
    """The global generators, seeded for each trial: it must not depend on which ones ran in the process before.

    numpy's is seeded when numpy.random is loaded, if the training code is what loads it: to load it takes longer than
    many a trial does.
    """

    def __init__(self) -> None:
        self._seed = 0

    def seed(self, seed: int) -> None:
        """Seed those that are loaded."""
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
        """Have numpy.random seeded once it is loaded."""
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


def handle_sigterm(session: Attached) -> None:
    """Make SIGTERM end the process as a pause would; in forked children it is deadly, as ever."""

    def on_term(_signal: int, _frame: FrameType | None) -> None:
        session.inbox.put(Terminate())  # reentrant, so safe here

    def reset() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    # Python runs handlers in the main thread, between two instructions. A signal that comes just before that
    # thread waits for its inbox would go unnoticed; so another thread, told through a pipe, wakes it.
    source, target = os.pipe()
    os.set_blocking(target, False)
    threading.Thread(target=_poke, args=(source, session), name="outbid-signals", daemon=True).start()
    signal.signal(signal.SIGTERM, on_term)
    signal.set_wakeup_fd(target, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=reset)


def _poke(source: int, session: Attached) -> None:
    while os.read(source, 64):
        session.inbox.put(Poke())


def on_ray() -> None:
    """Have what trials start on Ray stay within their bundle, where the worker stands in one (outbid.ray.up)."""
    if os.environ.get("RAY_OUTBID_BUNDLE") and importlib.util.find_spec("ray") is not None:
        importlib.import_module("outbid.ray._capture").capture()


def attach(socket: str, secret: str) -> Attached:
    """Attach to the worker in the way that it knows."""
    if path := os.environ.get("OUTBID_STREAM"):
        return Session(path, secret)
    from outbid._grpcsession import GrpcSession

    return GrpcSession(socket, secret)


def main() -> int:
    """Attach to the worker and run its trials. Returns the exit code."""
    try:
        socket, secret = os.environ["OUTBID_SOCKET"], os.environ["OUTBID_SESSION"]
    except KeyError as missing:
        print(f"outbid: {missing.args[0]} is not set: this process is started by a worker", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        if callable(reconfigure := getattr(stream, "reconfigure", None)):
            reconfigure(line_buffering=True)  # so that logs can be followed
    session = attach(socket, secret)
    handle_sigterm(session)
    on_ray()
    Runner(session).loop()
    session.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
