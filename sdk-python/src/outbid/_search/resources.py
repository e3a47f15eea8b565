"""Resources, Limits, Utility, Checkpoints, Secret and Program: parts of a sweep's description."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from outbid._core import validation
from outbid._core.name_hints import hinted_class
from outbid.v1 import sweep_pb2 as pb

Duration: TypeAlias = "str | float | datetime.timedelta"
"""A time span: seconds, a timedelta, or text such as "90s", "10m" or "1h30m"."""

_DURATION = re.compile(r"(\d+(\.\d*)?(d|h|ms|m|s))+")


@hinted_class
@dataclass(frozen=True)
class Resources:
    """The devices and other resources that one trial needs.

    `devices` is a count, or `(min, max)` if the trial can use more. Such a trial may be stopped to continue from its
    checkpoint on additional free devices: under `outbid up` after they have been free for 10 s, otherwise when its
    lease ends. `types` are the device types that it may run on, such as "v100" or "cpu" (empty: any); `exclude_types`
    those that it must not run on. `cpus` is a number of cores, `memory` a size such as "4GiB".

    A trial may run as a gang: `processes="per_device"` starts one process for each device, `spread=True` allows devices
    of several nodes, and `mixed=True` of several types. The processes find each other by torchrun's environment
    variables (RANK, WORLD_SIZE, MASTER_ADDR, ...); a function also has `trial.rank` and `trial.world_size`.

    With `forks`, several processes on different nodes may train one trial at the same time when nodes would be idle:
    "auto" for any number, or `(least, most)`. In each fork slot every fork trains a share of the steps, and then their
    checkpoints are averaged; see `Trial.fork`. The server's policy must be outbid (the default),
    themis, hadare or oasis.
    `forks_merge` is the kind of average: "steps" weights each fork by its steps, "uniform" weights all equally, and
    "outer" passes their mean to DiLoCo's outer optimizer with learning rate 0.7 and momentum 0.9, or the values in
    "outer(0.5, 0.8)". "best" weights by steps, but the trial continues from the best fork's checkpoint if the sweep's
    metric, as first reported for the mean, is worse than that of the fork.
    """

    devices: int | tuple[int, int] = 1
    types: Sequence[str] = ()
    exclude_types: Sequence[str] = ()
    cpus: float = 0.0
    memory: str = ""
    spread: bool = False
    mixed: bool = False
    processes: Literal["one", "per_device"] = "one"
    forks: Literal["auto"] | tuple[int, int] | None = None
    forks_merge: str = "steps"

    def to_proto(self) -> pb.Resources:
        """Return the resources as the API's message."""
        low, high = _bounds(self.devices)
        if not 1 <= low <= high:
            raise ValueError(f"Resources: devices must be 1 <= min <= max, got {self.devices!r}")
        if not (math.isfinite(validation.number("Resources: cpus", self.cpus)) and self.cpus >= 0):
            raise ValueError(
                f"Resources: cpus: must be a number of CPU cores, or 0 for no requirement, got {self.cpus!r}"
            )
        if self.processes not in ("one", "per_device"):
            raise ValueError(f'Resources: processes must be "one" or "per_device", got {self.processes!r}')
        return pb.Resources(
            devices=pb.DeviceCount(min=low, max=high),
            types=_names("types", self.types),
            exclude_types=_names("exclude_types", self.exclude_types),
            cpus=self.cpus,
            memory=validation.text("Resources: memory", self.memory, 'an amount such as "4GiB"'),
            spread=self.spread,
            mixed=self.mixed,
            processes="" if self.processes == "one" else self.processes,
            forks=_forks(self.forks),
            forks_merge=_merge(self.forks_merge),
        )


def _bounds(devices: int | tuple[int, int]) -> tuple[int, int]:
    """Return the fewest and the most devices of a trial."""
    both = devices if isinstance(devices, tuple) else (devices, devices)
    if len(both) == 2 and all(isinstance(n, int) and not isinstance(n, bool) for n in both):
        return both
    whole = ": a trial has whole devices" if any(isinstance(n, float) for n in both) else ""
    raise TypeError(f"Resources: devices must be a whole count or (min, max), got {devices!r}{whole}")


def _merge(merge: str) -> str:
    """Return the API's text for the kind of average."""
    if not isinstance(merge, str) or not (merge in ("steps", "uniform", "best", "outer") or merge.startswith("outer(")):
        raise ValueError(
            'Resources: forks_merge must be "steps", "uniform", "best", "outer" or "outer(RATE, MOMENTUM)", '
            f"got {merge!r}"
        )
    return "" if merge == "steps" else merge


def _forks(forks: str | tuple[int, int] | None) -> str:
    """Return the API's text for the number of forks that a trial may have."""
    if forks is None or forks == "auto":
        return forks or ""
    if (
        isinstance(forks, tuple)
        and len(forks) == 2
        and all(isinstance(n, int) and not isinstance(n, bool) for n in forks)
        and 1 <= forks[0] <= forks[1]
        and forks[1] >= 2
    ):
        return f"{forks[0]}-{forks[1]}"
    raise ValueError(f'Resources: forks must be "auto" or (least, most) with a most of 2 or more, got {forks!r}')


@hinted_class
@dataclass(frozen=True)
class Limits:
    """When a sweep ends; a limit that is None does not end it.

    `trials` is the number of trials to create, `concurrency` the number that run at the same time, `steps` the number
    of steps over all trials, `wall_time` the time since the submission, `target` a value of the metric,
    `device_hours` the hours of all trials' leases times their devices, such as 12.5, and `cost` what they may cost at
    the server's prices (`outbid serve --prices`).
    """

    trials: int | None = None
    concurrency: int | None = None
    steps: int | None = None
    wall_time: Duration | None = None
    target: float | None = None
    device_hours: float | None = None
    cost: float | None = None

    def to_proto(self) -> pb.Limits:
        """Return the limits as the API's message."""
        message = pb.Limits(
            trials=_count("trials", self.trials),
            concurrency=_count("concurrency", self.concurrency),
            steps=_count("steps", self.steps),
        )
        if self.wall_time is not None:
            message.wall_time = duration("wall_time", self.wall_time)
        if self.target is not None:
            message.target = validation.number("target", self.target)
        for name, value in (("device_hours", self.device_hours), ("cost", self.cost)):
            if value is None:
                continue
            checked = validation.number(name, value)
            if not (math.isfinite(checked) and checked >= 0):
                raise ValueError(f"limits.{name}: must be a finite number of at least 0 (no limit), got {value!r}")
            setattr(message, name, checked)
        return message


@hinted_class
@dataclass(frozen=True)
class Utility:
    """The worth of finishing a trial, for policies that admit sweeps by utility, such as `oasis`.

    A trial that ends t after it was created is worth `priority / (1 + exp(decay * (t - target)))`: about `priority`
    long before `target`, half of it at `target`, and little long after. `target` is a duration. `decay` is how fast the
    worth falls there, per second; with 0 it does not fall. A steep utility is a deadline: `Utility(80, decay=1,
    target="90m")`.

    `worth` and `by` are other names of `priority` and `target`, and `kind` selects another shape. A "step" is worth
    `worth` until `by` and nothing after. A "linear" utility loses `decay` of its worth per second from `by` on.
    """

    priority: float = 0.0
    decay: float = 0.0
    target: Duration = 0.0
    kind: Literal["sigmoid", "step", "linear"] = "sigmoid"
    worth: float = 0.0
    by: Duration | None = None

    def to_proto(self) -> pb.Utility:
        """Return the utility as the API's message."""
        target = _seconds("Utility: target", self.target)
        if self.kind not in ("sigmoid", "step", "linear"):
            raise ValueError(f"Utility: kind must be 'sigmoid', 'step' or 'linear', got {self.kind!r}")
        numbers = (("priority", self.priority), ("decay", self.decay), ("target", target), ("worth", self.worth))
        for name, number in numbers:
            if isinstance(number, bool) or not (math.isfinite(number) and number >= 0):
                raise ValueError(f"Utility: {name} must be a finite number that is at least 0, got {number!r}")
        message = pb.Utility(priority=self.priority, decay=self.decay, target=target, worth=self.worth)
        if self.kind != "sigmoid":
            message.kind = self.kind
        if self.by is not None:
            message.by = duration("Utility: by", self.by)
        return message


@hinted_class
@dataclass(frozen=True)
class Checkpoints:
    """Which checkpoints are kept when no trial needs them to resume, and how often a running trial saves.

    `best` keeps the newest checkpoint of this many best trials, `last` the last of every trial, and `all` every
    checkpoint. `every` is how often a running trial is asked to save; the server's default is 30 s.
    """

    best: int = 1
    last: bool = False
    all: bool = False
    every: Duration | None = None

    def to_proto(self) -> pb.Checkpoints:
        """Return the retention as the API's message."""
        if isinstance(self.best, bool) or not isinstance(self.best, int) or self.best < 0:
            raise ValueError(f"Checkpoints: best must be a whole number from 0, got {self.best!r}")
        message = pb.Checkpoints(best=self.best, last=self.last, all=self.all)
        if self.every is not None:
            message.every = duration("every", self.every)
        return message


@hinted_class
@dataclass(frozen=True)
class Secret:
    """An environment variable whose value is a secret of the tenant: `env={"WANDB_API_KEY": ob.Secret("wandb")}`.

    Set the value with `client.secrets.set` or `outbid secret set`. Trials find it in their environment. The server
    never shows it, and workers replace it by *** in the output of trials.
    """

    name: str


def environment(env: Mapping[str, str | Secret]) -> tuple[dict[str, str], dict[str, str]]:
    """Split an environment into plain variables and variables with the names of their secrets."""
    plain = {str(name): str(value) for name, value in env.items() if not isinstance(value, Secret)}
    return plain, {str(name): value.name for name, value in env.items() if isinstance(value, Secret)}


@hinted_class
@dataclass(frozen=True)
class Program:
    """A program that trains the trial, instead of a Python function.

    Give either `command` (the program and its arguments) or `shell` (a command line for /bin/sh). In both, and in the
    values of `env`, `{lr}` is replaced by a parameter, `{optimizer.name}` by a nested one, and `{{` and `}}` by braces.
    `workdir` is the working directory on the worker (empty: a scratch directory). `grace` is the time between the
    signal to stop and the kill. A value of `env` may be a `Secret`.
    """

    command: Sequence[str] = ()
    shell: str = ""
    env: Mapping[str, str | Secret] = field(default_factory=dict)
    workdir: str = ""
    grace: Duration | None = None

    def to_proto(self) -> pb.Program:
        """Return the program as the API's message."""
        if isinstance(self.command, str):
            raise TypeError(f"Program: command must be a list, got {self.command!r}; use shell= for a line")
        if bool(self.command) == bool(self.shell):
            raise ValueError("Program: give either command or shell")
        env, secrets = environment(self.env)
        message = pb.Program(
            command=[str(part) for part in self.command],
            shell=self.shell,
            env=env,
            secrets=secrets,
            workdir=self.workdir,
        )
        if self.grace is not None:
            message.grace = duration("grace", self.grace)
        return message


def duration(name: str, value: Duration) -> str:
    """Return a duration as the API's text, such as "90s"."""
    if isinstance(value, str):
        if not _DURATION.fullmatch(value):
            raise ValueError(
                f"{name}: {validation.quoted(value)} is not a duration above 0; write a number and a unit, such as "
                "90s, 10m, 36h or 2d"
            )
        return value
    seconds = value.total_seconds() if isinstance(value, datetime.timedelta) else float(value)
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"{name}: a duration must be above 0 seconds, got {value!r}")
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def _seconds(name: str, value: Duration) -> float:
    """Return a duration, which may be 0, in seconds."""
    if isinstance(value, str):
        text = duration(name, value)
        return sum(float(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+\.?\d*)(h|ms|m|s)", text))
    return value.total_seconds() if isinstance(value, datetime.timedelta) else float(value)


def _count(name: str, value: int | None) -> int:
    if value is None:
        return 0
    count = validation.whole(name, value)
    if count < 1:
        raise ValueError(f"{name} must be at least 1, got {count}")
    return count


def _names(field_name: str, value: Sequence[str]) -> list[str]:
    if isinstance(value, str):
        raise TypeError(f"Resources: {field_name} must be a list, got {value!r}")
    return [str(name).lower() for name in value]
