"""Runs one trial in its process: a training function or a class."""

from __future__ import annotations

import contextlib
import inspect
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from outbid._core.errors import StopTrial
from outbid._training import trial as training
from outbid.tune import _session
from outbid.tune._checkpoint import Checkpoint
from outbid.tune._plan import Plan
from outbid.tune._trainable import depends, placement_for, saves, unwrapped


class Work:
    """The training function of Outbid's sweep, which trains one trial of an experiment."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.__name__ = plan.name

    def __call__(self, trial: training.Trial) -> None:
        plan, before = self._plan, os.getcwd()
        if plan.as_ray:
            from outbid.tune._import_hook import pretend

            pretend()
        session = _session.Session(plan, trial)
        if plan.growth is not None:
            session.placement = plan.growth.has(len(trial.devices))
        elif depends(plan.trainable):
            session.placement = placement_for(plan.trainable, session.config)
        _session.current = session
        try:
            if plan.chdir and session.folder is not None:
                os.environ["TUNE_ORIG_WORKING_DIR"] = before
                os.chdir(session.folder)
            with _session.logged(session):
                (_drive if inspect.isclass(plan.trainable) else _call)(plan.trainable, session)
        except StopTrial:
            raise
        except BaseException as error:
            session.failed(error)
            raise
        finally:
            _session.current = None
            session.close()
            os.chdir(before)


def _call(function: Any, session: _session.Session) -> None:
    """Run a training function, and use its return value or yielded values as results."""
    try:
        names = set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = set()
    extra: dict[str, Any] = {}
    if "checkpoint_dir" in names:  # like Ray until 1.13
        start = session.checkpoint()
        extra["checkpoint_dir"] = start.path if start else None
    if "reporter" in names:
        extra["reporter"] = _session.report
    before = session.iteration
    answer = function(session.config, **extra)
    if inspect.isgenerator(answer):
        for value in answer:
            _session.report(value)
        answer = None
    if isinstance(answer, Mapping):
        _session.report(dict(answer))
    elif answer is not None:
        if isinstance(answer, bool) or not hasattr(answer, "__float__"):
            raise TypeError(
                f"the training function {unwrapped(function)!r} returned {answer!r:.80}: it must return a dict of "
                "metrics, a number, or nothing"
            )
        _session.report({"_metric": answer})
    session.finish()
    if session.iteration == before == 0:
        session.nothing()


def _drive(kind: Any, session: _session.Session) -> None:
    """Create a class trainable and run its steps until it is done or told to end."""
    able = saves(kind)
    trainable = kind(session.config)
    try:
        start = session.checkpoint()
        if start is not None:
            trainable.restore(start.path)
            trainable._iteration = session.iteration
        done = False
        while not done:
            due = able and (session.save_due or session.wants_checkpoint)
            result = trainable.train()
            for name in ("time_total_s", "config"):
                result.pop(name, None)
            done = bool(result.get("done"))
            with contextlib.ExitStack() as stack:
                checkpoint = None
                asked = bool(result.pop("should_checkpoint", False)) and able

                def save(stack: contextlib.ExitStack = stack) -> Checkpoint:
                    saved: Checkpoint = trainable.save(
                        stack.enter_context(tempfile.TemporaryDirectory(prefix="checkpoint_"))
                    )
                    return saved

                if due or asked or (done and able and session.at_end):
                    checkpoint = save()
                session.report(result, checkpoint, final=save if able and session.at_end else None)
    except StopTrial:
        if able and session.at_end and session.last and not session.last.get("checkpoint_dir_name"):
            with tempfile.TemporaryDirectory(prefix="checkpoint_") as place:
                session.keep(trainable.save(place))
        raise
    finally:
        trainable.stop()
