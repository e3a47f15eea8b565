"""Sweep: the description of a search, which is submitted to a server."""

from __future__ import annotations

import datetime
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from outbid._client import programs
from outbid._client.callbacks import Callback, callables
from outbid._client.client import Client, default_client
from outbid._client.handle import SweepHandle
from outbid._client.missing_metric import MissingMetric
from outbid._core import function_pickle, validation
from outbid._core.errors import as_text
from outbid._core.limits import check_labels
from outbid._core.name_hints import hinted, renamed
from outbid._core.trace_context import span
from outbid._core.user_warning import warn_user
from outbid._results.result import Result
from outbid._search.asktell import AskedTrial
from outbid._search.choices import Objects, restoring, sendable
from outbid._search.default_tuner import reason
from outbid._search.derived import drawing, split
from outbid._search.objectives import fill_objectives
from outbid._search.preview import Preview, as_trained
from outbid._search.resources import (
    Checkpoints,
    Duration,
    Limits,
    Program,
    Resources,
    Secret,
    Utility,
    duration,
    environment,
)
from outbid._search.rung import Rung
from outbid._search.space import Space, fill_space, to_value
from outbid._search.stopping import Stop, Stopping, stopping
from outbid._search.sweep_arguments import (
    NAME_LENGTH,
    checked_program,
    checked_space,
    deadline_text,
    flag,
    instance,
    lines,
    merged,
    sweep_name,
    training_function,
)
from outbid._search.tuner_classes import Random
from outbid._search.tuners import Tuner
from outbid._search.warm_start import WarmStart, check_earlier, fill_points, start_warm
from outbid._training.loop_check import endless_steps
from outbid.v1 import sweep_pb2 as pb

if TYPE_CHECKING:
    from outbid._training.trial import Trial

_FUNCTION_NAME = 60  # characters of a function's name that are shown


class Sweep:
    """A search for the best configuration of a training function or program.

    Args:
        train: the training function. It is called with a `Trial` for every configuration. Leave out both this and
            `program` to train the trials in your own loop with `ask` and `tell`.
        space: the search space: a dict of parameters (`uniform`, `choice`, ...), plain values and nested dicts.
        metric: the reported metric to optimise. A list makes each metric an objective. The first objective ranks and
            stops trials and chooses the best one. Multi-objective samplers (`Bayes`, `TPE`, `GP`, `NSGA2`) learn from
            all of them, and `Result.front()` returns the Pareto front.
        mode: "max" or "min"; for a list of metrics, a list with one for each.
        tuner: the algorithm that proposes configurations and decides how long each is trained. The default is
            `Auto()`; `Bayes()` with several objectives; `Random()` with more than 64 parameters.
        trials, concurrency, steps, wall_time, target: limits, see `Limits`. Alternatively give `limits`.
        resources: what one trial needs. The default is one device of any type.
        points: the first configurations to try, such as `[{"lr": 0.1}]`, or a pandas DataFrame with one per row.
            Parameters that a point leaves out are sampled. Points count as trials.
        warm_start: earlier sweeps with the same metric (a result, a handle, an id, or a list of these), or an Optuna
            study. The three best configurations of each that fit into this space are tried first, after `points`. A
            sampler that learns also learns from all of their trials. True: the sampler `bayes` starts from the
            results of your earlier sweeps with the same metric and most of the parameters.
        stop: when a trial ends by itself. A function of (step, metrics) that is called with every report; or a dict of
            metrics and the values that end it, reached from below, such as {"accuracy": 0.99}; or a dict of
            conditions, such as {"loss": "<= 0.1", "step": 50}. One condition that holds is enough.
        name: lower-case letters, digits and dashes. The default is made from the function's name.
        program: instead of `train`, a `Program`, a list (a command) or a str (a shell command line).
        loggers: loggers from `outbid.loggers`, which log the sweep while `run` waits for it.
        fail_fast: whether `run` stops the sweep and raises SweepFailedError with the traceback as soon as a trial has
            failed and cannot be restarted. By default the other trials continue.

    Arguments that few sweeps need:
        constraints: conditions that every configuration meets, such as "lr * batch < 10".
        checkpoints: which checkpoints are kept, and how often running trials save.
        max_restarts: how often a trial whose process failed is restarted from its last checkpoint. The default is 3.
        hang_timeout: a trial that sends nothing for this long is restarted. The default is never.
        python: the Python interpreter on the workers. The default is this interpreter if the server is on this
            machine, otherwise "python3".
        env: variables added to the environment of the function's process.
        workdir: the process's working directory. The default is the current directory if the server is on this
            machine, otherwise a scratch directory.
        fresh_process: whether each trial gets a new Python process. By default a process runs one trial after another,
            and changes that a trial makes to modules (globals, caches, registered hooks) remain for the next trial.
        tenant, labels: the owner of the sweep, and free labels that listings show.
        weight: the sweep's share of the cluster relative to other sweeps. The default is 1.
        deadline: when the sweep should be done: a time such as "2026-12-01T18:00:00Z", or a duration after its
            submission. Only policies that use deadlines consider it. Nothing is stopped when it passes.
        utility: what finishing a trial is worth, for policies that use utilities. The default is the device-seconds
            that the trial needs.
        bidder: the program that bids for the sweep if the policy auctions devices, by its name in
            `outbid serve --bidder`. The default is the server's own bidder. The server refuses the sweep if it has no
            such bidder or if its policy holds no auctions.
        bidder_settings: settings that the bidder gets from the sweep.
        ask_timeout: a trial that was asked for but not told about for this long is given to the next caller of `ask`.

    Raises TypeError and ValueError for invalid arguments, naming the argument.
    """

    @renamed(agent="bidder", agent_settings="bidder_settings")
    @hinted
    def __init__(
        self,
        train: Callable[[Trial], Any] | None = None,
        space: Space | None = None,
        *,
        metric: str | Sequence[str],
        mode: Literal["max", "min"] | Sequence[Literal["max", "min"]],
        tuner: Tuner | None = None,
        trials: int | None = None,
        concurrency: int | None = None,
        steps: int | None = None,
        wall_time: Duration | None = None,
        target: float | None = None,
        limits: Limits | None = None,
        resources: Resources | None = None,
        points: Sequence[Mapping[str, Any]] = (),
        warm_start: WarmStart | bool | None = None,
        stop: Stop | None = None,
        name: str = "",
        program: Program | Sequence[str] | str | None = None,
        loggers: Sequence[Callback] = (),
        fail_fast: bool = False,
        constraints: Sequence[str] = (),
        checkpoints: Checkpoints | None = None,
        max_restarts: int | None = None,
        hang_timeout: Duration | None = None,
        python: str | os.PathLike[str] | None = None,
        env: Mapping[str, str | Secret] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        fresh_process: bool = False,
        tenant: str = "",
        labels: Mapping[str, str] | None = None,
        weight: float = 1.0,
        utility: Utility | None = None,
        deadline: Duration | datetime.datetime = "",
        bidder: str = "",
        bidder_settings: Mapping[str, Any] | None = None,
        ask_timeout: Duration | None = None,
    ) -> None:
        space, functions = split(checked_space(space))
        self._objects = Objects()
        if program is None:
            space, self._objects = sendable(space)
        self._train = stopping(restoring(drawing(training_function(train, program), functions), self._objects), stop)
        self._program = checked_program(program)
        self._python = None if python is None else validation.path("Sweep: python", python)
        self._workdir = None if workdir is None else validation.path("Sweep: workdir", workdir)
        self._env = validation.mapping("Sweep: env", env or {}, '{"OMP_NUM_THREADS": "1"}')
        self._fresh_process = flag("fresh_process", fresh_process)
        self._fail_fast = flag("fail_fast", fail_fast)
        self._ask_timeout = "" if ask_timeout is None else duration("ask_timeout", ask_timeout)
        self._loggers = callables("Sweep: loggers", loggers)
        self._handle: SweepHandle | None = None
        spec = pb.SweepSpec(
            name=sweep_name(name) if name else self._made_name(),
            tenant=validation.text("Sweep: tenant", tenant),
            constraints=lines(constraints),
            memory="on" if warm_start is True else "",
            labels=check_labels("Sweep: labels", validation.mapping("Sweep: labels", labels or {}, '{"who": "me"}')),
        )
        fill_objectives(spec, metric, mode)
        fill_space(spec.space, space)
        self._uses_default = tuner is None  # the default depends on where the server is
        spec.tuner.CopyFrom(instance("tuner", tuner or Random(), Tuner).to_proto())
        fill_points(spec, points, self._objects.send_all)
        self._earlier = None if isinstance(warm_start, bool) else warm_start
        if self._earlier is not None:
            check_earlier(self._earlier)
        spec.resources.CopyFrom(instance("resources", resources or Resources(), Resources).to_proto())
        flat = Limits(trials, concurrency, steps, wall_time, target)
        spec.limits.CopyFrom(merged(flat, limits).to_proto())
        if checkpoints is not None:
            spec.checkpoints.CopyFrom(instance("checkpoints", checkpoints, Checkpoints).to_proto())
        if max_restarts is not None:
            if isinstance(max_restarts, bool) or not isinstance(max_restarts, int) or not 0 <= max_restarts <= 1000:
                raise ValueError(f"max_restarts: must be from 0 to 1000, got {max_restarts!r}")
            spec.max_restarts = max_restarts
        if not (math.isfinite(validation.number("Sweep: weight", weight)) and weight > 0):
            raise ValueError(f"weight must be a number above 0, got {weight!r}")
        if weight != 1:
            spec.weight = weight
        if utility is not None:
            spec.utility.CopyFrom(instance("utility", utility, Utility).to_proto())
        if deadline != "":
            spec.deadline = deadline_text(deadline)
        if bidder:
            spec.agent.plugin = validation.text("Sweep: bidder", bidder, "the name of a bidder")
            spec.agent.settings.CopyFrom(to_value(dict(bidder_settings or {}), "bidder_settings").struct_value)
        elif bidder_settings:
            raise ValueError("bidder_settings: also set bidder, the name of the bidder that gets them")
        if hang_timeout is not None:
            spec.hang_timeout = duration("hang_timeout", hang_timeout)
        self._spec = spec

    def __repr__(self) -> str:
        spec = self._spec
        return f"<outbid.Sweep {spec.name}: {spec.mode} {spec.metric} by {spec.tuner.WhichOneof('kind')}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as in a YAML file, without the function."""
        from google.protobuf import json_format

        return json_format.MessageToDict(self._spec_for(None, ""), preserving_proto_field_name=True)

    def submit(self, client: Client | None = None) -> SweepHandle:
        """Submit the sweep and return its handle at once.

        `client` is a client from `connect`. The default is the latest one, or a connection to OUTBID_URL, or a local
        server that is started for you. Raises FunctionError if the function cannot be serialised and InvalidError if
        the server refuses the sweep.
        """
        client = client or default_client()
        if self._train is not None and not self._ends():
            warn_user(
                f"{function_pickle.name_of(self._train)} loops over trial.steps() without an end because the tuner has "
                "no max_steps, so the trials never end. Set it, such as ob.Random(max_steps=100), or break",
            )
        blob = client.put_blob(function_pickle.dump(self._train)) if self._train is not None else ""
        programs.pause_left(client)
        self._handle = client.submit_spec(self._spec_for(client, blob))
        if self._objects:
            client.objects[self._handle.id] = self._objects
        if self._train is not None or self._program:
            programs.hold(client, self._handle.id, new=True)
        return self._handle

    async def asubmit(self, client: Client | None = None) -> SweepHandle:
        """Submit the sweep like `submit`, for asyncio."""
        import asyncio

        return await asyncio.to_thread(self.submit, client)

    @hinted
    def run(
        self,
        *,
        display: bool = True,
        timeout: float | None = None,
        callbacks: Iterable[Callback] = (),
        loggers: Iterable[Callback] = (),
        client: Client | None = None,
    ) -> Result:
        """Submit the sweep, wait for its end and return the result.

        `display` shows a live table. After `timeout` seconds TimeoutError is raised and the sweep continues.

        Ctrl-C, or a notebook's interrupt, saves and pauses the sweep if this SDK started the server, and otherwise
        leaves it running. It prints how to continue. A second Ctrl-C does not wait until the trials have saved.

        Raises SweepFailedError if the sweep failed.
        """
        if self._train is None and not self._program:
            raise TypeError("run: this sweep has neither function nor program; use ask() and tell()")
        called = (*callables("callbacks", callbacks), *self._loggers, *callables("loggers", loggers))
        if isinstance(self._train, Stopping):
            called = (*called, MissingMetric(self._train.names))
        if timeout is not None:
            validation.number("run: timeout", timeout)
        with span("outbid.run"):
            handle = self.submit(client)
            if display and self._uses_default:
                print(reason(handle._client.spec(handle.id)), flush=True)
            return handle._wait(timeout, display, called, pausing=True, fail_fast=self._fail_fast)

    def preview(self, *, step_seconds: float = 0.0, client: Client | None = None) -> Preview:
        """Ask the server what the sweep would do, without starting anything.

        `step_seconds` is how long one step takes on one device; it is needed for `device_hours`.
        """
        from google.protobuf import json_format

        client = client or default_client()
        answer = client.preview_spec(self._spec_for(client, "0" * 64 if self._train else ""), step_seconds)
        return Preview(
            trials=answer.outlook.trials,
            steps=answer.outlook.steps,
            rungs=tuple(Rung(r.bracket, r.until_step, r.trials, r.steps) for r in answer.outlook.rungs),
            device_hours=answer.device_hours,
            examples=tuple(as_trained(json_format.MessageToDict(example)) for example in answer.examples),
            warnings=tuple(answer.warnings),
        )

    @property
    def submitted(self) -> bool:
        """Whether this object has submitted the sweep."""
        return self._handle is not None

    @property
    def handle(self) -> SweepHandle:
        """The handle of the latest submission. Submits the sweep if it was not submitted before."""
        return self._handle if self._handle is not None else self.submit()

    def ask(self, timeout: float | None = None) -> AskedTrial | None:
        """Return a trial to train, or None if there will not be another; see `SweepHandle.ask`.

        The first call submits the sweep.
        """
        if self._train is not None or self._program:
            raise TypeError("ask: this sweep has a function or program, which the workers run")
        return self.handle.ask(timeout)

    def tell(
        self,
        trial: AskedTrial,
        metrics: float | Mapping[str, Any] | None = None,
        *,
        step: int | None = None,
        finished: bool | None = None,
        error: str = "",
    ) -> bool:
        """Report measurements of a trial; returns whether to train it further. See `SweepHandle.tell`."""
        return self.handle.tell(trial, metrics, step=step, finished=finished, error=error)

    def result(self) -> Result:
        """Return the current result without waiting."""
        return self.handle.result()

    def _ends(self) -> bool:
        """Return whether the trials end, judging by the tuner and the function's source."""
        kind = self._spec.tuner.WhichOneof("kind") or "plugin"
        if kind == "plugin" and not self._spec.tuner.plugin.HasField("rule"):
            return True  # only the plugin knows
        return getattr(self._spec.tuner, kind).max_steps > 0 or not endless_steps(self._train)

    def _made_name(self) -> str:
        if self._train is not None:
            source = function_pickle.name_of(self._train)
        elif self._program and self._program.command:
            source = PurePath(self._program.command[0]).stem
        else:
            source = "sweep"
        made = re.sub(r"[^a-z0-9]+", "-", source.lower()).lstrip("-0123456789")[:NAME_LENGTH].strip("-")
        return made or "sweep"

    def _spec_for(self, client: Client | None, blob: str) -> pb.SweepSpec:
        spec = pb.SweepSpec()
        spec.CopyFrom(self._spec)
        here = client is not None and client.local
        if self._uses_default:
            spec.tuner.CopyFrom(pb.Tuner(points=spec.tuner.points))
        if self._earlier is not None and client is not None:
            start_warm(spec, self._earlier, lambda sweep: client.attach(sweep).result())
        if here and spec.tuner.plugin.HasField("rule") and not spec.tuner.plugin.command:
            spec.tuner.plugin.command.extend([sys.executable, "-m", "outbid.plugin.optuna"])
        if self._train is not None:
            env, secrets = environment(self._env)
            spec.function.CopyFrom(
                pb.Function(
                    blob=blob,
                    python=self._python or (sys.executable if here else "python3"),
                    name=as_text(function_pickle.name_of(self._train))[:_FUNCTION_NAME],
                    env=env,
                    secrets=secrets,
                    workdir=self._workdir if self._workdir is not None else os.getcwd() if here else "",
                    fresh_process=self._fresh_process,
                )
            )
        elif self._program:
            spec.program.CopyFrom(self._program.to_proto())
        else:
            spec.external.CopyFrom(pb.External(timeout=self._ask_timeout))
        return spec
